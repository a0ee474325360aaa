/**
 * Tests that every kind of damage to a mode's objects in the kernel is found, named and repaired,
 * and that nothing else is touched: rules keep their handles and counters, and foreign objects stay
 * byte for byte the same.
 */
import { assert, assertEquals } from "@std/assert";
import {
  DAMAGED_MODES,
  type DamagedMode,
  type DamageRow,
} from "../support/stages/damage/damaged_modes.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { CompareStage } from "../support/stages/compare_stage.ts";
import { damagedServices } from "../support/builders/damaged_services.ts";
import { testNeeding } from "../support/requirement.ts";
import { testServicePlan } from "../support/builders/service_plans.ts";

/** The test of a mode: its whole table, then one more change by the process that serves. */
function testDamage(mode: DamagedMode): void {
  const test = testNeeding(mode.name, [...mode.requirements()]);
  test(`${mode.name}: diff names each damage, and a repair corrects nothing else`, async (t) => {
    await using stage = await CompareStage.create(mode.mode, mode.prepare);
    await stage.sync(damagedServices());
    await mode.finish(stage.node);
    for (const row of mode.rows) {
      await t.step(row.name, () => damageAndMend(stage, mode, row));
    }
    await t.step("the serving process's record is still correct", () => syncOn(stage));
  });
}

async function damageAndMend(
  stage: CompareStage,
  mode: DamagedMode,
  { damage, found }: DamageRow,
): Promise<void> {
  const before = await mode.objects(stage.node);
  await mode.damage(stage.node, damage);
  await using other = stage.another();
  const differences = await other.compare?.(stage.plan) ?? [];
  assertEquals(differences.map(textOf).sort(), [...found].sort());
  const writesBefore = mode.writes(stage.calls);
  await stage.serving.repair(stage.plan);
  assertEquals(await other.compare?.(stage.plan), []);
  assert(mode.writes(stage.calls) - writesBefore <= 3, "a few writes are enough for any damage");
  const after = await mode.objects(stage.node);
  const touched = mode.touchedBy(differences);
  assertEquals([...after.keys()].sort(), [...before.keys()].sort());
  for (const [name, text] of before) {
    const now = after.get(name) ?? "";
    if (touched(name)) assertEquals(mode.meaning(now), mode.meaning(text), name);
    else assertEquals(now, text, `${name} is touched`);
  }
}

/**
 * A change relies on the process's record of the kernel, so the kernel must match the wanted state.
 */
async function syncOn(stage: CompareStage): Promise<void> {
  const services = damagedServices();
  const changed: readonly ServicePlan[] = [
    ...services.slice(1),
    testServicePlan({
      name: "web",
      clusterIp: "172.30.0.1",
      nodePort: 30_080,
      masqueradeInternal: "off-cluster",
      to: ["10.1.0.2:8080", "10.1.0.3:8080"],
    }),
  ];
  const report = await stage.sync(changed);
  assertEquals(report.full, false);
  await using other = stage.another();
  assertEquals(await other.compare?.(stage.plan), []);
}

function textOf({ kind, object, name, key }: DataPlaneDifference): string {
  const service = key === undefined ? "" : ` [${key.replace(/[:/](TCP|UDP)$/, "")}]`;
  return `${kind} ${object} ${name}${service}`;
}

for (const mode of DAMAGED_MODES) testDamage(mode);
