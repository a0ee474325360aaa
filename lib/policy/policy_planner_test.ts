import { assert, assertEquals } from "@std/assert";
import {
  IPV4_PLAN,
  podKey,
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
