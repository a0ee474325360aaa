/**
 * The cluster of the benchmark of NetworkPolicy: 100 namespaces, and workloads of ten pods each on many
 * nodes. Rules are described once, for kube-relay's objects and for kube-router's sets. Pure.
 */
import type { NetworkPolicySpec } from "../../../lib/api/kinds/network_policy.ts";
import type { Pod } from "../../../lib/api/kinds/pod.ts";
import type { PodKey, PolicyKey } from "../../../lib/policy/policy_plan.ts";
import { PolicyState } from "../../../lib/policy/policy_state.ts";

/** The node of local pods. */
export const BENCH_NODE = "node-0";
const NAMESPACES = 100;
const TEAMS = 20;
const REPLICAS = 10;
/** Two of 182 pods are local: 110 of 10,000, two of each of 55 workloads. */
const LOCAL_STEP = 182;
const LOCAL_REPLICAS = 2;

/** The size of a cluster. */
export interface ClusterSize {
  readonly pods: number;
  readonly policies: number;
  /** Whether all policies select local pods; otherwise each selects a workload of its own. */
  readonly allLocal?: boolean;
}

/** A pod of the benchmark. */
export interface BenchPod {
  readonly index: number;
  readonly namespace: number;
  readonly workload: number;
  readonly address: string;
  readonly isLocal: boolean;
}

/** A rule of a policy, for any reader. */
export interface BenchRule {
  readonly direction: "ingress" | "egress";
  readonly protocol: "TCP" | "UDP";
  readonly port: number;
  readonly endPort?: number;
  readonly peers:
    | { readonly kind: "pods"; readonly matches: (pod: BenchPod) => boolean }
    | { readonly kind: "block"; readonly cidr: string; readonly except: string };
  /** The entry of `from` or `to`. */
  readonly entry: NonNullable<NonNullable<NetworkPolicySpec["ingress"]>[number]["from"]>[number];
}

/** A policy of the benchmark: five rules for the pods of one workload. */
export interface BenchPolicy {
  readonly name: string;
  readonly namespace: number;
  readonly workload: number;
  readonly rules: readonly BenchRule[];
}

/** Returns the index-th pod. Another generation has another address. */
export function benchPod(index: number, generation = 0): BenchPod {
  const workload = Math.floor(index / REPLICAS);
  return {
    index,
    namespace: workload % NAMESPACES,
    workload,
    address: `10.${16 + 2 * generation + (index >> 16)}.${index >> 8 & 255}.${index & 255}`,
    isLocal: isLocalIndex(index),
  };
}

function isLocalIndex(index: number): boolean {
  return index % LOCAL_STEP < LOCAL_REPLICAS;
}

/** Returns the nth local pod whose list another local pod has too. */
export function benchLocalPod(nth: number, generation = 0): BenchPod {
  return benchPod(nth * LOCAL_STEP, generation);
}

/** Returns all pods of a cluster. */
export function benchPods({ pods }: ClusterSize): readonly BenchPod[] {
  return Array.from({ length: pods }, (_, index) => benchPod(index));
}

/** Returns the name of a namespace. */
export function namespaceName(namespace: number): string {
  return `ns-${namespace}`;
}

/** Returns the key of a pod. */
export function benchPodKey({ index, namespace }: BenchPod): PodKey {
  return `${namespaceName(namespace)}/pod-${index}` as PodKey;
}

/** Returns the object of a pod. */
export function benchPodObject({ index, namespace, workload, address, isLocal }: BenchPod): Pod {
  return {
    metadata: {
      name: `pod-${index}`,
      namespace: namespaceName(namespace),
      labels: {
        app: `app-${workload}`,
        tier: index % 2 === 0 ? "front" : "back",
        role: index % 4 === 0 ? "client" : "other",
      },
    },
    spec: { nodeName: isLocal ? BENCH_NODE : "node-1", containers: [] },
    status: { phase: "Running", podIPs: [{ ip: address }] },
  };
}

