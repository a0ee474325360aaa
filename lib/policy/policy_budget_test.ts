import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { setPolicy } from "../../tests/support/builders/policy_objects.ts";
import {
  type CountedPolicy,
  MOST_NAMESPACE_PARTS,
  MOST_POLICY_PARTS,
  NamespaceBudget,
} from "./policy_budget.ts";
import type { PolicyKey } from "./policy_plan.ts";
import { PolicyState } from "./policy_state.ts";

const counted = fc.record({
  key: fc.constantFrom("x/a", "x/b", "x/c", "x/d", "x/e", "x/f"),
  created: fc.constantFrom("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", undefined),
  parts: fc.constantFrom(0, 10, 9_000, 15_000, MOST_POLICY_PARTS, MOST_POLICY_PARTS + 1),
  isDeleted: fc.boolean(),
});

/** The oldest policies, as long as they fit. */
function admittedOf(policies: readonly CountedPolicy[]): ReadonlySet<string> {
  const age = ({ created = "", key }: CountedPolicy) => `${created} ${key}`;
  const sorted = policies.toSorted((left, right) => age(left) < age(right) ? -1 : 1);
  let parts = 0;
  const fitting = sorted.findIndex((policy) => {
    parts += 1 + (policy.parts > MOST_POLICY_PARTS ? 0 : policy.parts);
    return parts > MOST_NAMESPACE_PARTS;
  });
  return new Set(sorted.slice(0, fitting < 0 ? sorted.length : fitting).map(({ key }) => key));
}

Deno.test("NamespaceBudget admits the oldest policies after any history, and names those that move", () => {
  fc.assert(fc.property(fc.array(counted, { minLength: 4, maxLength: 30 }), (history) => {
    const budget = new NamespaceBudget();
    const policies = new Map<PolicyKey, CountedPolicy>();
    let before = admittedOf([]);
    for (const { isDeleted, ...each } of history) {
      const policy = { ...each, key: each.key as PolicyKey };
      const moved = budget.change(policy.key, isDeleted ? undefined : policy);
      if (isDeleted) policies.delete(policy.key);
      else policies.set(policy.key, policy);
      const after = admittedOf([...policies.values()]);
      for (const key of policies.keys()) assertEquals(budget.isAdmitted(key), after.has(key), key);
      const others = [...policies.keys()].filter((key) => key !== policy.key);
      const expected = others.filter((key) => before.has(key) !== after.has(key));
      assertEquals(moved.toSorted(), expected.toSorted());
      before = after;
    }
  }));
});

const except = Array.from(
  { length: 18_000 },
  (_, index) => `10.0.${index >> 8}.${index & 255}/32`,
);
const large = {
  podSelector: {},
  ingress: [{ from: [{ ipBlock: { cidr: "10.0.0.0/8", except } }] }],
};

Deno.test("policies beyond the budget of their namespace isolate, allow nothing and say so; others are not affected", () => {
  const state = new PolicyState();
  for (const name of ["x/a", "x/b", "x/c", "x/d", "y/a"]) setPolicy(state, name, large);
  const allowing = () =>
    [...state.policies.values()].filter(({ rules }) => rules.ingress!.IPv4.length > 0)
      .map(({ key }) => key).sort();
  assertEquals<readonly string[]>(allowing(), ["x/a", "x/b", "y/a"]);
  const { problems } = state.policies.get("x/c" as PolicyKey)!;
  assertEquals(problems.map(({ object, path, value }) => [object, path, value]), [
    ["x/c", "spec", "18002 in namespace x"],
  ]);
  assertEquals(problems[0]!.message.includes("50000"), true);
  state.setPolicy("x/a" as PolicyKey, undefined);
  assertEquals<readonly string[]>(allowing(), ["x/b", "x/c", "y/a"]);
});
