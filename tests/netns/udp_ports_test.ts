/** UDP clients of userspace mode that ask for more source ports than the node has. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import type { LineProcess } from "../support/drivers/line_process.ts";
import { eventually } from "../support/eventually.ts";
import { testNeeding } from "../support/requirement.ts";
import { type Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { VIP_UDP, webServices, webSlices } from "../support/builders/web_service.ts";

const { localPods: [POD] } = ADDRESSES.IPv4;
/** Ports that the kernel gives to sockets of the node, and clients that each want one. */
const PORTS = 400;
const CLIENTS = 600;
/** The ports that the node itself needs. */
const OWN_PORTS = 60;
const FLOODED = { protocol: "UDP", address: "172.30.0.70", port: 80 } as const;

/** Opens sockets of another program of the node, which keeps them. Returns it, and how many it got. */
async function openSockets(node: Namespace, count: number): Promise<[LineProcess, number]> {
  const code = `let opened = 0;
    try {
      for (; opened < ${count}; opened++) {
        Deno.listenDatagram({ transport: "udp", hostname: "0.0.0.0", port: 0 });
      }
    } catch { /* None is left. */ }
    console.log(opened);
    for await (const _ of Deno.stdin.readable);`;
  const holder = node.start(Deno.execPath(), ["eval", "--unstable-net", code]);
  return [holder, Number(await holder.nextLine())];
}

for (const workers of [1, 2]) {
  const test = testNeeding("UDP source ports", netnsRequirements());
  test(`clients of one Service leave UDP source ports to others and to the node (workers: ${workers})`, async () => {
    await using scene = await RelayScene.create();
    const { client, node } = scene.cluster;
    await node.sysctl(`net.ipv4.ip_local_port_range=40000 ${40_000 + 2 * PORTS - 1}`);
    const reserved = `${40_000 + PORTS}-${40_000 + 2 * PORTS - 1}`;
    await node.sysctl(`net.ipv4.ip_local_reserved_ports=${reserved}`);
    const ports = [{ name: "udp", protocol: "UDP" }];
    await scene.write([
      ...webServices(),
      testService("flooded", { clusterIP: FLOODED.address, ports: [{ ...ports[0]!, port: 80 }] }),
    ], [
      ...webSlices("a1"),
      testEndpointSlice("flooded", { endpoints: [POD], ports: [{ ...ports[0]!, port: 8080 }] }),
    ]);
    const relay = scene.start([`--userspace-workers=${workers}`]);
    await relay.settled();
    const crowd = client.startDeno(
      new URL("../support/drivers/udp_crowd.ts", import.meta.url),
      [String(CLIENTS), FLOODED.address, String(FLOODED.port)],
    );
    await eventually("the log tells what is lacking", async () => {
      await crowd.writeLine("");
      await crowd.nextLine();
      return relay.log.includes("net.ipv4.ip_local_port_range");
    });
    assertStringIncludes(relay.log, "Closed the longest idle flow for a new one");
    const [holder, opened] = await openSockets(node, OWN_PORTS);
    assertEquals(opened, OWN_PORTS);
    await holder.kill();
    const probe = ProbeClient.start(client);
    for (const target of [VIP_UDP, FLOODED]) {
      await eventually("a new client", async () => await probe.who(target) === "pod-a1");
    }
    // Other programs may take more than their share: flows have fewer ports then.
    await openSockets(node, PORTS);
    await crowd.writeLine("");
    await crowd.nextLine();
    for (const target of [VIP_UDP, FLOODED]) {
      await eventually("without free ports", async () => await probe.who(target) === "pod-a1");
    }
    assertEquals(await relay.stop(), 0, relay.log);
  });
}
