/**
 * The form of the cases of NetworkPolicy, which any executor can run: the evaluator, traced rules, real
 * packets.
 */
import { objectKey } from "../../lib/api/kind.ts";
import type {
  ClusterNetworkPolicy,
  ClusterNetworkPolicySpec,
} from "../../lib/api/kinds/cluster_network_policy.ts";
import type { Namespace } from "../../lib/api/kinds/namespace.ts";
import type { NetworkPolicy, NetworkPolicySpec } from "../../lib/api/kinds/network_policy.ts";
import type { Pod } from "../../lib/api/kinds/pod.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Protocol } from "../../lib/net/port.ts";
import type { PodKey, PolicyKey } from "../../lib/policy/policy_plan.ts";
import type { PolicyState } from "../../lib/policy/policy_state.ts";

/** The namespaces, each with the label `ns`. */
export const CASE_NAMESPACES = ["x", "y", "z"] as const;
/** The pods of each namespace, each with the label `pod`. */
export const CASE_PODS = ["a", "b", "c"] as const;
/** The ports of each pod, open for every protocol, with names such as `serve-80-tcp`. */
export const CASE_PORTS = [80, 81] as const;

/** A pod: `namespace/name`. In a pattern, `*` stands for any of either. */
export type CasePod = string;

/** One case: steps in order, each with the whole table of connections. */
export interface PolicyCase {
  readonly name: string;
  /** The line of the case in Kubernetes' own suite, test/e2e/network/netpol/network_policy.go. */
  readonly upstream?: number;
  readonly steps: readonly PolicyStep[];
}

/** The policies of a step, and the connections that are expected. */
export interface PolicyStep {
  readonly policies?: readonly CasePolicy[];
  readonly clusterPolicies?: readonly CaseClusterPolicy[];
  /** The labels of Nodes by the pods whose addresses they have: a server answers there. */
  readonly nodes?: Readonly<Record<CasePod, Readonly<Record<string, string>>>>;
  /** Labels besides the usual ones, by `namespace/name` or by name of the namespace. */
  readonly labels?: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Pods that are being deleted and whose address another pod has by now. */
  readonly formerPods?: readonly FormerPod[];
  readonly expected: readonly PolicyExpectation[];
}

/** A pod with a deletion timestamp, which a finalizer may hold for ever. */
interface FormerPod {
  /** Not one of {@linkcode casePods}. */
  readonly key: CasePod;
  /** The pod that has its address now. */
  readonly holder: CasePod;
  readonly labels?: Readonly<Record<string, string>>;
  /** The holder is from 2026-01-02. */
  readonly created: string;
  /** Its containers have ended; its phase is Running all the same. */
  readonly isEnded: boolean;
}

/** A policy of a step. `spec` may need the addresses that an executor gave to the pods. */
export interface CasePolicy {
  readonly namespace: string;
  readonly name: string;
  readonly spec: NetworkPolicySpec | ((addresses: CaseAddresses) => NetworkPolicySpec);
}

/** A policy of the administrator. */
export interface CaseClusterPolicy {
  readonly name: string;
  readonly spec:
    | ClusterNetworkPolicySpec
    | ((addresses: CaseAddresses) => ClusterNetworkPolicySpec);
}

/** The addresses of an executor. */
export interface CaseAddresses {
  addressOf(pod: CasePod): IpAddress;
  /** The block that holds just this pod. */
  blockOf(pod: CasePod): string;
  /** A block that holds every pod. */
  readonly range: string;
}

/** The expected connections on one port. Pods without a row reach each other; later rows win. */
export interface PolicyExpectation {
  readonly protocol: Protocol;
  readonly port: number;
  readonly rows: readonly (readonly [from: CasePod, to: CasePod, isConnected: boolean])[];
}

/** Every pod of the cases. */
export function casePods(): readonly CasePod[] {
  return CASE_NAMESPACES.flatMap((namespace) => CASE_PODS.map((pod) => `${namespace}/${pod}`));
}

/** Whether a connection is expected. Between a pod and itself nothing is expected. */
export function isExpected(
  { rows }: PolicyExpectation,
  { from, to }: { readonly from: CasePod; readonly to: CasePod },
): boolean {
  const last = rows.findLast((row) => fits(row[0], from) && fits(row[1], to));
  return last?.[2] ?? true;
}

