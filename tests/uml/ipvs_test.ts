/**
 * Tests the ipvs mode as a process, on a kernel with IPVS: restarts, changes by other programs, and
 * its end.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { EndpointSlice } from "../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../lib/api/kinds/service.ts";
import { SCHEDULERS } from "../../backends/ipvs/scheduler.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { testService } from "../support/builders/builders.ts";
import { ProbeClient, SILENCE_MS } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import type { ProbeTarget } from "../support/drivers/probe_protocol.ts";
import { IPVS_MODE } from "../support/stages/ipvs_mode.ts";
import { ipvsStateOf, virtualServers } from "../support/stages/ipvs_state.ts";
import type { Namespace } from "../support/stages/netns.ts";
import { type RelayProcess, servicesOf } from "../support/stages/relay_process.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { testNeeding } from "../support/requirement.ts";
import {
  ON_NODE_PORTS,
  VIP,
  VIP_6,
  VIP_UDP,
  webServices,
  webSlices,
} from "../support/builders/web_service.ts";
import { GUEST } from "./guest.ts";

const test = testNeeding("ipvs mode with real packets", [
  GUEST,
  ...IPVS_MODE.requirements(),
]);

/** A foreign virtual server, such as one of keepalived. */
const FOREIGN = ["-A", "-t", "198.51.100.7:80", "-s", "wlc"];

function start(scene: RelayScene, ...args: readonly string[]): RelayProcess {
  return scene.start([...IPVS_MODE.args, ...args]);
}

/** Addresses of the node, for a while. */
const LOST_ADDRESSES = ["192.168.99.77", "2001:db8:99::77"] as const;
const [LOST_ADDRESS] = LOST_ADDRESSES;

/** Services with node ports in both families. */
function nodePortServices(): Service[] {
  const ports = [{ name: "tcp", port: 80, nodePort: 30_086 }];
  const spec = { type: "NodePort", clusterIP: "fd00:172:30::86", ports } as const;
  return [...webServices(ON_NODE_PORTS), testService("ports-6", spec)];
}

/** Virtual servers with their real ones and weights, sorted. */
function servers(node: Namespace): Promise<string[]> {
  return virtualServers((program, args) => node.output(program, args));
}

/** As those of Service `web`, for Service `sticky`. */
function stickySlices(): EndpointSlice[] {
  return webSlices("a1", "b1").filter(({ addressType }) => addressType === "IPv4").map((slice) => ({
    ...slice,
    metadata: {
      ...slice.metadata,
      name: "sticky-1",
      labels: { "kubernetes.io/service-name": "sticky" },
    },
  }));
}

/** Returns the pods that answer eight connections of one client. */
async function podsOf(probes: ProbeClient, target: ProbeTarget): Promise<string[]> {
  const pods = new Set<string>();
  for (let count = 0; count < 8; count++) pods.add(await probes.who(target));
  return [...pods].sort();
}

/** Tables exist permanently after the first listing. */
async function makeTables(node: Namespace): Promise<void> {
  for (const program of ["iptables", "ip6tables"]) {
    for (const table of ["mangle", "filter", "nat"]) {
      await node.output(program, ["-w", "5", "-t", table, "-S"]);
    }
  }
}

test("ipvs mode serves, restarts without a write, and leaves only foreign objects", async () => {
  await using scene = await RelayScene.create();
  const { node, client } = scene.cluster;
  await node.output("ipvsadm", FOREIGN);
  await makeTables(node);
  const before = await ipvsStateOf(node);
  await scene.write(webServices(), webSlices("a1"));
  const probes = ProbeClient.start(client);
  const first = start(scene);
  const { families } = await first.settled();
  assertEquals(families.map(({ mode }) => mode), ["ipvs", "ipvs"]);
  for (const target of [VIP, VIP_6, VIP_UDP]) assertEquals(await probes.who(target), "pod-a1");
  const served = await ipvsStateOf(node);
  await first.stop();
  assertEquals(await probes.who(VIP), "pod-a1", "the kernel goes on");

  const second = start(scene);
  for (const { lastSync } of (await second.settled()).families) {
    assertEquals(lastSync?.operations, { reads: 1 }, second.log);
  }
  assertEquals(await ipvsStateOf(node), served);
  await second.kill();

  await scene.cleanup();
  assertEquals(await ipvsStateOf(node), before);
  assert(await probes.who(VIP, SILENCE_MS) !== "pod-a1");
});

