import type { Flag } from "../flag.ts";

/** Rows of the table in `flags.ts`. */
export const CLUSTER_FLAGS = [
  {
    name: "config",
    type: "text",
    group: "Cluster",
    value: "FILE",
    help:
      "configuration file (KubeProxyConfiguration, YAML or JSON); with it, most other flags of " +
      "kube-proxy are ignored",
    emptyIsAbsent: true,
    withConfig: "used",
  },
  {
    name: "kubeconfig",
    type: "text",
    group: "Cluster",
    value: "FILE",
    field: "clientConnection.kubeconfig",
    help: "kubeconfig with the address of the API server and the credentials; without it the " +
      "service account of the pod is used",
    withConfig: "ignored",
  },
  {
    name: "master",
    type: "text",
    group: "Cluster",
    value: "URL",
    help: "URL of the API server; overrides the kubeconfig",
    emptyIsAbsent: true,
    withConfig: "used",
  },
  {
    name: "kube-api-content-type",
    type: "text",
    group: "Cluster",
    value: "TYPE",
    field: "clientConnection.contentType",
    help:
      "content type of the objects that the API server sends: application/vnd.kubernetes.protobuf, or application/json, which costs more",
    withConfig: "ignored",
  },
  {
    name: "kube-api-qps",
    type: "number",
    group: "Cluster",
    value: "N",
    field: "clientConnection.qps",
    help:
      "most requests per second to the API server; accepted without effect, since kube-relay sends " +
      "only a few lists, watches and events",
    withConfig: "ignored",
  },
  {
    name: "kube-api-burst",
    type: "integer",
    group: "Cluster",
    value: "N",
    minimum: 0,
    maximum: 2 ** 31 - 1,
    field: "clientConnection.burst",
    help: "most requests at once above --kube-api-qps; accepted without effect",
    withConfig: "ignored",
  },
  {
    name: "config-sync-period",
    type: "duration",
    group: "Cluster",
    field: "configSyncPeriod",
    help: "interval at which all known objects are processed again; accepted without effect",
    withConfig: "ignored",
  },
  {
    name: "feature-gates",
    type: "gates",
    group: "Cluster",
    value: "NAME=BOOLEAN",
    field: "featureGates",
    help: "feature gates of Kubernetes; docs/flags.md lists those that have an effect",
    withConfig: "ignored",
  },
  {
    name: "manifests",
    type: "list",
    group: "Cluster",
    value: "PATH",
    help: "file or folder of YAML or JSON manifests with Services and endpoints, watched for " +
      "changes; repeatable. Replaces the API server: excludes --kubeconfig and --master",
    withConfig: "used",
  },
  {
    name: "endpoints-fallback",
    type: "boolean",
    group: "Cluster",
    default: "false",
    help:
      "use Endpoints objects for Services without an EndpointSlice, and if the API server has " +
      "no EndpointSlices",
    withConfig: "used",
  },
] as const satisfies readonly Flag[];