type CasePodObject = Omit<FormerPod, "isEnded"> & Partial<Pick<FormerPod, "isEnded">>;

/** The objects of a step. */
export function caseObjects(
  { policies = [], clusterPolicies = [], nodes = {}, labels = {}, formerPods = [] }: PolicyStep,
  addresses: CaseAddresses,
): {
  readonly namespaces: readonly Namespace[];
  readonly pods: readonly Pod[];
  readonly policies: readonly NetworkPolicy[];
  readonly clusterPolicies: readonly ClusterNetworkPolicy[];
  readonly nodes: readonly Parameters<PolicyState["setNode"]>[1][];
} {
  return {
    namespaces: CASE_NAMESPACES.map((name) => ({
      metadata: { name, labels: { ns: name, ...labels[name] } },
    })),
    pods: [
      ...casePods().map((key) => ({ key, holder: key, created: "2026-01-02T00:00:00Z" })),
      ...formerPods,
    ].map(({ key, holder, created, ...former }: CasePodObject) => {
      const [namespace = "", name = ""] = key.split("/");
      const isFormer = key !== holder;
      const ports = CASE_PORTS.flatMap((containerPort) =>
        ["TCP", "UDP", "SCTP"].map((protocol) => ({
          name: `serve-${containerPort}-${protocol.toLowerCase()}`,
          containerPort,
          protocol,
        }))
      );
      const address = addresses.addressOf(holder);
      return {
        metadata: {
          name,
          namespace,
          labels: { pod: name, ...labels[key], ...former.labels },
          creationTimestamp: created,
          ...(isFormer && { deletionTimestamp: "2026-01-04T00:00:00Z" }),
        },
        spec: { nodeName: "n1", containers: [{ ports }] },
        status: {
          phase: "Running",
          podIP: address,
          podIPs: [{ ip: address }],
          containerStatuses: [former.isEnded ? { state: { terminated: { exitCode: 0 } } } : {}],
        },
      };
    }),
    policies: policies.map(({ namespace, name, spec }) => ({
      metadata: { namespace, name },
      spec: typeof spec === "function" ? spec(addresses) : spec,
    })),
    clusterPolicies: clusterPolicies.map(({ name, spec }) => ({
      metadata: { name },
      spec: typeof spec === "function" ? spec(addresses) : spec,
    })),
    nodes: Object.entries(nodes).map(([holder, labels]) => ({
      metadata: { labels },
      status: {
        addresses: [{ address: "node.example" }, { address: addresses.addressOf(holder) }],
      },
    })),
  };
}

/** Brings a state to the objects of a step. */
export function applyStep(
  state: PolicyState,
  { namespaces, pods, policies, clusterPolicies, nodes }: ReturnType<typeof caseObjects>,
): void {
  const kept = new Set([...policies, ...clusterPolicies].map(objectKey));
  for (const { key, tier } of [...state.policies.values()].filter(({ key }) => !kept.has(key))) {
    if (tier === "NetworkPolicy") state.setPolicy(key, undefined);
    else state.setClusterPolicy(key, undefined);
  }
  for (const policy of clusterPolicies) {
    state.setClusterPolicy(objectKey(policy) as PolicyKey, policy);
  }
  for (const index of [0, 1, 2]) state.setNode(`${index}`, nodes[index]);
  for (const policy of policies) state.setPolicy(objectKey(policy) as PolicyKey, policy);
  const wanted = new Set(pods.map((pod) => objectKey(pod)));
  for (const key of [...state.pods.keys()]) if (!wanted.has(key)) state.setPod(key, undefined);
  for (const pod of pods) state.setPod(objectKey(pod) as PodKey, pod);
  for (const namespace of namespaces) state.setNamespace(namespace.metadata.name, namespace);
}

function fits(pattern: CasePod, pod: CasePod): boolean {
  if (pattern === "*") return true;
  const [namespace, name] = pattern.split("/");
  const [ownNamespace, ownName] = pod.split("/");
  return (namespace === "*" || namespace === ownNamespace) && (name === "*" || name === ownName);
}
