import { assertEquals } from "@std/assert";
import type { PolicyKey, PolicyRule } from "../../lib/policy/policy_plan.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { acceptableRules, PolicyQuarantine } from "./policy_quarantine.ts";

function rule(policy: string, index: number): PolicyRule {
  return { policy: policy as PolicyKey, index };
}

const RULES = [rule("x/a", 0), rule("x/a", 1), rule("x/b", 0)];
const partsOf = ({ policy, index }: PolicyRule) => [`${policy} ${index}`];

Deno.test("PolicyQuarantine leaves out the whole policy that has a refused part, until it is due", () => {
  const clock = new FakeClock();
  const quarantine = new PolicyQuarantine({ clock });
  assertEquals(
    acceptableRules({ rules: RULES }, { refused: quarantine.waitingAt(clock.now()), partsOf })
      .rules,
    RULES,
  );
  quarantine.refuse("x/a 1", "no");
  const { rules, leftOut } = acceptableRules({ rules: RULES }, {
    refused: quarantine.waitingAt(clock.now()),
    partsOf,
  });
  assertEquals(rules, RULES.slice(2));
  assertEquals(quarantine.report([leftOut]).map(({ key, reason }) => `${key} ${reason}`), [
    "x/a no",
  ]);
  clock.stall(1_000);
  assertEquals(
    acceptableRules({ rules: RULES }, { refused: quarantine.waitingAt(clock.now()), partsOf })
      .rules,
    RULES,
  );
});

Deno.test("PolicyQuarantine waits longer after each refusal, and not after one that was settled", () => {
  const clock = new FakeClock();
  const quarantine = new PolicyQuarantine({ clock });
  quarantine.refuse("part", "no");
  clock.stall(1_000);
  quarantine.refuse("part", "no");
  clock.stall(1_000);
  assertEquals(quarantine.waitingAt(clock.now()).has("part"), true);
  quarantine.settle(quarantine.waitingAt(clock.now()));
  assertEquals(quarantine.waitingAt(clock.now()).has("part"), true);
  clock.stall(1_000);
  quarantine.settle(quarantine.waitingAt(clock.now()));
  assertEquals(quarantine.held.has("part"), false);
  quarantine.refuse("part", "no");
  clock.stall(1_000);
  assertEquals(quarantine.waitingAt(clock.now()).has("part"), false);
});

Deno.test("PolicyQuarantine keeps a part that becomes due during the sync that leaves it out", () => {
  const clock = new FakeClock();
  const quarantine = new PolicyQuarantine({ clock });
  quarantine.refuse("x/a 1", "no");
  clock.stall(999);
  const begin = clock.now();
  const refused = quarantine.waitingAt(begin);
  const { leftOut } = acceptableRules({ rules: RULES }, { refused, partsOf });
  clock.stall(1);
  quarantine.settle(refused);
  assertEquals(quarantine.report([leftOut]).map(({ reason }) => reason), ["no"]);
});

Deno.test("PolicyQuarantine forgets the parts of many before it takes more", () => {
  const clock = new FakeClock();
  const quarantine = new PolicyQuarantine({ clock });
  for (let part = 0; part <= 1_000; part++) quarantine.refuse(`${part}`, "no");
  assertEquals([
    quarantine.waitingAt(clock.now()).has("0"),
    quarantine.waitingAt(clock.now()).has("1000"),
  ], [false, true]);
});
