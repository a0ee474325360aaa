/**
 * Tests Services whose endpoints lead back to kube-relay itself, in userspace mode: by their
 * addresses, and by foreign rules.
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import type { EndpointSlice } from "../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../lib/api/kinds/service.ts";
import type { StatusReport } from "../../lib/tools/status/status_report.ts";
import { ADDRESSES, OTHER_NODE, THIS_NODE } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { ProbeClient, startEchoServer } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { type Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { WIRING } from "../support/stages/cluster_topology.ts";
import { RelayProcess, servicesOf } from "../support/stages/relay_process.ts";
import { RELAY_FLAGS, RelayScene } from "../support/stages/relay_scene.ts";
import { program, testNeeding } from "../support/requirement.ts";
import {
  NODE_PORT as WEB_NODE_PORT,
  ON_NODE_PORTS,
  VIP,
  VIP_6,
  VIP_UDP,
  webServices,
  webSlices,
} from "../support/builders/web_service.ts";

const test = testNeeding("loops with real sockets", [...netnsRequirements(), program("iptables")]);

const { IPv4, IPv6 } = ADDRESSES;
const PORTS = ["TCP", "UDP"].map((protocol) => ({ name: protocol.toLowerCase(), protocol }));
const NODE_PORT = 30_090;
/** An address that a rule leads to a Service. */
const LED_AWAY = "192.168.99.200";

/** A Service of one family, with TCP and UDP on port 80, and its only endpoint. */
function looped(
  name: string,
  { clusterIP, to, port = 80, ...spec }: Partial<Service["spec"]> & {
    readonly clusterIP: string;
    readonly to: string;
    readonly port?: number;
  },
): [Service, EndpointSlice] {
  const nodePort = spec.type === "NodePort" ? { nodePort: NODE_PORT } : {};
  return [
    testService(name, {
      clusterIP,
      ports: PORTS.map((each) => ({ ...each, port: 80, ...nodePort })),
      ...spec,
    }),
    testEndpointSlice(name, {
      addressType: to.includes(":") ? "IPv6" : "IPv4",
      endpoints: [{ addresses: [to], nodeName: THIS_NODE }],
      ports: PORTS.map((each) => ({ ...each, port })),
    }),
  ];
}

/** Circles of two and three, a Service that is its own endpoint, and one by its node port. */
function circles(): [Service, EndpointSlice][] {
  return [
    looped("own", { clusterIP: "172.30.0.50", to: "172.30.0.50" }),
    looped("pair-a", { clusterIP: "172.30.0.51", to: "172.30.0.52" }),
    looped("pair-b", { clusterIP: "172.30.0.52", to: "172.30.0.51" }),
    looped("chain-a", {
      clusterIP: "172.30.0.53",
      externalIPs: ["192.168.99.53"],
      to: "172.30.0.54",
    }),
    looped("chain-b", { clusterIP: "172.30.0.54", to: "172.30.0.55" }),
    looped("chain-c", { clusterIP: "172.30.0.55", to: "192.168.99.53" }),
    looped("ported", {
      clusterIP: "172.30.0.56",
      type: "NodePort",
      to: IPv4.nodeSecond,
      port: NODE_PORT,
    }),
    looped("six-a", { clusterIP: "fd00:172:30::51", to: "fd00:172:30::52" }),
    looped("six-b", { clusterIP: "fd00:172:30::52", to: "fd00:172:30::51" }),
  ];
}

/** Files and sockets that a process has open. */
async function descriptorsOf(namespace: Namespace, { pid }: StatusReport): Promise<number> {
  return (await namespace.output("ls", [`/proc/${pid}/fd`])).trim().split("\n").length;
}

/** Packets that a node has received from the network. */
async function receivedBy(node: Namespace): Promise<number> {
  return Number(await node.output("cat", ["/sys/class/net/eth0/statistics/rx_packets"]));
}

/** Returns the Services in quarantine, each once. */
function quarantined(status: StatusReport): string[] {
  const names = servicesOf(status).flatMap(({ name, quarantined }) =>
    quarantined === undefined ? [] : [name.replace(/^ns1\/|:.*$/g, "")]
  );
  return [...new Set(names)].sort();
}

