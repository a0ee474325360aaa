/**
 * Pods, namespaces and policies change fifty times a second under traffic that the changes do not
 * concern: it always passes, and what is denied never does once the sync is done. With
 * `KUBE_RELAY_SABOTAGE=1` a rule of another program lets denied packets pass, and the test has to fail.
 * `KUBE_RELAY_SEED` repeats a run.
 */
import { assert, assertEquals } from "@std/assert";
import type { ClusterNetworkPolicySpec } from "../../lib/api/kinds/cluster_network_policy.ts";
import type { NetworkPolicySpec } from "../../lib/api/kinds/network_policy.ts";
import type { PolicyState } from "../../lib/policy/policy_state.ts";
import { caseAddresses } from "../policy/case_addresses.ts";
import { casePods } from "../policy/policy_case.ts";
import {
  podKey,
  policyKey,
  setClusterPolicy,
  setPod,
  setPolicy,
} from "../support/builders/policy_objects.ts";
import { chooseSeed, randomFrom } from "../support/builders/seeded_random.ts";
import { PolicyCaseScene } from "../support/stages/policy_case_scene.ts";
import { clusterIpOf } from "../support/stages/policy_case_services.ts";
import { nodeOf } from "../support/stages/policy_case_topology.ts";
import { POLICY_WIRES, type PolicyWire } from "../support/stages/policy_wires.ts";

const SECONDS = 10;
const CHANGES_PER_SECOND = 50;
const LOAD_PER_SECOND = 40;
const FAKE_PODS = 20;
const RANDOM_POLICIES = 10;

const A = { matchLabels: { pod: "a" } };
const FAKE = { matchLabels: { kind: "fake" } };

/** Policies that come and go. None of them denies what must pass, nor allows what must not. */
const HARMLESS: readonly (readonly [namespace: string, spec: NetworkPolicySpec])[] = [
  ["x", { podSelector: A, ingress: [{ from: [{ podSelector: FAKE }] }] }],
  ["x", { podSelector: A, ingress: [{ from: [{ podSelector: FAKE, namespaceSelector: {} }] }] }],
  ["x", {
    podSelector: {},
    ingress: [{ from: [{ namespaceSelector: { matchLabels: { ns: "y" } } }] }],
  }],
  ["x", {
    podSelector: {},
    policyTypes: ["Egress"],
    egress: [{ ports: [{}, { protocol: "UDP" }] }],
  }],
  ["y", { podSelector: A, policyTypes: ["Egress"], egress: [{ to: [{ namespaceSelector: {} }] }] }],
  ["y", {
    podSelector: A,
    ingress: [{ from: [{ podSelector: FAKE }], ports: [{ port: "http" }] }],
  }],
  ["z", { podSelector: FAKE, policyTypes: ["Ingress", "Egress"] }],
  ["z", {
    podSelector: {},
    policyTypes: ["Egress"],
    egress: [{ to: [{ ipBlock: { cidr: "0.0.0.0/0", except: ["203.0.113.0/24"] } }] }],
  }],
];

const fromNamespaces = (turn: object) => [{
  namespaces: { matchLabels: { ns: "z" }, matchExpressions: [{ key: "turn", ...turn }] },
}];

const inX = (podSelector: object) => ({
  pods: { namespaceSelector: { matchLabels: { ns: "x" } }, podSelector },
});

/**
 * Nothing of namespace `z` reaches `x`, by another rule whenever a label of `z` changes; to `x/c`, only
 * while no NetworkPolicy isolates it for ingress, which then denies as well.
 */
const CLUSTER: readonly Partial<ClusterNetworkPolicySpec>[] = [{
  subject: inX({ matchLabels: { pod: "b" } }),
  ingress: [
    { action: "Deny", from: fromNamespaces({ operator: "In", values: ["1"] }) },
    { action: "Pass", from: [{ pods: { namespaceSelector: {}, podSelector: FAKE } }] },
    { action: "Deny", from: fromNamespaces({ operator: "NotIn", values: ["1"] }) },
    { action: "Accept", from: [{ namespaces: {} }] },
  ],
}, {
  tier: "Baseline",
  subject: inX({ matchLabels: { pod: "c" } }),
  ingress: [{ action: "Deny", from: [{ namespaces: { matchLabels: { ns: "z" } } }] }],
}];

/** Each of them has one of two names. */
function setCluster(state: PolicyState, number: number, turn: number): void {
  setClusterPolicy(state, `c${number}-${turn}`, CLUSTER[number]!);
  state.setClusterPolicy(policyKey(`c${number}-${1 - turn}`), undefined);
}

function pick<T>(values: readonly T[], random: () => number): T {
  return values[Math.floor(random() * values.length)]!;
}

function setRealPod(state: PolicyState, key: string, more: Record<string, string> = {}): void {
  const [, pod = ""] = key.split("/");
  const address = [caseAddresses("IPv4"), caseAddresses("IPv6")]
    .map(({ addressOf }) => addressOf(key)).join();
  setPod(state, key, { address, labels: { pod, ...more }, nodeName: nodeOf(key) });
}