test("ipvs mode restores objects that other programs remove, and leaves foreign ones alone", async (t) => {
  await using scene = await RelayScene.create();
  const { node, client } = scene.cluster;
  const sticky = { ...VIP, address: "172.30.7.100" };
  await scene.write([
    ...webServices(),
    testService("sticky", {
      clusterIP: sticky.address,
      ports: [{ name: "tcp", port: 80 }],
      sessionAffinity: "ClientIP",
    }),
  ], [...webSlices("a1", "b1"), ...stickySlices()]);
  const probes = ProbeClient.start(client);
  await using relay = start(scene);
  await relay.settled();
  await t.step("a client of session affinity stays with its endpoint, others don't", async () => {
    assertEquals(await podsOf(probes, VIP), ["pod-a1", "pod-b1"]);
    const [pod, ...others] = await podsOf(probes, sticky);
    assertEquals(others, [], `${pod} and others`);
  });
  const served = await ipvsStateOf(node);
  const harms: readonly (readonly [string, ...string[]])[] = [
    ["ipvsadm", "-C"],
    ["ip", "link", "del", "kube-ipvs0"],
    ["iptables", "-w", "5", "-t", "nat", "-F", "KUBE-SERVICES"],
  ];
  for (const [tool, ...args] of harms) {
    await t.step([tool, ...args].join(" "), async () => {
      await node.output(tool, args);
      await eventually(
        "all of it is there again",
        async () => await ipvsStateOf(node) === served,
        {
          deadlineMs: 20_000,
        },
      );
      assertStringIncludes(await probes.who(VIP), "pod-");
    });
  }
  await t.step("a foreign virtual server", async () => {
    await node.output("ipvsadm", FOREIGN);
    await node.output("ipvsadm", ["-D", "-t", `${VIP.address}:80`]);
    await eventually(
      "ours is there again",
      async () => (await servers(node)).includes(`-A -t ${VIP.address}:80 -s rr`),
    );
    assert((await servers(node)).includes(FOREIGN.join(" ")));
  });
});

test("ipvs mode lets connections of a removed endpoint end, and moves a client of UDP at once", async () => {
  await using scene = await RelayScene.create();
  const { node, client } = scene.cluster;
  const services = nodePortServices();
  for (const address of LOST_ADDRESSES) await node.ip(`addr add ${address} dev eth0 nodad`);
  await scene.write(services, webSlices("a1"));
  const probes = ProbeClient.start(client);
  await using relay = start(scene);
  await relay.settled();
  const onLost = async () =>
    (await servers(node)).filter((line) =>
      line.startsWith("-A") && LOST_ADDRESSES.some((address) => line.includes(address))
    );
  assertEquals((await onLost()).length, 3, "node ports of TCP and UDP, and of IPv6");
  const tcp = await probes.open(VIP);
  const udp = await probes.open(VIP_UDP);
  assertEquals([await tcp.who(), await udp.who()], ["pod-a1", "pod-a1"]);
  const load = servicesOf(await relay.status()).find(({ name }) => name === "ns1/web:tcp")
    ?.addresses.find(({ address }) => address === VIP.address)?.load;
  assertEquals([load?.active, typeof load?.rates?.bytesIn], [1, "number"]);
  const weight = async () => {
    const lines = await servers(node);
    const prefix = `-a -t ${VIP.address}:80 -r 10.180.0.1:8080 `;
    return lines.find((line) => line.startsWith(prefix))?.slice(prefix.length);
  };
  await scene.write(services, webSlices("b1"));
  await eventually("the endpoint drains", async () => await weight() === "-m -w 0");
  assertEquals(await probes.who(VIP), "pod-b1", "new connections go elsewhere");
  assertEquals(await tcp.who(), "pod-a1", "the old one goes on");
  await eventually("the client of UDP is moved", async () => await udp.who() === "pod-b1");

  await relay.kill();
  // A foreign server on an address that the node has lost.
  for (const address of LOST_ADDRESSES) await node.ip(`addr del ${address} dev eth0`);
  const expected = ["-A", "-t", `${LOST_ADDRESS}:443`, "-s", "wlc"];
  await node.output("ipvsadm", expected);
  await using second = start(scene);
  await second.settled();
  assertEquals(await weight(), "-m -w 0", "it drains after a restart, too");
  assertEquals(await onLost(), [expected.join(" ")]);
  assertEquals(await tcp.who(), "pod-a1");
  await tcp.close();
  await udp.close();
  // The kernel remembers a closed connection for two minutes.
  await node.output("ipvsadm", ["--set", "0", "1", "0"]);
  await scene.write(services, webSlices("a1"));
  await eventually("it has its weight again", async () => await weight() === "-m -w 1");
  assertEquals(await probes.who(VIP), "pod-a1");
});

test("ipvs mode takes the scheduler that a Service asks for, and is silent to ARP if it is to be", async () => {
  await using scene = await RelayScene.create();
  const { node, router } = scene.cluster;
  const services = SCHEDULERS.map((scheduler, index) =>
    testService(`by-${scheduler}`, {
      clusterIP: `172.30.7.${index + 1}`,
      sessionAffinity: "ClientIP",
    }, { metadata: { annotations: { "kube-router.io/service.scheduler": scheduler } } })
  );
  await scene.write(services, []);
  await using relay = start(scene, "--ipvs-strict-arp");
  await relay.settled();
  const expected = SCHEDULERS.map((scheduler, index) => {
    const flags = scheduler === "mh" ? " -b mh-port" : "";
    return `-A -t 172.30.7.${index + 1}:80 -s ${scheduler} -p 10800${flags}`;
  });
  assertEquals(await servers(node), expected.sort());

  // Both ports are closed: the receiver of a packet refuses it.
  const [vip, own] = ["172.30.7.1", ADDRESSES.IPv4.node];
  await router.ip(`route add ${vip} dev lan`);
  const neighbour = ProbeClient.start(router);
  const isRefused = async (address: string) =>
    await neighbour.who({ protocol: "TCP", address, port: 80 }) === "refused";
  assertEquals([await isRefused(own), await isRefused(vip)], [true, false]);
  await node.sysctl("net.ipv4.conf.eth0.arp_ignore=0");
  await eventually("without it, it answers", () => isRefused(vip));
});
