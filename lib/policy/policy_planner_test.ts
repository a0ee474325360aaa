import { assert, assertEquals } from "@std/assert";
import {
  IPV4_PLAN,
  podKey,
  setClusterPolicy,
  setPod,
  setPolicy,
  testPod,
} from "../../tests/support/builders/policy_objects.ts";
import type { PolicyPlan } from "./policy_plan.ts";
import { PolicyPlanner } from "./policy_planner.ts";
import { PolicyState } from "./policy_state.ts";

function start(): { readonly state: PolicyState; readonly planner: PolicyPlanner } {
  const state = new PolicyState();
  const planner = new PolicyPlanner(state, IPV4_PLAN);
  planner.update();
  return { state, planner };
}

/** The plan, up to date. Takes the changes. */
function planOf(planner: PolicyPlanner): PolicyPlan {
  planner.update();
  return planner.plan;
}

const FROM_WEB = { from: [{ podSelector: { matchLabels: { app: "web" } } }] };

Deno.test("PolicyPlanner names lists and sets by content: the same after every start", () => {
  const { state, planner } = start();
  setPolicy(state, "x/p", { podSelector: {}, ingress: [FROM_WEB] });
  setPod(state, "x/a", { address: "10.1.0.1" });
  assertEquals(
    planOf(planner).pods.get(podKey("x/a"))?.ingress,
    [...planOf(planner).lists.keys()][0],
  );
  assertEquals([...planOf(planner).lists.keys()] as string[], ["jz2visirsrkqmj5v"]);
  assertEquals([...planOf(planner).peers.keys()] as string[], ["vvhrpiijyzislqzp"]);
});

/** Counts the lookups of one label of a pod by an event, with this number of policies. */
function looksAtLabels(policies: number): number {
  const { state, planner } = start();
  for (let index = 0; index < policies; index++) {
    const app = { matchLabels: { app: `a-${index}` } };
    setPolicy(state, `x/p-${index}`, {
      podSelector: app,
      ingress: [
        { from: [{ podSelector: app }, { podSelector: app, namespaceSelector: {} }] },
        { from: [{ namespaceSelector: { matchLabels: { team: `t-${index}` } } }] },
      ],
    });
    setPod(state, `x/local-${index}`, {
      address: `10.${index >> 8}.${index & 255}.1`,
      labels: app.matchLabels,
    });
  }
  let looks = 0;
  const labels = new Proxy({ app: "a-1", tier: "front" }, {
    getOwnPropertyDescriptor(target, name) {
      looks++;
      return Reflect.getOwnPropertyDescriptor(target, name);
    },
  });
  planner.update();
  state.setPod(
    podKey("x/new"),
    testPod("x/new", { address: "10.200.0.1", nodeName: "n2", labels }),
  );
  assertEquals(planner.update().members.size, 2);
  return looks;
}

Deno.test("PolicyPlanner names the links of pods while one is isolated, in whichever family", () => {
  const state = new PolicyState();
  const options = { ...IPV4_PLAN, family: "IPv6", podLinks: ["cni0"] } as const;
  const planner = new PolicyPlanner(state, options);
  setPod(state, "x/a", { address: "10.1.0.1" });
  setPod(state, "x/far", { address: "10.1.0.2", nodeName: "n2", labels: { app: "far" } });
  setPolicy(state, "x/far", { podSelector: { matchLabels: { app: "far" } } });
  planner.update();
  assertEquals(planner.plan.sharedLinks, { ingress: [], egress: [] });
  setPolicy(state, "x/p", { podSelector: {}, policyTypes: ["Egress"] });
  assertEquals(planner.update().full, true);
  assertEquals(planner.plan.sharedLinks, { ingress: [], egress: ["cni0"] });
  setPod(state, "x/b", { address: "10.1.0.3" });
  assertEquals(planner.update().full, false, "another isolated pod");
  planner.setOptions({ podLinks: ["cni0", "cni1"] });
  planner.update();
  assertEquals(planner.plan.sharedLinks.egress, ["cni0", "cni1"]);
  for (const pod of ["x/a", "x/b"]) setPod(state, pod, { phase: "Failed" });
  assertEquals(planner.update().full, true);
  assertEquals(planner.plan.sharedLinks, { ingress: [], egress: [] });
});

Deno.test("an event of a pod looks only at selectors that may match it", () => {
  const few = looksAtLabels(2);
  assertEquals(looksAtLabels(1_000), few);
  assert(few > 0 && few < 40, `${few} looks`);
});

Deno.test("with policies of all tiers, a pod touches its elements only, and tiers share their lists", () => {
  const { state, planner } = start();
  const app = { matchLabels: { app: "web" } };
  const peer = { pods: { namespaceSelector: {}, podSelector: app } };
  setClusterPolicy(state, "admin", {
    ingress: [{ action: "Pass", from: [peer] }, { action: "Deny", from: [{ namespaces: {} }] }],
    egress: [{ action: "Deny", to: [{ nodes: { matchLabels: { role: "edge" } } }] }],
  });
  setClusterPolicy(state, "base", {
    tier: "Baseline",
    ingress: [{ action: "Deny", from: [peer] }],
  });
  setPolicy(state, "x/p", { podSelector: app, ingress: [FROM_WEB] });
  for (let index = 0; index < 100; index++) {
    const labels = { app: index % 2 ? "web" : "db" };
    setPod(state, `x/pod-${index}`, { address: `10.1.0.${index}`, labels });
  }
  // Admin before the NetworkPolicy, before the baseline, and both of these; Admin for egress.
  assertEquals([planOf(planner).lists.size, planner.plan.peers.size], [5, 4]);
  const counts = () => {
    const { full, pods, lists, peers, members } = planner.update();
    const moved = [...members.values()].map(({ added, removed }) => added.length + removed.length);
    return [full, pods.size, lists.size, peers.size, moved];
  };
  setPod(state, "y/far", { address: "10.2.0.1", labels: app.matchLabels, nodeName: "n2" });
  assertEquals(counts(), [false, 0, 0, 0, [1, 1]]);
  setPod(state, "x/new", { address: "10.1.0.200", labels: app.matchLabels });
  assertEquals(counts(), [false, 1, 0, 0, [1, 1, 1]]);
  const node = (labels: Readonly<Record<string, string>>) => ({
    metadata: { labels },
    status: { addresses: [{ address: "192.0.2.1" }, { address: "n1.example" }] },
  });
  state.setNode("n1", node({}));
  assertEquals(counts(), [false, 0, 0, 0, []]);
  state.setNode("n1", node({ role: "edge" }));
  assertEquals(counts(), [false, 0, 0, 0, [1]]);
  // The node gets another name: its address stays.
  state.setNode("n1-new", node({ role: "edge" }));
  state.setNode("n1", undefined);
  assertEquals(counts(), [false, 0, 0, 0, []]);
  state.setNamespace("x", { metadata: { name: "x", labels: { team: "a" } } });
  assertEquals(counts(), [false, 0, 0, 0, []], "no policy asks for the label");
});

Deno.test("shared links are closed while a rule of an administrator may deny, not while all accept", () => {
  const state = new PolicyState();
  const planner = new PolicyPlanner(state, { ...IPV4_PLAN, podLinks: ["cni0"] });
  setPod(state, "x/a", { address: "10.1.0.1" });
  const from = [{ namespaces: {} }];
  for (const [action, links] of [["Accept", []], ["Pass", []], ["Deny", ["cni0"]]] as const) {
    setClusterPolicy(state, "p", { ingress: [{ action, from }] });
    assertEquals(planOf(planner).sharedLinks, { ingress: links, egress: [] });
  }
});
