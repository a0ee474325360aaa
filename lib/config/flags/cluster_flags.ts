/**
 * Flags that say where objects come from.
 *
 * @module
 */
import type { Flag } from "../flag.ts";

/** Rows of the table in `flags.ts`. */
export const CLUSTER_FLAGS = [
  {
    name: "config",
    type: "text",
    group: "Cluster",
    value: "FILE",
    help:
      "configuration file (KubeProxyConfiguration, YAML or JSON); most other flags of kube-proxy " +
      "are ignored when it is given",
    emptyIsAbsent: true,
    withConfig: "used",
  },
  {
    name: "kubeconfig",
    type: "text",
    group: "Cluster",
    value: "FILE",
    field: "clientConnection.kubeconfig",
    help:
      "kubeconfig that says where the API server is and who we are; without it the pod's service " +
      "account is used",
    withConfig: "ignored",
  },
  {
    name: "master",
    type: "text",
    group: "Cluster",
    value: "URL",
    help: "URL of the API server, in place of the one in the kubeconfig",
    emptyIsAbsent: true,
    withConfig: "used",
  },
  {
    name: "kube-api-content-type",
    type: "text",
    group: "Cluster",
    value: "TYPE",
    field: "clientConnection.contentType",
    help: "content type asked of the API server; whatever it says, JSON is what is asked for",
    withConfig: "ignored",
  },
  {
    name: "kube-api-qps",
    type: "number",
    group: "Cluster",
    value: "N",
    field: "clientConnection.qps",
    help:
      "requests a second that the API server is sent at most; accepted without effect, since it is sent " +
      "a handful: the lists and watches, which back off by themselves, and events",
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
    help: "requests that may be sent at once above that rate; accepted without effect",
    withConfig: "ignored",
  },
  {
    name: "config-sync-period",
    type: "duration",
    group: "Cluster",
    field: "configSyncPeriod",
    help:
      "time after which everything known of the cluster is gone through again; accepted, since nothing here depends on it",
    withConfig: "ignored",
  },
  {
    name: "feature-gates",
    type: "gates",
    group: "Cluster",
    value: "NAME=BOOLEAN",
    field: "featureGates",
    help: "feature gates of Kubernetes; those that mean something here are listed in docs/flags.md",
    withConfig: "ignored",
  },
  {
    name: "manifests",
    type: "list",
    group: "Cluster",
    value: "PATH",
    help: "file or folder of YAML manifests to take Services and endpoints from, watched; may be " +
      "given more than once. No API server is asked then, and none may be given",
    withConfig: "used",
  },
  {
    name: "endpoints-fallback",
    type: "boolean",
    group: "Cluster",
    default: "false",
    help:
      "take endpoints from Endpoints objects where a Service has no EndpointSlice, and where the API server has none",
    withConfig: "used",
  },
] as const satisfies readonly Flag[];