test("Services in a circle accept no connection and no datagram, and are named; others work", async () => {
  await using scene = await RelayScene.create();
  const { node, client } = scene.cluster;
  const all = circles();
  const services = [...webServices(), ...all.map(([service]) => service)];
  const slices = [...webSlices("a1"), ...all.map(([, slice]) => slice)];
  await scene.write(services, slices);
  const relay = scene.start();
  const names = all.map(([{ metadata }]) => metadata.name).sort();
  const status = await relay.until(
    "the circles are in quarantine",
    (status) => quarantined(status).length >= names.length,
  );
  assertEquals(quarantined(status), names);
  const pair = servicesOf(status).find(({ name }) => name.startsWith("ns1/pair-a"));
  assertMatch(pair?.quarantined ?? "", /172\.30\.0\.52:80: it is an address of ns1\/pair-b:/);
  const before = await descriptorsOf(node, status);
  const probe = ProbeClient.start(client);
  for (const [{ spec: { clusterIP = "" } }] of all) {
    const at = { address: clusterIP, port: 80 };
    assertEquals(await probe.who({ protocol: "TCP", ...at }), "refused", clusterIP);
    assertEquals(await probe.who({ protocol: "UDP", ...at }, 100), "silent", clusterIP);
  }
  const nodePort = { address: IPv4.node, port: NODE_PORT };
  assertEquals(await probe.who({ protocol: "TCP", ...nodePort }), "refused");
  for (const target of [VIP, VIP_UDP, VIP_6]) assertEquals(await probe.who(target), "pod-a1");
  const after = await descriptorsOf(node, await relay.status());
  assert(after <= before + 10, `${before} descriptors grew to ${after}`);

  // The frontend of `pair-b` goes: `pair-a` has an endpoint again, and forwards to it.
  await scene.write(services.filter(({ metadata }) => metadata.name !== "pair-b"), slices);
  const without = names.filter((name) => !name.startsWith("pair"));
  await relay.until("one is out", (status) => quarantined(status).join() === without.join());
  const times = relay.log.split("Service port is in quarantine").length - 1;
  assertEquals(times, names.length * 2, "each is reported once");
});

test("a rule that leads an endpoint back to a Service costs a few connections, not all of them", async () => {
  await using scene = await RelayScene.create();
  const { node } = scene.cluster;
  for (const protocol of ["tcp", "udp"]) {
    await node.output("iptables", [
      ...["-t", "nat", "-A", "OUTPUT", "-d", LED_AWAY, "-p", protocol],
      ...["-j", "DNAT", "--to-destination", "172.30.0.60:80"],
    ]);
  }
  const [service, slice] = looped("led", { clusterIP: "172.30.0.60", to: LED_AWAY });
  await scene.write([...webServices(), service], [...webSlices("a1"), slice]);
  const relay = scene.start();
  const status = await relay.settled();
  assertEquals(quarantined(status), []);
  const before = await descriptorsOf(node, status);
  const probe = ProbeClient.start(scene.cluster.client);
  const at = { address: "172.30.0.60", port: 80 };
  const tcp = await probe.who({ protocol: "TCP", ...at });
  assert(tcp === "refused" || tcp.startsWith("failed"), tcp);
  assertEquals(await probe.who({ protocol: "UDP", ...at }, 100), "silent");
  for (const target of [VIP, VIP_UDP, VIP_6]) assertEquals(await probe.who(target), "pod-a1");
  const after = await descriptorsOf(node, await relay.status());
  assert(after <= before + 20, `${before} descriptors grew to ${after}`);
  await relay.logged("connection to an endpoint came back to kube-relay");
  await relay.logged("datagram to an endpoint came back to kube-relay");
});

