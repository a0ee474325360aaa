import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import {
  DIFF_SHARED,
  freshMeaning,
  NftDiffStage,
} from "../../tests/support/stages/nft_diff_stage.ts";
import { randomServicePlan } from "../../tests/support/builders/random_service_plan.ts";
import {
  OwnedPlans,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { diffTable, removeIdleChains } from "./diff.ts";

const step = fc.oneof(
  { arbitrary: randomServicePlan.map((plan) => ({ kind: "set" as const, plan })), weight: 6 },
  {
    arbitrary: fc.integer({ min: 0, max: 60 }).map((name) => ({ kind: "delete" as const, name })),
    weight: 2,
  },
  {
    arbitrary: fc.record({
      kind: fc.constant("shared" as const),
      cidrs: fc.subarray(["172.30.0.0/16", "172.30.0.0/24", "172.31.0.0/16"]),
      addresses: fc.subarray(["192.168.0.2", "127.0.0.1", "192.168.1.2"]),
    }),
    weight: 1,
  },
  { arbitrary: fc.constant({ kind: "sync" as const }), weight: 2 },
  { arbitrary: fc.constant({ kind: "failure" as const }), weight: 1 },
  { arbitrary: fc.constant({ kind: "cleanup" as const }), weight: 1 },
);

Deno.test("diffTable() gives the result of a rendering from nothing, whatever happened before", () => {
  let failures = 0;
  fc.assert(
    fc.property(fc.array(step, { minLength: 5, maxLength: 40, size: "max" }), (steps) => {
      const stage = new NftDiffStage();
      const plans = new OwnedPlans(stage.layout, DIFF_SHARED);
      let shared = DIFF_SHARED;
      for (const step of steps) {
        if (step.kind === "set") {
          plans.set(step.plan);
        } else if (step.kind === "delete") {
          plans.delete(testServicePlan({ name: String(step.name) }).key);
        } else if (step.kind === "shared") {
          shared = testSharedPlan({
            ...DIFF_SHARED,
            serviceCidrs: step.cidrs.map(parseCidr),
            nodePortAddresses: step.addresses.map(parseIpAddress),
          });
          stage.layout.setShared(shared);
        } else if (step.kind === "sync") {
          stage.sync();
        } else if (step.kind === "cleanup") {
          stage.sync();
          stage.take(removeIdleChains(stage.layout, stage.applied));
        } else {
          // It is unknown whether the kernel accepted it, so the table is read.
          const { transaction } = diffTable(stage.layout, stage.applied);
          if (failures++ % 2 === 0) stage.nft.run([...transaction.text()].join(""));
          stage.applied.adopt(stage.reading());
        }
      }
      stage.sync();
      assertEquals(stage.meaning, freshMeaning(plans.values(), shared));
    }),
    { numRuns: 1_000 },
  );
  assert(failures > 500, `only ${failures} failures were tried`);
});
