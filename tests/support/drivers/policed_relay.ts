/**
 * A program: relays to the Services of the cases of NetworkPolicy in userspace mode, for the IP family of
 * its argument. Each line of its standard input is a plan of policies and its changes, as
 * `plan_text.ts` writes it; it prints a line once that is in force.
 */
import { ConnectionJudge } from "../../../lib/policy/connection_judge.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { runInSlices } from "../../../lib/os/time_slice.ts";
import { caseServices } from "../stages/policy_case_services.ts";
import { TestUserspaceBackend } from "../stages/userspace_backend.ts";
import { parseIpFamily, readPlan } from "./plan_text.ts";

if (import.meta.main) {
  const family = parseIpFamily(Deno.args[0]);
  const judge = new ConnectionJudge();
  await using relay = new TestUserspaceBackend({ family, judge });
  await relay.backend.start();
  await relay.sync([...caseServices(family).services.values()]);
  // deno-lint-ignore no-console -- the answer
  const answer = () => console.log("in force");
  answer();
  let rest = "";
  for await (const text of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const { plan, changes } = readPlan(line);
      await runInSlices(systemClock, judge.takeInSteps(plan, changes));
      answer();
    }
  }
}
