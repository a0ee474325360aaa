import { assertEquals } from "@std/assert";
import { IPV4_PLAN, setPod, setPolicy } from "../../tests/support/builders/policy_objects.ts";
import { ConnectionJudge, piecesOf } from "./connection_judge.ts";
import { PolicyPlanner } from "./policy_planner.ts";
import { PolicyState } from "./policy_state.ts";

/** A judge of one policy for each of some pods. */
function judgeOf(count: number): ConnectionJudge {
  const state = new PolicyState();
  for (let index = 0; index < count; index++) {
    const app = `app-${index}`;
    setPod(state, `x/${app}`, { address: `10.1.${index >> 8}.${index & 255}`, labels: { app } });
    setPolicy(state, `x/${app}`, {
      podSelector: { matchLabels: { app } },
      ingress: [{ from: [{ podSelector: { matchLabels: { app } } }] }],
    });
  }
  const planner = new PolicyPlanner(state, IPV4_PLAN);
  const changes = planner.update();
  const judge = new ConnectionJudge();
  for (const _ of judge.takeInSteps(planner.plan, changes));
  return judge;
}

Deno.test("piecesOf() leaves a small plan in one piece, and splits a large one", () => {
  const pieces = (count: number) => [...piecesOf(judgeOf(count).snapshot())].length;
  assertEquals(pieces(0), 1);
  assertEquals(pieces(100), 1);
  // A pod, a list with a rule, and a set with a member: five parts for each policy.
  assertEquals(pieces(1000), 5);
});
