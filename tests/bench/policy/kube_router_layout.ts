/**
 * The cluster of the benchmark in the layout of kube-router: a chain for each local pod and for each
 * policy of the cluster, and sets for each rule. Each sync of kube-router writes all of it again. Pure.
 *
 * @module
 */
import { contentId } from "../../../lib/policy/content_id.ts";
import {
  type BenchPod,
  benchPodKey,
  benchPods,
  benchPolicies,
  type BenchPolicy,
  type BenchRule,
  type ClusterSize,
  namespaceName,
} from "./bench_cluster.ts";

const ALLOWED = "0x10000/0x10000";
const JUDGED = "0x20000/0x20000";
const TOP = ["INPUT", "FORWARD", "OUTPUT"] as const;
const SHARED_CHAINS = ["KUBE-NWPLCY-COMMON", "KUBE-NWPLCY-DEFAULT", "KUBE-NWPLCY-TAIL"];
const COMMON_RULES = [
  "-A KUBE-NWPLCY-COMMON -m conntrack --ctstate INVALID -j DROP",
  "-A KUBE-NWPLCY-COMMON -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
  ...[8, 3, 11].map((type) =>
    `-A KUBE-NWPLCY-COMMON -p icmp -m icmp --icmp-type ${type} -j ACCEPT`
  ),
  `-A KUBE-NWPLCY-DEFAULT -j MARK --set-xmark ${ALLOWED}`,
  `-A KUBE-NWPLCY-TAIL -m mark --mark ${JUDGED} -j ACCEPT`,
];
/** Every set is filled under this name first. */
const SCRATCH = { "hash:ip": "TMP-IP", "hash:net": "TMP-NET" } as const;

type SetType = keyof typeof SCRATCH;

/** What `ipset restore` is given by the first sync. */
export function* kubeRouterSets(size: ClusterSize): Generator<string> {
  const pods = benchPods(size);
  for (const [type, name] of Object.entries(SCRATCH)) yield createLine(name, type as SetType);
  for (const policy of benchPolicies(size)) {
    const targets = pods.filter((pod) => isTarget(policy, pod)).map(({ address }) => address);
    yield* setLines(setName(policy, "target"), "hash:ip", targets);
    for (const [index, { peers }] of policy.rules.entries()) {
      const name = setName(policy, `${index}`);
      if (peers.kind === "block") {
        yield* setLines(name, "hash:net", [peers.cidr, `${peers.except} nomatch`]);
      } else {
        yield* setLines(name, "hash:ip", pods.filter(peers.matches).map(({ address }) => address));
      }
    }
  }
  for (const name of Object.values(SCRATCH)) yield `destroy ${name}\n`;
}

/** What `iptables-restore` is given by the first sync. */
export function* kubeRouterRules(size: ClusterSize): Generator<string> {
  const policies = benchPolicies(size);
  const local = benchPods(size).filter(({ isLocal }) => isLocal);
  yield "*filter\n";
  const chains = [
    ...TOP.map((hook) => `KUBE-ROUTER-${hook}`),
    ...SHARED_CHAINS,
    ...policies.map(policyChain),
    ...local.map(podChain),
  ];
  for (const chain of chains) yield `:${chain} - [0:0]\n`;
  for (const hook of TOP) yield `-I ${hook} 1 ${comment("top")} -j KUBE-ROUTER-${hook}\n`;
  yield "-A KUBE-ROUTER-INPUT -d 10.96.0.0/12 -j RETURN\n";
  for (const rule of COMMON_RULES) yield `${rule}\n`;
  for (const policy of policies) yield* policyRules(policy);
  const byWorkload = Map.groupBy(policies, ({ workload }) => workload);
  for (const pod of local) yield* podRules(pod, byWorkload.get(pod.workload) ?? []);
  for (const hook of TOP) {
    yield `-A KUBE-ROUTER-${hook} -j KUBE-NWPLCY-TAIL\n`;
    yield `-A KUBE-ROUTER-${hook} -m mark --mark ${JUDGED} -j ACCEPT\n`;
  }
  yield "COMMIT\n";
}

