/** Tests tunnels between pods by the whole program, with real packets: this kernel has IP in IP. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { SILENCE_MS } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { testNeeding } from "../support/requirement.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { createPodScene, type PodNode } from "../support/stages/pod_scene.ts";
import type { RelayProcess } from "../support/stages/relay_process.ts";
import { GUEST } from "./guest.ts";

const test = testNeeding("tunnels between pods", [GUEST, ...netnsRequirements()]);

const ARGS = ["--mode=userspace"];

/** Fails with the log of kube-relay. */
async function waitFor(
  what: string,
  { relay, isSo }: { readonly relay: RelayProcess; readonly isSo: () => Promise<boolean> },
): Promise<void> {
  await eventually(what, isSo).catch((cause) => {
    throw new Error(`${what}\n${relay.log}`, { cause });
  });
}

test("pods of nodes in other subnets reach each other through tunnels of both families", async (t) => {
  await using scene = await createPodScene([2, 2, 3]);
  const [a, b, c] = scene.nodes as [PodNode, PodNode, PodNode];
  for (const { namespace } of scene.nodes) {
    await namespace.sysctl("net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.eth0.rp_filter=1");
  }
  await scene.write(scene.nodes.map((node) => node.raw()));
  const relays = scene.nodes.map((node) => node.start([...ARGS, "--overlay"]));
  const [relay] = relays as [RelayProcess];
  const tunnelsAre = (what: string, count: number, by = relay) =>
    waitFor(what, { relay: by, isSo: async () => (await a.tunnels()).length === count });

  await t.step("only the node in the other subnet has tunnels", async () => {
    for (const [index, count] of [2, 2, 4].entries()) {
      const node = scene.nodes[index]!;
      await waitFor(`tunnels of ${node.name}`, {
        relay: relays[index]!,
        isSo: async () =>
          (await node.tunnels()).length === count && (await node.routes()).length === 4,
      });
    }
    const routes = (await a.routes()).join("\n");
    assertStringIncludes(routes, "10.180.2.0/24 via 192.0.2.2 dev eth0");
    assert(
      /^10\.180\.3\.0\/24 dev kr-pod-\w{8} scope link src 10\.180\.1\.0/m.test(routes),
      routes,
    );
    const links = await a.namespace.ip("-d link show");
    for (const words of ["mtu 1480", "mtu 1460", "alias kube-relay:node-c"]) {
      assertStringIncludes(links, words);
    }
  });
  await t.step("packets arrive from the pod itself, though the router knows no pod", async () => {
    for (const family of [0, 1] as const) {
      assertEquals(await a.seenBy(c.podAddresses[family]), a.podAddresses[family]);
      assertEquals(await c.seenBy(b.podAddresses[family]), c.podAddresses[family]);
      assertEquals(await a.seenBy(b.podAddresses[family]), a.podAddresses[family]);
    }
  });
  await t.step("without nftables, iptables masquerades what leaves the cluster", async () => {
    for (const [index, address] of ["192.0.2.254", "fd00:3::fe"].entries()) {
      const isSo = async () => await a.seenBy(address) === a.addresses[index];
      await waitFor(`${address} sees the node`, { relay, isSo });
    }
  });
  await t.step("large packets pass, because pods have room for the header", async () => {
    await a.pod.ip("link set eth0 mtu 1480");
    await c.pod.ip("link set eth0 mtu 1480");
    const size = 60_000;
    const receiver = c.pod.start("socat", ["-u", "TCP-LISTEN:9000", "SYSTEM:wc -c"]);
    await eventually(
      "it listens",
      async () => (await c.pod.output("ss", ["-ltn"])).includes(":9000"),
    );
    await a.pod.output("sh", [
      ...["-c", `head -c ${size} /dev/zero | socat -u - TCP:${c.podAddresses[0]}:9000`],
    ]);
    assertEquals((await receiver.nextLine()).trim(), `${size}`);
  });
  await t.step("a node that is gone loses its tunnels", async () => {
    await scene.write([a.raw(), b.raw()]);
    await tunnelsAre("none", 0, relays[0]);
    await scene.write(scene.nodes.map((node) => node.raw()));
    await tunnelsAre("again", 2, relays[0]);
  });
  await t.step("without the overlay, tunnels go and direct routes stay", async () => {
    await relays[0]!.kill();
    relays[0] = a.start([...ARGS, "--pod-routes"]);
    await tunnelsAre("none", 0, relays[0]);
    assertEquals((await a.routes()).length, 2);
    assertEquals(await a.seenBy(b.podAddresses[0]), a.podAddresses[0]);
    assertEquals(await a.seenBy(c.podAddresses[0], "TCP", SILENCE_MS), "silent");
  });
  await t.step("always: the node in the same subnet has tunnels too", async () => {
    await Promise.all([relays[0]!.kill(), relays[1]!.kill()]);
    for (const [index, node] of [a, b].entries()) {
      relays[index] = node.start([...ARGS, "--overlay=always"]);
    }
    await tunnelsAre("four", 4, relays[0]);
    await waitFor("the other one", {
      relay: relays[1]!,
      isSo: async () => (await b.tunnels()).length === 4,
    });
    for (const family of [0, 1] as const) {
      assertEquals(await a.seenBy(b.podAddresses[family]), a.podAddresses[family]);
      assertEquals(await a.seenBy(c.podAddresses[family]), a.podAddresses[family]);
    }
  });
  await t.step("the cleanup removes tunnels of kube-relay only", async () => {
    for (const each of relays) await each.kill();
    await a.namespace.ip("link add other type ipip local 192.0.2.1 remote 192.0.2.99");
    const text = await a.cleanUp();
    assertStringIncludes(text, "tunnel kr-pod-");
    assertEquals([await a.tunnels(), await a.routes()], [[], []]);
    assertStringIncludes(await a.namespace.ip("link show"), "other@");
  });
});
