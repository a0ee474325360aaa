/**
 * Tests that another process finds no difference when it compares the kernel with an applied plan.
 *
 * @module
 */
import { assertEquals, assertNotEquals } from "@std/assert";
import fc from "fast-check";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { CompareStage } from "../support/stages/compare_stage.ts";
import { damagedServices } from "../support/builders/damaged_services.ts";
import { randomServicePlan } from "../support/builders/random_service_plan.ts";
import { isMissing } from "../support/requirement.ts";
import { RULE_MODES } from "../support/stages/rule_modes.ts";
import { testServicePlan } from "../support/builders/service_plans.ts";

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

for (const { name, mode, requirements, prepare } of RULE_MODES) {
  Deno.test({
    name: `${name}: an object that the kernel refused is no difference, and no repair writes it`,
    ignore: isMissing(name, [...requirements()]),
    fn: async () => {
      await using stage = await CompareStage.create(mode, prepare);
      const [first, ...others] = damagedServices();
      const bad = testServicePlan({ name: "bad", clusterIp: "172.30.9.9" });
      // Parsed input can never be refused; this simulates a bug of kube-relay.
      const broken = { ...bad, clusterIp: "172.30.9.300" as never };
      const { quarantined } = await stage.sync([first!, broken, ...others]);
      assertEquals(quarantined.map(({ key }) => key), [bad.key]);
      await using other = stage.another();
      assertNotEquals(await other.compare?.(stage.plan), []);
      assertEquals(await other.compare?.(stage.plan, { quarantined }), []);
      const report = await other.repair?.(stage.plan, { quarantined });
      assertEquals([report?.found, report?.left], [[], []]);
      const again = await stage.sync([first!, bad, ...others]);
      assertEquals(again.quarantined, []);
      assertEquals(await other.compare?.(stage.plan), []);
    },
  });
}