/** One change of what traffic does not depend on. */
function change(state: PolicyState, random: () => number): void {
  const kind = random();
  if (kind < 0.5) {
    const number = Math.floor(random() * FAKE_PODS);
    const key = `${"xyz"[number % 3]}/f${number}`;
    if (random() < 0.4) {
      state.setPod(podKey(key), undefined);
      return;
    }
    setPod(state, key, {
      address: `192.0.2.${100 + number},2001:db8::${100 + number}`,
      labels: { kind: "fake", pod: pick(["a", "b", "c"], random) },
      nodeName: pick(["n1", "n2"], random),
      ports: { http: pick([80, 81], random) },
    });
  } else if (kind < 0.8) {
    const number = Math.floor(random() * RANDOM_POLICIES);
    const [namespace, spec] = HARMLESS[number % HARMLESS.length]!;
    const key = `${namespace}/c${number}`;
    if (state.policies.has(policyKey(key))) state.setPolicy(policyKey(key), undefined);
    else setPolicy(state, key, spec);
  } else if (kind < 0.85) {
    setCluster(state, pick([0, 1], random), pick([0, 1], random));
  } else if (kind < 0.9) {
    const name = pick(["x", "y", "z"], random);
    const labels = { ns: name, turn: pick(["1", "2"], random) };
    state.setNamespace(name, { metadata: { name, labels } });
  } else {
    setRealPod(state, pick(casePods(), random), { turn: pick(["1", "2"], random) });
  }
}

/** Sets up the policies that hold all the time: `x/a` is reachable only from namespace `y`. */
function setUp(state: PolicyState): void {
  for (const name of ["x", "y", "z"]) {
    state.setNamespace(name, { metadata: { name, labels: { ns: name } } });
  }
  for (const key of casePods()) setRealPod(state, key);
  for (const number of CLUSTER.keys()) setCluster(state, number, 0);
  setPolicy(state, "x/base", {
    podSelector: A,
    ingress: [{ from: [{ namespaceSelector: { matchLabels: { ns: "y" } } }] }],
  });
}

/** `y/b` is open to `x/c`, or closed. */
function toggle(state: PolicyState, isOpen: boolean): void {
  setPolicy(state, "y/toggle", {
    podSelector: { matchLabels: { pod: "b" } },
    ingress: isOpen ? [{ from: [{ namespaceSelector: { matchLabels: { ns: "x" } } }] }] : [],
  });
}

/** Changes at an even pace, each with the next sync. Returns how many checks of the toggle there were. */
async function churn(scene: PolicyCaseScene, { openDenials }: PolicyWire): Promise<number> {
  const random = randomFrom(chooseSeed());
  const address = caseAddresses("IPv4").addressOf("y/b");
  const target = { protocol: "TCP", port: 80, address } as const;
  const start = performance.now();
  const changes = SECONDS * CHANGES_PER_SECOND;
  let checks = 0;
  for (let made = 0; made < changes;) {
    const due = Math.floor((performance.now() - start) * CHANGES_PER_SECOND / 1_000) + 1;
    const batch = Math.min(due, changes) - made;
    for (let index = 0; index < batch; index++) change(scene.state, random);
    made += batch;
    const isOpen = checks++ % 2 === 1;
    toggle(scene.state, isOpen);
    await scene.sync();
    const answer = await scene.client("x/c").who(target, 5_000);
    assertEquals(answer, isOpen ? "y/b" : "refused", `after ${made} changes`);
    if (made > changes / 2 && Deno.env.get("KUBE_RELAY_SABOTAGE") === "1") {
      await openDenials(scene.node("n1"));
    }
  }
  return checks;
}

/** Connections that always pass: on one bridge, between the nodes, and out of a namespace that changes. */
const PASSING = [["y/a", "x/a"], ["y/c", "x/a"], ["x/b", "z/c"]] as const;
/** And those that never do. */
const DENIED = [["z/a", ["x/a"]], ["z/c", ["x/a"]], ["z/b", ["x/b", "x/c"]]] as const;

async function startLoads(scene: PolicyCaseScene): Promise<void> {
  for (const [from, to] of PASSING) {
    const address = clusterIpOf(to, "IPv4");
    const targets = (["TCP", "UDP"] as const).map((protocol) => ({
      protocol,
      port: 80,
      address,
      expect: [to],
    }));
    await scene.client(from).startLoad(targets, { perSecond: LOAD_PER_SECOND });
  }
  for (const [from, to] of DENIED) {
    const targets = to.map((key) => {
      const address = caseAddresses("IPv4").addressOf(key);
      return { protocol: "TCP", port: 80, address, expect: [] } as const;
    });
    await scene.client(from).startLoad(targets, { perSecond: LOAD_PER_SECOND, timeoutMs: 500 });
  }
}

async function checkLoads(scene: PolicyCaseScene): Promise<void> {
  for (const [from] of PASSING) {
    const { attempts, failures, examples } = await scene.client(from).stopLoad();
    assert(attempts > SECONDS * LOAD_PER_SECOND / 2);
    assertEquals(failures, 0, `${from}: ${examples.join("\n")}`);
  }
  for (const [from] of DENIED) {
    const { attempts, answered, failures } = await scene.client(from).stopLoad();
    assert(attempts > SECONDS * LOAD_PER_SECOND / 2);
    assertEquals([answered, failures], [0, attempts], `${from} was let through`);
  }
}

for (const wire of POLICY_WIRES) {
  Deno.test({
    name: `churn of pods and policies by ${wire.name}: no packet is lost, and none let through`,
    ignore: wire.ignore,
    fn: async () => {
      await using scene = await PolicyCaseScene.create(wire.nodes);
      setUp(scene.state);
      await scene.sync();
      await startLoads(scene);
      const checks = await churn(scene, wire);
      await checkLoads(scene);
      assertEquals(await scene.differences(), []);
      assert(checks > SECONDS, `only ${checks} syncs`);
    },
  });
}
