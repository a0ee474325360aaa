/** Packets from outside to what listens on 127.0.0.1 of the node. */
import { assertEquals } from "@std/assert";
import { ADDRESSES } from "../builders/address_plan.ts";
import { ProbeClient, startEchoServer } from "../drivers/echo_network.ts";
import { eventually } from "../eventually.ts";
import type { RelayScene } from "./relay_scene.ts";

const { IPv4 } = ADDRESSES;
const LOCAL_PORT = 9999;
const SOON_MS = 300;

/**
 * With route_localnet, which node ports on 127.0.0.1 need, the kernel accepts such packets. A rule
 * has to drop them; `open` removes it.
 */
export async function checkMartians(
  { cluster: { node, otherNode } }: RelayScene,
  open: () => Promise<void>,
): Promise<void> {
  await startEchoServer(node, {
    name: "local",
    listen: [{ address: IPv4.loopback, port: LOCAL_PORT }],
  });
  await otherNode.sysctl("net.ipv4.conf.all.route_localnet=1");
  await otherNode.ip("route del table local local 127.0.0.0/8 dev lo");
  await otherNode.ip("route del table local local 127.0.0.1 dev lo");
  await otherNode.ip(`route add 127.0.0.1 via ${IPv4.node}`);
  const outside = ProbeClient.start(otherNode);
  const target = { protocol: "UDP", address: IPv4.loopback, port: LOCAL_PORT } as const;
  assertEquals(await outside.who(target, SOON_MS), "silent");
  assertEquals(await outside.who({ ...target, protocol: "TCP" }, SOON_MS), "silent");
  assertEquals(await ProbeClient.start(node).who(target), "local");
  // Without the rule, which kube-relay restores, the packets arrive.
  await eventually("a packet arrives", async () => {
    await open();
    return await outside.who(target, SOON_MS) === "local";
  });
}
