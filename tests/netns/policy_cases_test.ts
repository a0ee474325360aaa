/**
 * Runs the cases of NetworkPolicy with real packets through ClusterIPs, by each data plane together
 * with the mode of Services that uses the same tools.
 */
import { assertEquals } from "@std/assert";
import { POLICY_CASES } from "../policy/cases.ts";
import type { PolicyCase } from "../policy/policy_case.ts";
import { isMissing } from "../support/requirement.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { PolicyCaseScene } from "../support/stages/policy_case_scene.ts";
import { relayNodes } from "../support/stages/policy_relay_wire.ts";
import { POLICY_WIRES } from "../support/stages/policy_wires.ts";

async function check(
  scene: PolicyCaseScene,
  { steps }: PolicyCase,
  family: "IPv4" | "IPv6",
): Promise<void> {
  for (const [index, step] of steps.entries()) {
    await scene.apply(step, family);
    assertEquals(await scene.faults(step, family), [], `${family}, step ${index}`);
  }
}

const USERSPACE = {
  name: "userspace mode alone",
  ignore: isMissing("cases of NetworkPolicy by userspace mode", netnsRequirements()),
  nodes: relayNodes(),
};

for (const { name, ignore, nodes } of [...POLICY_WIRES, USERSPACE]) {
  Deno.test({
    name: `policy by ${name}: the cases of Kubernetes, and further ones, with real packets`,
    ignore,
    fn: async (t) => {
      await using scene = await PolicyCaseScene.create(nodes);
      for (const [index, each] of POLICY_CASES.entries()) {
        await t.step(each.name, async () => {
          await check(scene, each, "IPv4");
          if (index % 4 === 0) await check(scene, each, "IPv6");
        });
      }
    },
  });
}
