import { assertEquals } from "@std/assert";
import { testProxyPlan } from "../../tests/support/builders/service_plans.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import fc from "fast-check";
import { IPVS_DAMAGE } from "../../tests/support/stages/damage/ipvs_damage.ts";
import { damagedServices } from "../../tests/support/builders/damaged_services.ts";
import { ipvsPlanOf, IpvsStage } from "../../tests/support/stages/ipvs_stage.ts";
import { randomServicePlan } from "../../tests/support/builders/random_service_plan.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane.ts";

/** Does to a machine in memory what a line would do to the kernel. */
function damage({ kernel }: IpvsStage["machine"], text: string): void {
  for (const line of text.split("\n")) {
    const [tool = "", ...words] = line.split(" ");
    if (line === "ip link del kube-ipvs0") kernel.hasDevice = false;
    else if (tool === "ip" || tool === "ipset" || tool === "ipvsadm") {
      kernel.take(tool, words.join(" "));
    } else throw new Error(`Cannot do '${line}' to a machine in memory`);
  }
}

function textOf({ kind, object, name, key }: DataPlaneDifference): string {
  const service = key === undefined ? "" : ` [${key.replace(/[:/](TCP|UDP)$/, "")}]`;
  return `${kind} ${object} ${name}${service}`;
}

Deno.test("compare() names each damage to objects of ipvs mode, and repair() corrects nothing else", async (t) => {
  await using stage = await IpvsStage.started();
  const nodePortAddresses = [parseIpAddress("198.51.100.1")];
  const plan = testProxyPlan(damagedServices(), { shared: { nodePortAddresses } });
  await stage.sync(plan);
  const foreign = "-A -t 198.51.100.7:80 -s wlc";
  stage.machine.kernel.take("ipvsadm", foreign);
  const before = stage.machine.dump();
  for (const row of IPVS_DAMAGE) {
    await t.step(row.name, async () => {
      await using other = new IpvsStage(stage.machine);
      damage(stage.machine, row.damage);
      const found = await other.backend.compare?.(plan) ?? [];
      assertEquals(found.map(textOf).sort(), [...row.found].sort());
      const writes = await stage.writesOf(async () => {
        await stage.backend.repair(plan);
      });
      assertEquals(await other.backend.compare?.(plan), []);
      assertEquals(writes.length <= 2, true, writes.join());
      assertEquals(stage.machine.dump(), before);
    });
  }
});

Deno.test("compare() finds no difference after any applied plan", async () => {
  const services = fc.array(randomServicePlan, { maxLength: 12 });
  await fc.assert(
    fc.asyncProperty(services, services, async (first, second) => {
      await using stage = await IpvsStage.started();
      for (const plans of [first, second]) {
        const plan = ipvsPlanOf(...new Map(plans.map((each) => [each.key, each])).values());
        await stage.sync(plan);
        await using other = new IpvsStage(stage.machine);
        assertEquals(await other.backend.compare?.(plan), []);
      }
    }),
    { numRuns: 20 },
  );
});
