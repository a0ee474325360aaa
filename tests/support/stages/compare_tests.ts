/**
 * Tests that another process finds no difference when it compares the kernel with an applied plan.
 */
import { assertEquals, assertNotEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { CompareStage } from "./compare_stage.ts";
import { damagedServices } from "../builders/damaged_services.ts";
import { randomServicePlan } from "../builders/random_service_plan.ts";
import { isMissing } from "../requirement.ts";
import type { RuleMode } from "./rule_modes.ts";
import { testServicePlan } from "../builders/service_plans.ts";

const NODE_ADDRESSES = ["192.168.0.2", "192.168.0.3"];

/** Settings that all Services share. Each differs from those before in one of them. */
const SETTINGS: Readonly<Record<string, Partial<SharedPlan>>> = {
  "the first ones": {},
  "node ports on one address": nodePortsOn(NODE_ADDRESSES.slice(0, 1)),
  "node ports on all addresses again": {},
  "node ports on a range of two addresses": nodePortsOn(NODE_ADDRESSES),
  "other ranges of Services": { serviceCidrs: [parseCidr("172.30.0.0/17")] },
  "no range of pods": { localTraffic: { kind: "none" } },
  "pods behind a bridge": { localTraffic: { kind: "byBridge", interfaceName: "cni0" } },
  "the first ones again": {},
};

function nodePortsOn(addresses: readonly string[]): Partial<SharedPlan> {
  return {
    nodePortRanges: { kind: "cidrs", cidrs: [parseCidr("192.168.0.2/32")] },
    nodePortAddresses: addresses.map(parseIpAddress),
  };
}

/** Declares the tests of a mode. */
export function testComparisons(
  { name, mode, requirements, prepare }: RuleMode,
  histories = 12,
): void {
  Deno.test({
    name: `${name}: after a random history with restarts the kernel does not differ from the plan`,
    ignore: isMissing(name, [...requirements()]),
    fn: async () => {
      const draw = fc.record({
        set: fc.array(randomServicePlan, { maxLength: 8 }),
        remove: fc.array(fc.nat(60), { maxLength: 8 }),
        restarts: fc.integer({ min: 0, max: 3 }).map((number) => number === 0),
      });
      await using stage = await CompareStage.create(mode, prepare);
      const plans = new Map<ServicePortKey, ServicePlan>();
      for (const { set, remove, restarts } of fc.sample(draw, histories)) {
        if (restarts) await stage.restart();
        for (const number of remove) plans.delete(`ns/${number}/TCP` as ServicePortKey);
        for (const plan of set) plans.set(plan.key, plan);
        await stage.sync([...plans.values()]);
        await using other = stage.another();
        assertEquals(await other.compare?.(stage.plan), []);
      }
    },
  });

  Deno.test({
    name: `${name}: other settings leave no difference, by a start and while it runs`,
    ignore: isMissing(name, [...requirements()]),
    fn: async () => {
      await using stage = await CompareStage.create(mode, prepare);
      for (const restarts of [true, false]) {
        for (const [what, shared] of Object.entries(SETTINGS)) {
          if (restarts) await stage.restart();
          await stage.sync(damagedServices(), shared);
          await using other = stage.another();
          assertEquals(await other.compare?.(stage.plan), [], `${what}, restarts: ${restarts}`);
        }
      }
    },
  });
}

/** Declares the test of a refusal, which only the tools of rules can be brought to. */
export function testRefusal({ name, mode, requirements, prepare }: RuleMode): void {
  Deno.test({
    name:
      `${name}: an object that the kernel refused is no difference, no repair writes it, and a start leaves it out too`,
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
      await stage.serving.repair(stage.plan);
      assertEquals(await other.compare?.(stage.plan, { quarantined }), []);
      await stage.restart();
      assertEquals((await stage.sync([first!, broken, ...others])).quarantined.length, 1);
      const again = await stage.sync([first!, bad, ...others]);
      assertEquals(again.quarantined, []);
      assertEquals(await other.compare?.(stage.plan), []);
    },
  });
}