function* setLines(name: string, type: SetType, entries: readonly string[]): Generator<string> {
  const scratch = SCRATCH[type];
  yield createLine(name, type);
  yield `flush ${scratch}\n`;
  for (const entry of entries) {
    const [address, ...flags] = entry.split(" ");
    yield `add ${scratch} ${[address, "timeout", "0", ...flags].join(" ")}\n`;
  }
  yield `swap ${scratch} ${name}\n`;
}

function createLine(name: string, type: SetType): string {
  return `create ${name} ${type} family inet hashsize 1024 maxelem 65536 timeout 0 -exist\n`;
}

/** Each allowed match twice: it marks the packet, and leaves the chain. */
function* policyRules(policy: BenchPolicy): Generator<string> {
  const chain = policyChain(policy);
  const target = setName(policy, "target");
  for (const [index, rule] of policy.rules.entries()) {
    const peer = setName(policy, `${index}`);
    const [source, destination] = rule.direction === "ingress" ? [peer, target] : [target, peer];
    const sets = `-m set --match-set ${source} src -m set --match-set ${destination} dst`;
    const note = comment(`allowed by ${namespaceName(policy.namespace)}/${policy.name}`);
    const match = `-A ${chain} ${note} ${sets} ${portMatch(rule)}`;
    yield `${match} -j MARK --set-xmark ${ALLOWED}\n`;
    yield `${match} -m mark --mark ${ALLOWED} -j RETURN\n`;
  }
}

function portMatch({ protocol, port, endPort }: BenchRule): string {
  const name = protocol.toLowerCase();
  return `-p ${name} -m ${name} --dport ${endPort === undefined ? port : `${port}:${endPort}`}`;
}

function* podRules(pod: BenchPod, policies: readonly BenchPolicy[]): Generator<string> {
  const { address } = pod;
  const chain = podChain(pod);
  const key = benchPodKey(pod);
  const rule = (text: string) => `-A ${chain} ${comment(`of ${key}`)} ${text}\n`;
  yield rule("-j KUBE-NWPLCY-COMMON");
  yield rule(`-m addrtype --src-type LOCAL -d ${address} -j ACCEPT`);
  if (policies.length === 0) {
    yield rule(`-s ${address} -j KUBE-NWPLCY-DEFAULT`);
    yield rule(`-d ${address} -j KUBE-NWPLCY-DEFAULT`);
  }
  for (const policy of policies) yield rule(`-j ${policyChain(policy)}`);
  yield rule(`-m mark ! --mark ${ALLOWED} -m limit --limit 10/min -j NFLOG --nflog-group 100`);
  yield rule(`-m mark ! --mark ${ALLOWED} -j REJECT`);
  yield rule("-j MARK --set-xmark 0x0/0x10000");
  yield rule(`-j MARK --set-xmark ${JUDGED}`);
  const jumps = [
    ...["FORWARD", "OUTPUT"].map((hook) => `${hook} -d ${address}`),
    `FORWARD -m physdev --physdev-is-bridged -d ${address}`,
    ...TOP.map((hook) => `${hook} -s ${address}`),
    `FORWARD -m physdev --physdev-is-bridged -s ${address}`,
  ];
  for (const jump of jumps) yield `-A KUBE-ROUTER-${jump} ${comment(`to ${key}`)} -j ${chain}\n`;
}

function isTarget({ workload }: BenchPolicy, pod: BenchPod): boolean {
  return pod.workload === workload;
}

function comment(text: string): string {
  return `-m comment --comment "${text}"`;
}

function podChain(pod: BenchPod): string {
  return `KUBE-POD-FW-${hash(benchPodKey(pod))}`;
}

function policyChain({ name, namespace }: BenchPolicy): string {
  return `KUBE-NWPLCY-${hash(`${namespaceName(namespace)}/${name}`)}`;
}

function setName({ name, namespace }: BenchPolicy, part: string): string {
  const id = hash(`${namespaceName(namespace)}/${name}/${part}`);
  return `${part === "target" ? "KUBE-DST" : "KUBE-SRC"}-${id}`;
}

function hash(text: string): string {
  return contentId(text).toUpperCase();
}
