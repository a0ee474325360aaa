import { assertEquals } from "@std/assert";
import { IPV4_PLAN, setPod, setPolicy } from "../../../tests/support/builders/policy_objects.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { PolicyPlanner } from "../../policy/policy_planner.ts";
import { PolicyInputs } from "./policy_inputs.ts";

/** Time passes with each look at it, so that every step ends a slice. */
class HurriedClock extends FakeClock {
  #looks = 0;
  override now = () => this.#looks += 5;
}

Deno.test("PolicyInputs keeps the state still while a plan is made in pieces", async () => {
  const inputs = new PolicyInputs({ clock: new HurriedClock() });
  const planner = new PolicyPlanner(inputs.state, IPV4_PLAN);
  setPod(inputs.state, "default/a", { address: "10.1.0.1", labels: { app: "a" } });
  setPod(inputs.state, "default/b", { address: "10.1.0.2", labels: { app: "b" } });
  setPolicy(inputs.state, "default/p", {
    podSelector: {},
    policyTypes: ["Ingress"],
    ingress: [{ from: [{ podSelector: { matchLabels: { app: "b" } } }] }],
  });
  const planning = inputs.plan(planner);
  const order: string[] = [];
  inputs.whenStill(() => {
    order.push("pod");
    setPod(inputs.state, "default/c", { address: "10.1.0.3", labels: { app: "b" } });
  });
  inputs.whenStill(() => void order.push("view"));
  assertEquals([inputs.state.pods.size, order], [2, []]);
  const { pods } = await planning;
  assertEquals([[...pods].sort(), order], [["default/a", "default/b"] as never, ["pod", "view"]]);
  const { members } = await inputs.plan(planner);
  assertEquals([...members.values()], [{ added: ["10.1.0.3"], removed: [] }] as never);
});

Deno.test("PolicyInputs lets an action begin the next plan, and the rest wait for it", async () => {
  const inputs = new PolicyInputs({ clock: new HurriedClock() });
  const planner = new PolicyPlanner(inputs.state, IPV4_PLAN);
  setPod(inputs.state, "default/a", { address: "10.1.0.1" });
  const order: string[] = [];
  let next: Promise<unknown> = Promise.resolve();
  const first = inputs.plan(planner);
  inputs.whenStill(() => {
    setPod(inputs.state, "default/b", { address: "10.1.0.2" });
    next = inputs.plan(planner).then(() => order.push("planned"));
  });
  inputs.whenStill(() => void order.push("last"));
  await first;
  assertEquals(order, []);
  await next;
  assertEquals(order, ["last", "planned"]);
});
