/**
 * NetworkPolicies in userspace mode on a host without a tool for rules: a whole run relays on loopback,
 * whose addresses are those of pods.
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { askControl } from "../lib/tools/control/control_client.ts";
import type { RawObject } from "./conformance/server.ts";
import { OTHER_NODE } from "./support/builders/address_plan.ts";
import { ask, TcpServer } from "./support/drivers/tcp_peers.ts";
import { UdpPeer } from "./support/drivers/udp_peer.ts";
import { unusedPort } from "./support/drivers/unused_port.ts";
import { missingFeature } from "./support/fakes/fake_host_checks.ts";
import { onlyFrom, PolicyRelay, rawPod, rawPolicy } from "./support/stages/policy_relay.ts";

/** The kernel gives this source address to all that connects to a loopback address. */
const CLIENT = "127.0.0.1";
const WEB = "127.77.96.11";
const OPEN = "127.77.96.12";
const CLUSTER_IP = "127.77.96.1";
const NO_TOOLS = {
  probes: { nftables: [missingFeature("nft")], iptables: [missingFeature("ipset")] },
};

const pods = (label: string) => [
  rawPod("client", CLIENT, { app: label }),
  rawPod("web", WEB, { app: "web" }),
  rawPod("open", OPEN, { app: "open" }),
];

function service(
  name: string,
  { port, endpoints, protocol = "TCP" }: {
    readonly port: number;
    readonly endpoints: readonly string[];
    readonly protocol?: string;
  },
): readonly RawObject[] {
  const [[, target = ""] = []] = endpoints.map((each) => each.split(":"));
  return [{
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "default", name },
    spec: { clusterIP: CLUSTER_IP, clusterIPs: [CLUSTER_IP], ports: [{ port, protocol }] },
  }, {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    addressType: "IPv4",
    metadata: {
      namespace: "default",
      name,
      labels: { "kubernetes.io/service-name": name },
    },
    ports: [{ name: "", port: Number(target), protocol }],
    endpoints: endpoints.map((each) => ({ addresses: [each.split(":")[0]!] })),
  }] as unknown as readonly RawObject[];
}

/** Returns the answer that a client gets; nothing if the connection is closed at once. */
function answerOf(port: number): Promise<string> {
  return ask({ hostname: CLUSTER_IP, port }).catch((error) => {
    if (error instanceof Deno.errors.ConnectionReset || error instanceof Deno.errors.BrokenPipe) {
      return "";
    }
    throw error;
  });
}

async function metric(relay: PolicyRelay, name: string): Promise<number> {
  const line = (await relay.metrics()).find((each) => each.startsWith(`${name}{ip_family="IPv4"`));
  return Number(line?.split(" ").at(-1));
}

