/**
 * Services that ask for addresses of other machines, in a mode that makes Service addresses local, with
 * real packets: this node keeps reaching the machines.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ADDRESSES, OTHER_NODE } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testNode, testService } from "../support/builders/builders.ts";
import { replaceFile } from "../support/builders/kubeconfig_file.ts";
import { rawObjects } from "../support/builders/raw_objects.ts";
import { ApiProcess } from "../support/drivers/api_process.ts";
import { ProbeClient, startEchoServer } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { RelayProcess, type servicesOf } from "../support/stages/relay_process.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import type { RawObject } from "../conformance/server.ts";

const { IPv4, IPv6 } = ADDRESSES;
const test = testNeeding("addresses of other machines", [...netnsRequirements(), program("socat")]);

/** An address of no machine, which a Service may have. */
const FREE = "198.51.100.7";
const API_ENDPOINT = "203.0.113.9";

function otherNode(...addresses: readonly string[]): RawObject {
  const status = {
    addresses: addresses.map((address, index) => ({
      type: index === 0 ? "ExternalIP" : "InternalIP",
      address,
    })),
  };
  const [node] = rawObjects("Node", testNode());
  return { ...node!, metadata: { name: OTHER_NODE }, status };
}

/** A Service with external IPs and load balancer addresses, and its endpoint. */
function tenant(
  externalIPs: readonly string[],
  ingress: readonly string[] = [],
  family: "IPv4" | "IPv6" = "IPv4",
): readonly RawObject[] {
  const name = `tenant-${family.toLowerCase()}`;
  const clusterIP = family === "IPv4" ? "172.30.0.66" : "fd00:172:30::66";
  const status = { loadBalancer: { ingress: ingress.map((ip) => ({ ip, ipMode: "VIP" })) } };
  const [service] = rawObjects(
    "Service",
    testService(name, {
      clusterIP,
      externalIPs: [...externalIPs],
      ports: [{ name: "a", port: 9 }],
    }),
  );
  return [
    { ...service!, status },
    ...rawObjects(
      "EndpointSlice",
      testEndpointSlice(name, {
        addressType: family,
        endpoints: [ADDRESSES[family].localPods[0]],
        ports: [{ name: "a", port: 8080 }],
      }),
    ),
  ];
}

const API_SLICE = rawObjects(
  "EndpointSlice",
  testEndpointSlice("default/kubernetes", {
    endpoints: [API_ENDPOINT],
    ports: [{ name: "https", port: 6443 }],
  }),
);

async function resolvers(): Promise<readonly string[]> {
  const text = await Deno.readTextFile("/etc/resolv.conf").catch(() => "");
  return [...text.matchAll(/^nameserver (\d+\.\d+\.\d+\.\d+)/gm)].map(([, address]) => address!)
    .filter((address) => !address.startsWith("127."));
}

async function addressesOfLo(scene: RelayScene): Promise<readonly string[]> {
  const text = await scene.cluster.node.ip("addr show dev lo");
  return [...text.matchAll(/inet6? ([^/ ]+)/g)].map(([, address]) => address!);
}

function reasons(status: Parameters<typeof servicesOf>[0]): string {
  return status.families.flatMap(({ quarantined }) => quarantined.map(({ reason }) => reason))
    .join("\n");
}

