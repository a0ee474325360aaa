/**
 * What another process finds when it compares the kernel with a plan that was applied: nothing.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import fc from "fast-check";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { CompareStage } from "../support/compare_stage.ts";
import { randomServicePlan } from "../support/random_service_plan.ts";
import { isMissing } from "../support/requirement.ts";
import { RULE_MODES } from "../support/rule_modes.ts";

const HISTORIES = 12;

for (const { name, mode, requirements, prepare } of RULE_MODES) {
  Deno.test({
    name: `${name}: after a random history the kernel does not differ from the plan`,
    ignore: isMissing(name, [...requirements()]),
    fn: async () => {
      const draw = fc.record({
        set: fc.array(randomServicePlan, { maxLength: 8 }),
        remove: fc.array(fc.nat(60), { maxLength: 8 }),
      });
      await using stage = await CompareStage.create(mode, prepare);
      const plans = new Map<ServicePortKey, ServicePlan>();
      for (const { set, remove } of fc.sample(draw, HISTORIES)) {
        for (const number of remove) plans.delete(`ns/${number}/TCP` as ServicePortKey);
        for (const plan of set) plans.set(plan.key, plan);
        await stage.sync([...plans.values()]);
        await using other = stage.another();
        assertEquals(await other.compare?.(stage.plan), []);
        const report = await other.repair?.(stage.plan);
        assertEquals([report?.found, report?.left], [[], []]);
      }
    },
  });
}