Deno.test("userspace mode judges relayed TCP by the client's address, and says what it does not cover", async (t) => {
  const port = unusedPort();
  await using web = TcpServer.named("web", { hostname: WEB });
  await using relay = await PolicyRelay.start({
    isRelaying: true,
    host: NO_TOOLS,
    manifests: {
      "service.yaml": service("web", { port, endpoints: [web.endpoint] }),
      "pods.yaml": pods("other"),
      "policy.yaml": [onlyFrom("friend")],
    },
  });
  await relay.synced();
  const judged = async () => {
    const ends = { from: `default/${CLIENT}`, to: `${WEB}:${web.port}` };
    const { packets: [packet] } = await askControl(relay.socket, "/explain", ends);
    return packet?.policies?.receivers[0]?.isAllowed;
  };
  await t.step(
    "a client that no rule allows is closed, and the endpoint sees nothing",
    async () => {
      await relay.until("it is served", async () => {
        const { families: [family] } = await relay.status();
        return family?.lastSync !== undefined;
      });
      assertEquals([await answerOf(port), web.accepted, await judged()], ["", 0, false]);
      assertEquals(await metric(relay, "kube_relay_userspace_tcp_denied_connections_total"), 1);
      assertEquals(await metric(relay, "kube_relay_userspace_tcp_dial_failures_total"), 0);
    },
  );
  await t.step("status and log say what is not covered", async () => {
    const { controllers: [controller] = [] } = await relay.status();
    assertEquals(controller?.facts.slice(-2), [
      { name: "Relayed", text: "connections are judged by the address of the client" },
      { name: "Limit", text: "direct pod-to-pod traffic is not covered" },
    ]);
    const line = relay.lines.find((each) => each.includes("enforced for relayed connections only"));
    assertStringIncludes(line ?? "", "direct pod-to-pod traffic is not covered");
    assertEquals(relay.planes, [], "no rules are written");
  });
  await t.step("a client that became a friend is relayed", async () => {
    await relay.write("pods.yaml", pods("friend"));
    await relay.until("it is allowed", async () => await answerOf(port) === "web");
    assertEquals(await judged(), true);
  });
  await t.step("a change of policies cuts the open connection that they deny", async () => {
    using connection = await Deno.connect({ hostname: CLUSTER_IP, port });
    await connection.write(new TextEncoder().encode("who?"));
    const buffer = new Uint8Array(16);
    assertEquals(await connection.read(buffer), 3);
    await relay.write("policy.yaml", [onlyFrom("other")]);
    assertEquals(await connection.read(buffer).catch(() => null), null);
    // The client may see the end before the sum of all connections is known.
    await relay.until(
      "it is counted",
      async () => await metric(relay, "kube_relay_network_policy_connections_cut_total") === 1,
    );
    assertEquals(await judged(), false);
  });
  await t.step("egress of the client's pod is judged as well", async () => {
    await relay.write("policy.yaml", []);
    await relay.until("nothing is isolated", async () => await answerOf(port) === "web");
    await relay.write("policy.yaml", [
      rawPolicy("client", {
        podSelector: { matchLabels: { app: "friend" } },
        policyTypes: ["Egress"],
      }),
    ]);
    await relay.until("it is denied", async () => await answerOf(port) === "");
    assertEquals(await judged(), false);
  });
});

Deno.test("userspace mode judges for a pod of another node, which sees the address of this node", async () => {
  const port = unusedPort();
  await using web = TcpServer.named("web", { hostname: WEB });
  const [client, remote, open] = pods("other");
  await using relay = await PolicyRelay.start({
    isRelaying: true,
    host: NO_TOOLS,
    manifests: {
      "service.yaml": service("web", { port, endpoints: [web.endpoint] }),
      "pods.yaml": [client!, { ...remote!, spec: { nodeName: OTHER_NODE, containers: [] } }, open!],
      "policy.yaml": [onlyFrom("friend")],
    },
  });
  await relay.synced();
  await relay.until("it is closed", async () => await answerOf(port).catch(() => "none") === "");
  assertEquals(web.accepted, 0);
  await relay.write("policy.yaml", [onlyFrom("other")]);
  await relay.until("it is relayed", async () => await answerOf(port) === "web");
});

Deno.test("userspace mode picks the endpoint first: one that is denied is not replaced", async () => {
  const port = unusedPort();
  await using web = TcpServer.named("web", { hostname: WEB });
  await using open = TcpServer.named("open", { hostname: OPEN, port: web.port });
  await using relay = await PolicyRelay.start({
    isRelaying: true,
    host: NO_TOOLS,
    manifests: {
      "service.yaml": service("web", { port, endpoints: [web.endpoint, open.endpoint] }),
      "pods.yaml": pods("other"),
      "policy.yaml": [onlyFrom("friend")],
    },
  });
  await relay.synced();
  await relay.until("it relays", async () => await answerOf(port) === "open");
  const answers = [];
  for (let count = 0; count < 4; count++) answers.push(await answerOf(port));
  assertEquals(answers.toSorted(), ["", "", "open", "open"]);
  assertEquals(web.accepted, 0);
});