test("userspace: no address of another machine becomes local, and each says why", async () => {
  await using scene = await RelayScene.create();
  const { cluster: { node, client }, folder } = scene;
  await startEchoServer(client, {
    name: "machine",
    listen: [{ address: IPv4.client, port: 7 }, { address: IPv6.client, port: 7 }],
  });
  const api = await ApiProcess.start(node, `${folder}/kubeconfig`);
  const foreign = [IPv4.client, API_ENDPOINT, ...await resolvers()];
  await api.write([
    ...rawObjects("Node", testNode()),
    otherNode(IPv4.client, IPv6.client),
    ...API_SLICE,
    ...tenant([...foreign, FREE]),
    ...tenant([], [IPv6.client, "2001:db8:50::1"], "IPv6"),
  ]);
  await using relay = scene.start([], { source: [`--kubeconfig=${api.kubeconfig}`] });
  const status = await relay.settled();
  const found = await addressesOfLo(scene);
  for (const address of [...foreign, IPv6.client]) assert(!found.includes(address), address);
  for (const address of [FREE, "2001:db8:50::1"]) assert(found.includes(address), address);
  assertStringIncludes(reasons(status), `${IPv4.client} is an address of node ${OTHER_NODE}`);
  // As ServiceLB of k3s has it, whose Services are to be no problem.
  assert(!reasons(status).includes(IPv6.client), reasons(status));
  assertStringIncludes(reasons(status), `${API_ENDPOINT} is an address of the API server`);
  const probe = ProbeClient.start(node);
  for (const address of [IPv4.client, IPv6.client]) {
    assertEquals(await probe.who({ protocol: "TCP", address, port: 7 }), "machine");
  }
  const said = await RelayProcess.run(node, {
    folder,
    args: [
      "explain",
      IPv4.localPods[0],
      `${IPv4.client}:9`,
      `--control-socket=${folder}/control.sock`,
    ],
  });
  assertStringIncludes(said, `NOT HANDLED: ${IPv4.client} is an address of node ${OTHER_NODE}`);

  // A machine that comes later gets its address back.
  await api.write([otherNode(IPv4.client, IPv6.client, FREE)]);
  await eventually(
    "the address is given up",
    async () => !(await addressesOfLo(scene)).includes(FREE),
  );
  await api.write([otherNode(FREE)]);
  await eventually(
    "a free one is served",
    async () => (await addressesOfLo(scene)).includes(IPv4.client),
  );
});

test("userspace: an address that cuts the node off from the API server is taken back, also after a restart", async () => {
  await using scene = await RelayScene.create();
  const { cluster: { node, client }, folder } = scene;
  const api = await ApiProcess.start(client, `${folder}/kubeconfig`);
  const text = await Deno.readTextFile(api.kubeconfig);
  const port = /127\.0\.0\.1:(\d+)/.exec(text)![1]!;
  // As k3s has it: a local load balancer, whose servers this node is not told.
  client.start("socat", [`TCP4-LISTEN:6443,bind=${IPv4.client},fork`, `TCP4:127.0.0.1:${port}`]);
  node.start("socat", [
    `TCP4-LISTEN:${port},bind=127.0.0.1,fork,reuseaddr`,
    `TCP4:${IPv4.client}:6443,connect-timeout=2`,
  ]);
  await api.write([...rawObjects("Node", testNode()), ...tenant([FREE])]);
  const start = () => scene.start([], { source: [`--kubeconfig=${api.kubeconfig}`] });
  {
    await using relay = start();
    await relay.settled();
    assert((await addressesOfLo(scene)).includes(FREE));
    await api.write(tenant([FREE, IPv4.client]));
    await relay.logged("Addresses of Services had cut this node off", 180_000);
    const status = await relay.until("it is said", (each) => reasons(each) !== "");
    assertStringIncludes(reasons(status), "a machine on the path to the API server");
    const found = await addressesOfLo(scene);
    assertEquals([found.includes(IPv4.client), found.includes(FREE)], [false, true]);
    await relay.kill();
  }
  // An earlier version left the address.
  await api.write([], { deleted: tenant([]) });
  const record = `${folder}/state`;
  for await (const { name } of Deno.readDir(record)) {
    const path = `${record}/${name}`;
    const found = await Deno.readTextFile(path).catch(() => "");
    if (found.includes(FREE)) await replaceFile(path, found.replace(FREE, IPv4.client));
  }
  await node.ip(`addr add ${IPv4.client}/32 dev lo`);
  await using relay = start();
  await relay.logged("Gave up addresses of an earlier run", 60_000);
  await relay.settled();
  assertEquals((await addressesOfLo(scene)).includes(IPv4.client), false);
});
