/**
 * kube-relay with one of its features, each for a comparison with kube-relay without it.
 *
 * @module
 */
import { stringify } from "@std/yaml";
import type { ForwardTask } from "./forwarders.ts";
import { type BenchService, servicePort, writeServiceManifest } from "./service_manifest.ts";

/** A feature, and how it is switched on. */
export interface RelayFeature {
  readonly name: string;
  /** @default {neither annotations nor flags} */
  readonly annotations?: (task: ForwardTask) => Readonly<Record<string, string>>;
  readonly flags?: readonly string[];
  /** The endpoint gets a PROXY protocol header. */
  readonly sendsProxyHeader?: boolean;
  /** Whether it is a feature of the whole node that needs root. */
  readonly needsRoot?: boolean;
}

/** Above what a benchmark reaches. */
const MANY = "1000000";

function limited(): Readonly<Record<string, string>> {
  return annotated({
    "max-connections": MANY,
    "max-connections-per-client": MANY,
    "max-new-connections-per-second": MANY,
    "idle-timeout": "10m",
    "max-lifetime": "1h",
  });
}

/** Every feature that may cost CPU for each connection, request or datagram. */
export const RELAY_FEATURES: readonly RelayFeature[] = [
  { name: "least-connections", annotations: () => annotated({ balance: "least-connections" }) },
  { name: "source-hash", annotations: () => annotated({ balance: "source-hash" }) },
  { name: "limits", annotations: limited },
  { name: "limits, 2 workers", annotations: limited, flags: ["--userspace-workers=2"] },
  {
    name: "PROXY v2",
    sendsProxyHeader: true,
    annotations: ({ protocol }) =>
      annotated(
        protocol === "TCP" ? { "send-proxy-protocol": "v2" } : { "send-proxy-protocol-udp": "v2" },
      ),
  },
  {
    name: "health checks",
    annotations: ({ serverPort }) =>
      annotated({
        "health-check": "tcp",
        "health-check-port": String(serverPort),
        "health-check-interval": "1s",
      }),
  },
  { name: "policies", flags: ["--network-policy"], needsRoot: true },
  { name: "service counters", flags: ["--service-counters"] },
  { name: "2 workers", flags: ["--userspace-workers=2"] },
];

/** The address of the endpoint, which is a pod where there are policies. */
const ENDPOINT = "127.0.0.1";

/** The manifests of a Service with a feature. */
export function featureManifest(task: ForwardTask, feature: RelayFeature | undefined): string {
  const { clusterIp, protocol, serverPort, proxyPort } = task;
  const service: BenchService = {
    ...{ name: "bench", clusterIp, protocol, endpoints: [ENDPOINT] },
    endpointPort: feature?.sendsProxyHeader ? proxyPort : serverPort,
    ...(feature?.annotations && { annotations: feature.annotations(task) }),
  };
  return writeServiceManifest(service) + (feature?.needsRoot ? policyManifest(protocol) : "");
}

/** A policy that selects the endpoint and admits the clients by one of several rules. */
function policyManifest(protocol: ForwardTask["protocol"]): string {
  const metadata = { namespace: "default", name: "bench" };
  const labels = { app: "bench" };
  const objects = [
    { apiVersion: "v1", kind: "Namespace", metadata: { name: "default" } },
    {
      ...{ apiVersion: "v1", kind: "Pod", metadata: { ...metadata, labels } },
      spec: { nodeName: "another-node" },
      status: { phase: "Running", podIP: ENDPOINT, podIPs: [{ ip: ENDPOINT }] },
    },
    {
      ...{ apiVersion: "networking.k8s.io/v1", kind: "NetworkPolicy", metadata },
      spec: {
        podSelector: { matchLabels: labels },
        policyTypes: ["Ingress"],
        ingress: [
          { ports: [{ protocol, port: servicePort(protocol) }] },
          { from: [{ podSelector: { matchLabels: { app: "friend" } } }] },
          { from: [{ ipBlock: { cidr: "127.0.0.0/8" } }] },
        ],
      },
    },
  ];
  return objects.map((object) => `---\n${stringify(object)}`).join("");
}

function annotated(values: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [`kube-relay.io/${name}`, value]),
  );
}