Deno.test("userspace mode judges while rules cannot be written, and leaves open connections alone if configured so", async () => {
  const port = unusedPort();
  await using web = TcpServer.named("web", { hostname: WEB });
  await using relay = await PolicyRelay.start({
    isRelaying: true,
    args: ["--network-policy-mode=nftables", "--network-policy-cut-connections=false"],
    onPlane: (plane) => plane.start = () => Promise.reject(new Error("no nft")),
    manifests: {
      "service.yaml": service("web", { port, endpoints: [web.endpoint] }),
      "pods.yaml": pods("friend"),
      "policy.yaml": [onlyFrom("friend")],
    },
  });
  const served = () => answerOf(port).catch(() => "none");
  await relay.until("it is relayed", async () => await served() === "web");
  using connection = await Deno.connect({ hostname: CLUSTER_IP, port });
  const asked = async () => {
    const buffer = new Uint8Array(16);
    await connection.write(new TextEncoder().encode("who?"));
    return await connection.read(buffer);
  };
  assertEquals(await asked(), 3);
  await relay.write("policy.yaml", [onlyFrom("other")]);
  await relay.until("new connections are denied", async () => await served() === "");
  assertEquals(await asked(), 3);
  const { controllers: [controller] = [] } = await relay.status();
  assertEquals(controller?.families[0]?.lastError, "no nft");
  assertEquals(controller?.facts.at(-1)?.text, "direct pod-to-pod traffic is not covered");
});

Deno.test("userspace mode drops denied datagrams, and ends flows that are denied later", async () => {
  const port = unusedPort();
  await using web = UdpPeer.open({ hostname: WEB, answer: (text) => `web ${text}` });
  await using friend = UdpPeer.open({ hostname: "127.77.96.21" });
  await using other = UdpPeer.open({ hostname: "127.77.96.22" });
  const to = { hostname: CLUSTER_IP, port };
  const manifests = (...more: readonly RawObject[]) => [
    ...pods("client"),
    rawPod("friend", "127.77.96.21", { app: "friend" }),
    ...more,
  ];
  await using relay = await PolicyRelay.start({
    isRelaying: true,
    host: NO_TOOLS,
    manifests: {
      "service.yaml": service("web", { port, endpoints: [web.endpoint], protocol: "UDP" }),
      "pods.yaml": manifests(rawPod("other", "127.77.96.22", { app: "other" })),
      "policy.yaml": [onlyFrom("friend")],
    },
  });
  await relay.synced();
  await relay.until("the flow of a friend is relayed", async () => {
    await friend.send("hello", to);
    return await friend.next(1000).then(({ text }) => text === "web hello", () => false);
  });
  await other.send("hello", to);
  const denied = () => metric(relay, "kube_relay_userspace_udp_denied_datagrams_total");
  await relay.until("the datagram is dropped", async () => await denied() === 1);
  const received = web.pending;

  await relay.write("policy.yaml", [onlyFrom("other")]);
  const cut = () => metric(relay, "kube_relay_network_policy_connections_cut_total");
  await relay.until("the flow is cut", async () => await cut() === 1);
  await friend.send("again", to);
  await relay.until("its next datagram is dropped", async () => await denied() === 2);
  await other.send("hello", to);
  assertEquals((await other.next()).text, "web hello");
  assert(web.pending <= received + 1);
  await assertRejects(() => friend.next(1));
});

Deno.test("connections that userspace mode relays are not deleted from the kernel's table", async () => {
  const port = unusedPort();
  await using web = TcpServer.named("web", { hostname: WEB });
  await using relay = await PolicyRelay.start({
    isRelaying: true,
    manifests: {
      "service.yaml": service("web", { port, endpoints: [web.endpoint] }),
      "pods.yaml": pods("other"),
      "policy.yaml": [],
    },
  });
  await relay.until("it is relayed", async () => {
    return await answerOf(port).catch(() => "none") === "web";
  });
  const line = (to: string) =>
    `tcp 6 431999 ESTABLISHED src=${OPEN} dst=${to} sport=40000 dport=80 src=${to} dst=${OPEN} ` +
    "sport=80 dport=40000 [ASSURED] mark=0 use=1\n";
  relay.commands.on("conntrack -L", { stdout: line(CLUSTER_IP) + line(WEB) });
  await relay.write("policy.yaml", [
    rawPolicy("open", { podSelector: { matchLabels: { app: "open" } }, policyTypes: ["Egress"] }),
  ]);
  const deletions = () =>
    relay.commands.calls.filter(({ line }) => line.startsWith("conntrack -R"))
      .flatMap(({ stdin }) => stdin.trimEnd().split("\n"));
  await relay.until("the direct connection is deleted", () => deletions().length > 0);
  assertEquals(deletions().length, 1);
  assertStringIncludes(deletions()[0]!, WEB);
});
