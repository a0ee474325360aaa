/**
 * A second opinion on NetworkPolicy, written from the API's documentation alone and over the objects as
 * they are: slow, without any index, and without a line of the product's policy code.
 *
 * @module
 */
import ipaddr from "ipaddr.js";
import type { Namespace } from "../../lib/api/kinds/namespace.ts";
import type {
  LabelSelectorSpec,
  NetworkPolicy,
  NetworkPolicyPeer,
  NetworkPolicyPort,
} from "../../lib/api/kinds/network_policy.ts";
import type { Pod } from "../../lib/api/kinds/pod.ts";

/** The objects of a cluster. */
export interface Cluster {
  readonly pods: readonly Pod[];
  readonly namespaces: readonly Namespace[];
  readonly policies: readonly NetworkPolicy[];
}

/** A connection between two addresses. */
export interface OracleConnection {
  readonly from: string;
  readonly to: string;
  readonly protocol?: string;
  readonly port?: number;
}

type Labels = Readonly<Record<string, string>>;
type Direction = "Ingress" | "Egress";

/** Whether the pod with the address of one end consents; `true` for an address of no pod. */
export function consents(
  cluster: Cluster,
  direction: Direction,
  connection: OracleConnection,
): boolean {
  const own = podWith(cluster, direction === "Ingress" ? connection.to : connection.from);
  const other = direction === "Ingress" ? connection.from : connection.to;
  if (own === undefined || own === podWith(cluster, other)) return true;
  const isolating = cluster.policies.filter((policy) =>
    policy.metadata.namespace === own.metadata.namespace &&
    selects(policy.spec.podSelector ?? {}, own.metadata.labels ?? {}, false) &&
    typesOf(policy).includes(direction)
  );
  if (isolating.length === 0) return true;
  for (const { metadata, spec } of isolating) {
    const rules = direction === "Ingress"
      ? (spec.ingress ?? []).map(({ from, ports }) => ({ peers: from, ports }))
      : (spec.egress ?? []).map(({ to, ports }) => ({ peers: to, ports }));
    for (const { peers = [], ports = [] } of rules) {
      // A name has to stand for the port in the pod that is the peer.
      for (const pod of [podWith(cluster, other), undefined]) {
        const isPeer = peers.length === 0 ||
          peers.some((peer) =>
            isOf(cluster, { peer, pod, address: other, namespace: metadata.namespace! })
          );
        const destination = direction === "Ingress" ? own : pod;
        const isPort = ports.length === 0 ||
          ports.some((port) => isPortOf(port, connection, destination));
        if (isPeer && isPort) return true;
      }
    }
  }
  return false;
}

function typesOf({ spec: { policyTypes = [], egress = [] } }: NetworkPolicy): readonly string[] {
  if (policyTypes.length > 0) return policyTypes;
  return egress.length > 0 ? ["Ingress", "Egress"] : ["Ingress"];
}

/** The pod of an address: not a deleted one, then the one created last, and then the last by name. */
function podWith({ pods }: Cluster, address: string): Pod | undefined {
  const rank = ({ metadata }: Pod) =>
    `${metadata.deletionTimestamp === undefined} ${metadata.creationTimestamp ?? ""} ` +
    `${metadata.namespace}/${metadata.name}`;
  return pods.filter((pod) =>
    !pod.spec.hostNetwork && pod.status.phase !== "Succeeded" && pod.status.phase !== "Failed" &&
    !hasEnded(pod) && (pod.status.podIPs ?? []).some(({ ip }) => ip === address)
  ).toSorted((left, right) => rank(left) < rank(right) ? 1 : -1)[0];
}

/** Whether a deleted pod has no container left that runs, or may run again. */
function hasEnded({ metadata, spec, status }: Pod): boolean {
  if (metadata.deletionTimestamp === undefined) return false;
  const { containerStatuses = [], initContainerStatuses = [] } = status;
  if (containerStatuses.length < Math.max(1, spec.containers.length)) return false;
  return [...containerStatuses, ...initContainerStatuses].every(({ state }) => state?.terminated);
}

function isOf(
  cluster: Cluster,
  { peer, pod, address, namespace }: {
    readonly peer: NetworkPolicyPeer;
    readonly pod: Pod | undefined;
    readonly address: string;
    readonly namespace: string;
  },
): boolean {
  const { podSelector, namespaceSelector, ipBlock } = peer;
  if (ipBlock) {
    return !podSelector && !namespaceSelector && isIn(ipBlock.cidr!, address) &&
      !(ipBlock.except ?? []).some((except) => isIn(except, address));
  }
  if (pod === undefined || (!podSelector && !namespaceSelector)) return false;
  const { metadata } = pod;
  const own = cluster.namespaces.find((each) => each.metadata.name === metadata.namespace);
  const name = { "kubernetes.io/metadata.name": metadata.namespace! };
  const labels = { ...own?.metadata.labels, ...name };
  const isInNamespace = namespaceSelector
    ? selects(namespaceSelector, labels, own === undefined)
    : metadata.namespace === namespace;
  return isInNamespace &&
    (podSelector === undefined || selects(podSelector, metadata.labels ?? {}, false));
}

function isIn(cidr: string, address: string): boolean {
  const [network, length] = ipaddr.parseCIDR(cidr);
  const parsed = ipaddr.parse(address);
  return parsed.kind() === network.kind() && parsed.match(network, length);
}

function isPortOf(
  { protocol = "TCP", port, endPort }: NetworkPolicyPort,
  connection: OracleConnection,
  destination: Pod | undefined,
): boolean {
  if (connection.protocol !== protocol || connection.port === undefined) return false;
  if (port === undefined) return true;
  if (typeof port === "number") {
    return port <= connection.port && connection.port <= (endPort ?? port);
  }
  if (destination === undefined) return false;
  const { containers, initContainers = [] } = destination.spec;
  const sidecars = initContainers.filter((each) => each.restartPolicy === "Always");
  const named = [...containers, ...sidecars].flatMap((each) => each.ports ?? []).find((each) =>
    each.name === port && (each.protocol ?? "TCP") === protocol
  );
  return named?.containerPort === connection.port;
}

/** Of a namespace that is not known, absence of a label proves nothing. */
function selects(
  { matchLabels = {}, matchExpressions = [] }: LabelSelectorSpec,
  labels: Labels,
  isPartial: boolean,
): boolean {
  const valueOf = (key: string) => new Map(Object.entries(labels)).get(key);
  for (const [key, value] of Object.entries(matchLabels)) {
    if (valueOf(key) !== value) return false;
  }
  for (const { key, operator, values = [] } of matchExpressions) {
    const value = valueOf(key!);
    if (value === undefined && isPartial) return false;
    if (operator === "In" && (value === undefined || !values.includes(value))) return false;
    if (operator === "NotIn" && value !== undefined && values.includes(value)) return false;
    if (operator === "Exists" && value === undefined) return false;
    if (operator === "DoesNotExist" && value !== undefined) return false;
  }
  return true;
}
