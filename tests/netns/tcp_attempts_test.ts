/**
 * TCP clients that repeat their attempt since before the Service existed, with real packets: each packet
 * renews the entry of connection tracking that leads past the Service.
 */
import { assertEquals } from "@std/assert";
import { VIP, VIP_6, webServices, webSlices } from "../support/builders/web_service.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { program, testNeeding } from "../support/requirement.ts";
import type { Namespace } from "../support/stages/netns.ts";
import { RULE_MODES } from "../support/stages/rule_modes.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";

/** A SYN comes again after 1, 3, 7 and 15 s. */
const ANSWER_MS = 40_000;

/** Sends what is for an address to a machine that does not answer. */
async function divert(node: Namespace, address: string, silent: string): Promise<void> {
  const [route] = JSON.parse(await node.ip(`-j route get ${silent}`));
  await node.ipBatch([
    `neigh add ${silent} lladdr 02:00:00:00:00:99 dev ${route.dev}`,
    `route add ${address} via ${silent} dev ${route.dev}`,
  ]);
}

async function attempts(node: Namespace, family: string, address: string): Promise<string> {
  return await node.output("conntrack", [
    ...["-L", "-f", family, "-p", "tcp", "--state", "SYN_SENT", "--orig-dst", address],
  ]);
}

for (const mode of RULE_MODES) {
  const test = testNeeding(`TCP attempts in ${mode.name}`, [
    ...mode.requirements(),
    program("conntrack"),
  ]);
  test(`${mode.name}: a TCP client that began before its Service existed is served`, async () => {
    await using stage = await RuleScene.create(mode);
    const { scene, scene: { cluster: { client, node } } } = stage;
    await scene.write([], []);
    await divert(node, VIP.address, "192.168.0.99");
    await divert(node, VIP_6.address, "2001:db8::99");
    const relay = scene.start(mode.args);
    await relay.settled();
    const targets = [VIP, VIP_6];
    const opened = Promise.all(
      targets.map((target) => ProbeClient.start(client).who(target, ANSWER_MS)),
    );
    for (const [family, { address }] of [["ipv4", VIP], ["ipv6", VIP_6]] as const) {
      await eventually(
        "the attempt is tracked",
        async () => (await attempts(node, family, address)).includes(`dst=${address}`),
      );
    }
    await scene.write(webServices(), webSlices("a1"));
    assertEquals(await opened, ["pod-a1", "pod-a1"], relay.log);
    assertEquals(await relay.stop(), 0, relay.log);
  });
}
