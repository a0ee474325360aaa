/**
 * Observes the clients of Service `web` while its endpoint is removed, in a mode that leaves
 * packets to the kernel.
 */
import { assertEquals } from "@std/assert";
import type { Service } from "../../../lib/api/kinds/service.ts";
import { ProbeClient } from "../drivers/echo_network.ts";
import { eventually } from "../eventually.ts";
import type { RelayScene } from "./relay_scene.ts";
import { VIP, VIP_UDP, webServices, webSlices } from "../builders/web_service.ts";

/** Its UDP flows move at once, its TCP connections go on. The Service has this in its spec. */
export async function checkFlowsOfGoneEndpoint(
  scene: RelayScene,
  spec: Partial<Service["spec"]> = {},
): Promise<void> {
  const client = ProbeClient.start(scene.cluster.localPodClient);
  const flow = await client.open(VIP_UDP);
  const connection = await client.open(VIP);
  assertEquals([await flow.who(), await connection.who()], ["pod-a1", "pod-a1"]);
  await scene.write(webServices(spec), webSlices("b1"));
  await eventually("the flow has moved", async () => await flow.who() === "pod-b1");
  assertEquals(await connection.who(), "pod-a1");
  await eventually("connections go there", async () => await client.who(VIP) === "pod-b1");
  await scene.write(webServices(spec), webSlices("a1"));
  await eventually("it is back", async () => await client.who(VIP) === "pod-a1");
  await flow.close();
  await connection.close();
}
