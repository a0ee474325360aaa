/** Trouble around kube-relay, and what clients notice of it. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { ApiProcess } from "../support/drivers/api_process.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { ProbeClient, startEchoServer } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { servicesOf } from "../support/stages/relay_process.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { program, testNeeding } from "../support/requirement.ts";
import {
  NODE_PORT,
  ON_NODE_PORTS,
  VIP,
  VIP_6,
  VIP_UDP,
  webObjects,
  webServices,
  webSlices,
} from "../support/builders/web_service.ts";

const test = testNeeding("trouble with real packets", [
  ...netnsRequirements(),
  program("setpriv"),
]);

const { IPv4 } = ADDRESSES;

test("quarantine: a port in use and a refused address are named; other Services work", async () => {
  await using scene = await RelayScene.create();
  const { node, client } = scene.cluster;
  const squatter = await startEchoServer(node, {
    name: "squatter",
    listen: [{ address: IPv4.node, port: NODE_PORT }],
  });
  const ingress = [{ ip: "192.168.0.77" }];
  await scene.write([
    ...webServices(ON_NODE_PORTS),
    testService("refused", { type: "LoadBalancer", clusterIP: "172.30.0.50" }, { ingress }),
  ], [
    ...webSlices("a1"),
    testEndpointSlice("refused", {
      endpoints: [IPv4.localPods[0]],
      ports: [{ name: "", port: 8080 }],
    }),
  ]);
  const relay = scene.start();
  const status = await relay.until(
    "both are in quarantine",
    ({ families }) =>
      new Set(
        families.flatMap(({ quarantined }) => quarantined.map(({ key }) => key.split(":")[0])),
      )
        .size >= 2,
  );
  const reasons = servicesOf(status).flatMap(({ name, quarantined }) =>
    quarantined === undefined ? [] : [`${name} ${quarantined}`]
  ).join("\n");
  assertStringIncludes(reasons, "ns1/web");
  assertStringIncludes(reasons, `${IPv4.node}:${NODE_PORT}`);
  assertStringIncludes(reasons, "192.168.0.77");
  const probe = ProbeClient.start(client);
  const nodePort = { ...VIP, address: IPv4.node, port: NODE_PORT } as const;
  assertEquals(await probe.who(nodePort), "squatter");
  assertEquals(await probe.who({ ...nodePort, address: IPv4.nodeSecond }), "pod-a1");
  assertEquals(await probe.who(VIP), "pod-a1");
  assertEquals(await probe.who(VIP_6), "pod-a1");
  await squatter.kill();
  await eventually("the port is taken over", async () => await probe.who(nodePort) === "pod-a1", {
    deadlineMs: 60_000,
  });
});

test("an API server that is frozen or gone: everything known keeps working, and what is new comes", async () => {
  await using scene = await RelayScene.create();
  const api = await ApiProcess.start(scene.cluster.node, `${scene.folder}/kubeconfig`);
  await api.write(webObjects("a1"));
  const relay = scene.start([], { source: [`--kubeconfig=${api.kubeconfig}`] });
  await relay.settled();
  const client = ProbeClient.start(scene.cluster.client);
  api.freeze();
  for (const target of [VIP, VIP_UDP, VIP_6]) assertEquals(await client.who(target), "pod-a1");
  api.thaw();
  await api.write(webObjects("b1"));
  await eventually("the change is seen", async () => await client.who(VIP) === "pod-b1");
  await api.close();
  await relay.until(
    "the loss is logged",
    ({ sources }) => sources.some(({ problems }) => problems.length > 0),
  );
  for (const target of [VIP, VIP_UDP, VIP_6]) assertEquals(await client.who(target), "pod-b1");
  await api.write(webObjects("a1"));
  await api.reopen();
  await eventually("the change is seen", async () => await client.who(VIP) === "pod-a1", {
    deadlineMs: 60_000,
  });
});

test("an endpoint is removed: its UDP flows move at once, its TCP connections may finish", async () => {
  await using scene = await RelayScene.create();
  await scene.write(webServices(), webSlices("a1"));
  const relay = scene.start();
  await relay.settled();
  const client = ProbeClient.start(scene.cluster.client);
  const tcp = await client.open(VIP);
  const udp = await client.open(VIP_UDP);
  for (const line of [tcp, udp]) assertEquals(await line.who(), "pod-a1");
  await scene.write(webServices(), webSlices("b1"));
  await eventually(
    "new connections go to the other",
    async () => await client.who(VIP) === "pod-b1",
  );
  await eventually("the flow moves", async () => await udp.who() === "pod-b1");
  for (let i = 0; i < 5; i++) assertEquals(await tcp.who(), "pod-a1");
});

test("without CAP_NET_ADMIN stand-ins on loopback are listed by the status, and answer", async () => {
  await using scene = await RelayScene.create();
  const before = await scene.snapshot();
  await scene.write(
    webServices(ON_NODE_PORTS),
    webSlices("a1"),
  );
  const relay = scene.start([], {
    by: ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"],
  });
  const status = await relay.settled();
  const standIns = servicesOf(status).flatMap(({ addresses }) => addresses)
    .filter(({ role }) => role === "StandIn");
  assertEquals(standIns.length, 4, "both families, TCP and UDP");
  const onNode = ProbeClient.start(scene.cluster.node);
  for (const { protocol, address, port } of standIns) {
    assert(protocol !== "SCTP");
    assertEquals(await onNode.who({ protocol, address, port }), "pod-a1", address);
  }
  const outside = ProbeClient.start(scene.cluster.client);
  assertEquals(await outside.who({ ...VIP, address: IPv4.node, port: NODE_PORT }), "pod-a1");
  assertEquals(await scene.snapshot(), before);
});