test("a datagram that circles between two nodes by a node port ends, and other clients are served", async () => {
  await using scene = await RelayScene.create();
  const { client, otherNode } = scene.cluster;
  const [circle, slice] = looped("circle", {
    clusterIP: "172.30.0.61",
    type: "NodePort",
    to: IPv4.node,
    port: NODE_PORT,
  });
  const endpoints = [
    ...slice.endpoints,
    { addresses: [WIRING.IPv4.otherNode], nodeName: OTHER_NODE },
  ];
  await scene.write(
    [...webServices(ON_NODE_PORTS), circle],
    [...webSlices("a1"), { ...slice, endpoints }],
  );
  const bound = "--max-connections-per-service=200";
  const relay = scene.start([bound]);
  const folder = `${scene.folder}/other`;
  await Deno.mkdir(folder);
  const flags = RELAY_FLAGS.map((flag) => flag.replace(THIS_NODE, OTHER_NODE));
  const manifests = `--manifests=${scene.folder}/manifests`;
  const other = RelayProcess.start(otherNode, {
    folder,
    args: [manifests, ...flags, "--mode=userspace", bound],
  });
  await relay.settled();
  await other.settled();
  const probe = ProbeClient.start(client);
  const before = await receivedBy(otherNode);
  // The client's socket is closed after its one datagram.
  const at = { protocol: "UDP", address: IPv4.node, port: NODE_PORT } as const;
  assertEquals(await probe.who(at, 100), "silent");
  await eventually(
    "the datagram has been dropped",
    () => [relay, other].some(({ log }) => log.includes("it may be in a circle")),
  );
  const dropped = await receivedBy(otherNode);
  assert(dropped - before >= 200, `${dropped - before} packets: it was in no circle`);

  // These pass this node only, so the other one counts nothing but what circles.
  for (let turn = 0; turn < 100; turn++) assertEquals(await probe.who(VIP_UDP), "pod-a1");
  const after = await receivedBy(otherNode) - dropped;
  assert(after < 50, `${after} packets after the datagram was dropped`);
  for (const address of [IPv4.node, WIRING.IPv4.otherNode]) {
    for (const protocol of ["TCP", "UDP"] as const) {
      assertEquals(await probe.who({ protocol, address, port: WEB_NODE_PORT }), "pod-a1");
    }
  }
});

test("a program of the node that has a frontend's address and port is an endpoint of that Service", async () => {
  await using scene = await RelayScene.create();
  const { node } = scene.cluster;
  const [service, slice] = looped("ingress", {
    clusterIP: "172.30.0.71",
    externalIPs: [IPv4.nodeSecond],
    to: IPv4.nodeSecond,
  });
  await scene.write([service], [slice]);
  const relay = scene.start();
  await relay.until("it leads back", (status) => quarantined(status).includes("ingress"));
  await startEchoServer(node, {
    name: "ingress",
    listen: [{ address: IPv4.nodeSecond, port: 80 }],
  });
  const probe = ProbeClient.start(scene.cluster.client);
  for (const protocol of ["TCP", "UDP"] as const) {
    for (const address of ["172.30.0.71", IPv4.nodeSecond]) {
      await eventually(
        "the program is reached",
        async () => await probe.who({ protocol, address, port: 80 }) === "ingress",
        { deadlineMs: 60_000 },
      );
    }
  }
});

test("an endpoint on an address of the node, on a port that is no frontend, is forwarded to", async () => {
  await using scene = await RelayScene.create();
  const { node } = scene.cluster;
  await startEchoServer(node, {
    name: "host",
    listen: [{ address: IPv4.node, port: 8443 }, { address: IPv6.node, port: 8443 }],
  });
  const objects = [
    looped("host", { clusterIP: "172.30.0.70", type: "NodePort", to: IPv4.node, port: 8443 }),
    looped("host-6", { clusterIP: "fd00:172:30::70", to: IPv6.node, port: 8443 }),
  ];
  await scene.write(
    objects.map(([service]) => service),
    objects.map(([, slice]) => slice),
  );
  const relay = scene.start();
  assertEquals(quarantined(await relay.settled()), []);
  const probe = ProbeClient.start(scene.cluster.client);
  for (const protocol of ["TCP", "UDP"] as const) {
    for (const [{ spec: { clusterIP = "" } }] of objects) {
      assertEquals(await probe.who({ protocol, address: clusterIP, port: 80 }), "host");
    }
    assertEquals(await probe.who({ protocol, address: IPv4.node, port: NODE_PORT }), "host");
  }
});