/** Returns the policies of a cluster. Those of local workloads come first. */
export function benchPolicies({ pods, policies, allLocal }: ClusterSize): readonly BenchPolicy[] {
  const workloads = [...Array(Math.ceil(pods / REPLICAS)).keys()];
  const isLocal = (workload: number) =>
    Array.from({ length: REPLICAS }, (_, nth) => workload * REPLICAS + nth)
      .some(isLocalIndex);
  const local = workloads.filter(isLocal);
  const order = allLocal ? local : [...local, ...workloads.filter((each) => !isLocal(each))];
  return Array.from({ length: policies }, (_, nth) => {
    const workload = order[nth % order.length]!;
    const namespace = workload % NAMESPACES;
    return { name: `policy-${nth}`, namespace, workload, rules: benchRules(namespace, nth) };
  });
}

function benchRules(namespace: number, nth: number): readonly BenchRule[] {
  const other = (namespace + 1 + nth) % NAMESPACES;
  const team = nth % TEAMS;
  const peer = namespace + NAMESPACES * (nth % REPLICAS);
  const [cidr, except] = ["192.168.0.0/16", `192.168.${nth % 256}.0/24`];
  return [
    {
      ...{ direction: "ingress", protocol: "TCP", port: 8000 + nth % 1000 },
      peers: {
        kind: "pods",
        matches: (pod) => pod.namespace === namespace && pod.index % 2 === 0,
      },
      entry: { podSelector: { matchLabels: { tier: "front" } } },
    },
    {
      ...{ direction: "ingress", protocol: "TCP", port: 9000, endPort: 9010 + nth % 1000 },
      peers: {
        kind: "pods",
        matches: (pod) => pod.namespace % TEAMS === team && pod.index % 4 === 0,
      },
      entry: {
        namespaceSelector: { matchLabels: { team: `team-${team}` } },
        podSelector: { matchLabels: { role: "client" } },
      },
    },
    {
      ...{ direction: "ingress", protocol: "TCP", port: 443 },
      peers: { kind: "block", cidr, except },
      entry: { ipBlock: { cidr, except: [except] } },
    },
    {
      ...{ direction: "ingress", protocol: "TCP", port: 9090 },
      peers: { kind: "pods", matches: (pod) => pod.namespace === other },
      entry: {
        namespaceSelector: {
          matchLabels: { "kubernetes.io/metadata.name": namespaceName(other) },
        },
      },
    },
    {
      ...{ direction: "egress", protocol: "UDP", port: 5300 + nth % 100 },
      peers: { kind: "pods", matches: (pod) => pod.workload === peer },
      entry: { podSelector: { matchLabels: { app: `app-${peer}` } } },
    },
  ];
}

/** Adds or replaces a policy. */
export function setBenchPolicy(state: PolicyState, policy: BenchPolicy): void {
  const { name, workload } = policy;
  const namespace = namespaceName(policy.namespace);
  const rulesOf = (direction: BenchRule["direction"]) =>
    policy.rules.filter((rule) => rule.direction === direction).map((rule) => ({
      ports: [{
        protocol: rule.protocol,
        port: rule.port,
        ...(rule.endPort && { endPort: rule.endPort }),
      }],
      [direction === "ingress" ? "from" : "to"]: [rule.entry],
    }));
  state.setPolicy(`${namespace}/${name}` as PolicyKey, {
    metadata: { name, namespace },
    spec: {
      podSelector: { matchLabels: { app: `app-${workload}` } },
      policyTypes: ["Ingress", "Egress"],
      ingress: rulesOf("ingress"),
      egress: rulesOf("egress"),
    },
  });
}

/** Returns the state of a cluster. */
export function benchState(size: ClusterSize): PolicyState {
  const state = new PolicyState();
  for (let namespace = 0; namespace < NAMESPACES; namespace++) {
    const name = namespaceName(namespace);
    const labels = { team: `team-${namespace % TEAMS}` };
    state.setNamespace(name, { metadata: { name, labels } });
  }
  for (const pod of benchPods(size)) state.setPod(benchPodKey(pod), benchPodObject(pod));
  for (const policy of benchPolicies(size)) setBenchPolicy(state, policy);
  return state;
}
