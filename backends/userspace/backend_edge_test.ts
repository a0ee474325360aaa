import { assert, assertEquals } from "@std/assert";
import { connect } from "node:net";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { ConnectionJudge } from "../../lib/policy/connection_judge.ts";
import { PolicyPlanner } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import type { EdgeSettings } from "../../lib/proxy/edge_settings.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { eventually } from "../../tests/support/eventually.ts";
import { IPV4_PLAN, setPod, setPolicy } from "../../tests/support/builders/policy_objects.ts";
import {
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import {
  ask,
  isRefused,
  readToEnd,
  TcpServer,
  writeFully,
} from "../../tests/support/drivers/tcp_peers.ts";
import { UdpPeer } from "../../tests/support/drivers/udp_peer.ts";
import { unusedPort } from "../../tests/support/drivers/unused_port.ts";
import { withFolder } from "../../tests/support/with_folder.ts";
import { TestUserspaceBackend } from "../../tests/support/stages/userspace_backend.ts";

const VIP = "127.96.18.2";
const LOOPBACK = [parseCidr("127.0.0.0/8")];
const encoder = new TextEncoder();

/** Answers with everything that it got. */
function echo(): TcpServer {
  return TcpServer.start(async (connection) => {
    const { text } = await readToEnd(connection);
    await writeFully(connection, encoder.encode(text));
  });
}

function planOf(edge: EdgeSettings, to: string, more: TestServicePlan = {}): ServicePlan {
  return testServicePlan({ clusterIp: VIP, port: unusedPort(), to: [to], edge, ...more });
}

function placeOf({ clusterIp, port }: ServicePlan) {
  return { hostname: clusterIp as string, port: port as number };
}

async function exchange(plan: ServicePlan, ...pieces: readonly string[]): Promise<string> {
  using connection = await Deno.connect(placeOf(plan));
  for (const piece of pieces) await writeFully(connection, encoder.encode(piece));
  await connection.closeWrite();
  try {
    return (await readToEnd(connection)).text;
  } catch {
    return "(reset)";
  }
}

/** Connects from another address of loopback, and returns the whole answer. */
function askFrom(localAddress: string, plan: ServicePlan): Promise<string> {
  return new Promise((resolve) => {
    let text = "";
    const socket = connect({ host: plan.clusterIp, port: plan.port, localAddress });
    socket.on("connect", () => socket.end("who?"));
    socket.on("data", (data: Uint8Array) => text += new TextDecoder().decode(data));
    socket.on("error", () => {});
    socket.on("close", () => resolve(text));
  });
}

Deno.test("UserspaceBackend passes the addresses of a header on to the endpoint", async () => {
  await using endpoint = echo();
  await using test = new TestUserspaceBackend();
  const plan = planOf({ acceptProxyFrom: LOOPBACK, sendProxy: "v1" }, endpoint.endpoint);
  await test.sync([plan]);
  const header = "PROXY TCP6 2001:db8::7 2001:db8::1 51000 443\r\n";
  assertEquals(await exchange(plan, header, "hello"), `${header}hello`);
  assertEquals(await exchange(plan, `${header}hel`, "lo"), `${header}hello`);
  const own = await exchange(plan, "PROXY UNKNOWN\r\nhello");
  assert(own.startsWith("PROXY TCP4 127.0.0.1 127.96.18.2 "), own);
});

Deno.test("UserspaceBackend takes no header from a client that is not trusted", async () => {
  await using endpoint = echo();
  await using test = new TestUserspaceBackend();
  const edge = { acceptProxyFrom: [parseCidr("127.0.0.9/32")] };
  const plan = planOf(edge, endpoint.endpoint);
  await test.sync([plan]);
  const forged = "PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\nhello";
  assertEquals(await exchange(plan, forged), forged);
  assertEquals(await askFrom("127.0.0.9", plan), "");
  assertEquals((await test.counters()).proxyHeaderErrors, 1);
});

Deno.test("UserspaceBackend closes a trusted client without a valid header and counts it", async () => {
  await using endpoint = echo();
  await using test = new TestUserspaceBackend();
  const plan = planOf({ acceptProxyFrom: LOOPBACK }, endpoint.endpoint);
  await test.sync([plan]);
  for (const text of ["GET / HTTP/1.1\r\n\r\n", "PROXY TCP4 1.2.3.4", "PROXY TCP4 a b c d\r\n"]) {
    const answer = await exchange(plan, text);
    assert(answer === "" || answer === "(reset)", answer);
  }
  const { counters } = test.backend.connections;
  await test.counters();
  assertEquals([counters.proxyHeaderErrors, counters.tcpRefused], [3, 3]);
  assertEquals(endpoint.accepted, 0);
  // As a health check of a load balancer: no error.
  assertEquals(await exchange(plan), "");
  await test.counters();
  assertEquals(counters.proxyHeaderErrors, 3);
  assertEquals(test.logger.lines[0]?.fields.reason, "it does not begin with a PROXY header");
});

Deno.test("UserspaceBackend closes a trusted client whose header does not come in time", async () => {
  await using endpoint = echo();
  await using test = new TestUserspaceBackend();
  const plan = planOf({ acceptProxyFrom: LOOPBACK, proxyTimeoutMs: 1_000 }, endpoint.endpoint);
  await test.sync([plan]);
  using connection = await Deno.connect(placeOf(plan));
  await writeFully(connection, encoder.encode("PROXY "));
  assertEquals((await readToEnd(connection)).bytes, 0);
  await eventually("it is counted", async () => (await test.counters()).proxyHeaderErrors === 1);
});

Deno.test("UserspaceBackend admits clients while others have not sent their header", async () => {
  await using endpoint = echo();
  await using test = new TestUserspaceBackend();
  const plan = planOf({ acceptProxyFrom: LOOPBACK, maxConnections: 1 }, endpoint.endpoint);
  await test.sync([plan]);
  using _silent = await Deno.connect(placeOf(plan));
  using _begun = await Deno.connect(placeOf(plan));
  await writeFully(_begun, encoder.encode("PROXY "));
  const header = "PROXY TCP4 192.0.2.1 10.0.0.1 1 2\r\n";
  assertEquals(await exchange(plan, `${header}hello`), "hello");
});

Deno.test("UserspaceBackend applies source ranges, affinity and limits to the carried address", async () => {
  await using one = TcpServer.named("one");
  await using two = TcpServer.named("two");
  await using test = new TestUserspaceBackend();
  const plan = testServicePlan({
    clusterIp: "127.96.18.3",
    port: unusedPort(),
    loadBalancerVips: [VIP],
    sourceRanges: [parseCidr("192.0.2.0/24")],
    affinityTimeoutSeconds: 60,
    to: [one.endpoint, two.endpoint].sort(),
    edge: { acceptProxyFrom: LOOPBACK, maxPerClient: 1 },
  });
  await test.sync([plan]);
  const at = { ...plan, clusterIp: plan.loadBalancerVips[0]! };
  const from = (client: string) => exchange(at, `PROXY TCP4 ${client} 10.0.0.1 1 2\r\n`, "who?");
  const first = await from("192.0.2.1");
  // Each worker has a rotation of its own.
  let [other, second] = ["", first];
  for (let host = 2; host < 30 && second === first; host++) {
    other = `192.0.2.${host}`;
    second = await from(other);
  }
  assert(first !== second && first !== "", `${first} ${second}`);
  assertEquals([await from("192.0.2.1"), await from(other)], [first, second]);
  const { counters } = test.backend.connections;
  const refused = await from("198.51.100.1");
  assert(refused === "" || refused === "(reset)", refused);
  await test.counters();
  assertEquals([counters.tcpRefused, counters.tcpLimited], [1, 0]);
  using open = await Deno.connect({ hostname: VIP, port: plan.port });
  await writeFully(open, encoder.encode("PROXY TCP4 192.0.2.1 10.0.0.1 1 2\r\nwho?"));
  await open.read(new Uint8Array(10));
  assert(["", "(reset)"].includes(await from("192.0.2.1")));
  assertEquals(await from(other), second);
  await test.counters();
  assertEquals([counters.tcpRefused, counters.tcpLimited], [2, 1]);
});

/** Only a pod at 10.1.0.3 may connect to the pod at the address. */
function judgeOf(address: string): ConnectionJudge {
  const state = new PolicyState();
  const judge = new ConnectionJudge();
  setPod(state, "default/web", { address, labels: { app: "web" } });
  setPod(state, "default/friend", { address: "10.1.0.3", labels: { app: "friend" } });
  setPolicy(state, "default/web", {
    podSelector: { matchLabels: { app: "web" } },
    policyTypes: ["Ingress"],
    ingress: [{ from: [{ podSelector: { matchLabels: { app: "friend" } } }] }],
  });
  const planner = new PolicyPlanner(state, { ...IPV4_PLAN, includesRemotePods: true });
  planner.setOptions({ deny: { action: "reject" }, closedRanges: [] });
  const changes = planner.update();
  for (const _ of judge.takeInSteps(planner.plan, changes));
  return judge;
}

Deno.test("UserspaceBackend judges the carried address by NetworkPolicies and shows it to watches", async () => {
  const pod = "127.44.18.5";
  await using endpoint = TcpServer.start(async (connection) => {
    await readToEnd(connection);
    await writeFully(connection, encoder.encode("a"));
  }, { hostname: pod });
  await using test = new TestUserspaceBackend({ judge: judgeOf(pod) });
  const plan = planOf({ acceptProxyFrom: LOOPBACK }, endpoint.endpoint);
  await test.sync([plan]);
  const { counters, watches } = test.backend.connections;
  const query = { protocol: "TCP", to: plan.clusterIp, port: plan.port } as const;
  const watch = () => watches.ask("test", { query, now: systemClock.now() });
  watch();
  const from = (client: string) => exchange(plan, `PROXY TCP4 ${client} 10.0.0.1 7 2\r\n`, "who?");
  assertEquals(await from("10.1.0.3"), "a");
  assert(["", "(reset)"].includes(await from("10.1.0.4")));
  await test.counters();
  assertEquals(counters.tcpDenied, 1);
  const seen = watch().map(({ client, clientPort }) => `${client} ${clientPort}`);
  assertEquals(seen, ["10.1.0.3 7", "10.1.0.4 7"]);
});

Deno.test("UserspaceBackend refuses connections above the limits of a Service, and admits again", async () => {
  await using endpoint = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const plan = planOf({ maxConnections: 3, maxPerClient: 2 }, endpoint.endpoint);
  await test.sync([plan]);
  const { counters } = test.backend.connections;
  const hold = async () => {
    const connection = await Deno.connect(placeOf(plan));
    await connection.write(encoder.encode("x"));
    const count = await connection.read(new Uint8Array(9)).catch(() => null);
    return { connection, isServed: count === 1 };
  };
  const held = [await hold(), await hold(), await hold()];
  assertEquals(held.map(({ isServed }) => isServed), [true, true, false]);
  assertEquals(await askFrom("127.0.0.8", plan), "a");
  const open = (count: number) =>
    eventually(`${count} are open`, async () => {
      const [service] = (await test.backend.inspect()).services;
      return service?.connections === count;
    });
  // That client's connection ends a moment after its answer.
  await open(2);
  const third = connect({ host: VIP, port: plan.port, localAddress: "127.0.0.8" });
  third.on("error", () => {});
  await new Promise((resolve) => third.once("connect", resolve));
  await open(3);
  assertEquals(await askFrom("127.0.0.7", plan), "");
  await test.counters();
  assertEquals([counters.tcpLimited, counters.tcpRefused], [2, 2]);
  third.destroy();
  for (const { connection } of held) connection.close();
  // One that is refused may be reset, if its question has come before.
  const answer = () => ask(placeOf(plan)).catch(() => "");
  await eventually("a client is admitted again", async () => await answer() === "a");
});

Deno.test("UserspaceBackend refuses connections that come faster than the limit of a Service", async () => {
  await using endpoint = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const plan = planOf({ maxPerSecond: 5 }, endpoint.endpoint);
  await test.sync([plan]);
  const started = performance.now();
  const answers = await Promise.all(Array.from({ length: 30 }, () => exchange(plan, "who?")));
  const served = answers.filter((answer) => answer === "a").length;
  const most = 5 + 5 * (performance.now() - started) / 1000;
  assert(served >= 5 && served <= most, `${served} of at most ${most}`);
  assertEquals((await test.counters()).tcpLimited, 30 - served);
  await eventually("the rate recovers", async () => await exchange(plan, "who?") === "a");
});

Deno.test("UserspaceBackend ends connections after the idle time and the lifetime of a Service", async () => {
  await using endpoint = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const idle = planOf({ idleMs: 200 }, endpoint.endpoint, { name: "idle" });
  const life = planOf({ lifetimeMs: 300 }, endpoint.endpoint, { name: "life" });
  await test.sync([idle, life]);
  const talk = async (plan: ServicePlan, rounds: number) => {
    // The time of a connection may begin before this side knows that it is open.
    const started = performance.now();
    using connection = await Deno.connect(placeOf(plan));
    for (let round = 0; round < rounds; round++) {
      const sent = await connection.write(encoder.encode("x")).catch(() => null);
      if (sent === null || await connection.read(new Uint8Array(9)).catch(() => null) === null) {
        break;
      }
    }
    await readToEnd(connection).catch(() => {});
    return performance.now() - started;
  };
  const [silent, busy] = await Promise.all([talk(idle, 1), talk(life, Infinity)]);
  assert(silent >= 190 && busy >= 290, `${silent} ${busy}`);
  assertEquals((await test.counters()).tcpExpired, 2);
});

Deno.test("UserspaceBackend puts a header before each datagram where the endpoint wants it", async () => {
  await using endpoint = UdpPeer.open({ answer: (text) => text.slice(-3) });
  await using client = UdpPeer.open();
  await using test = new TestUserspaceBackend();
  const at = {
    clusterIp: VIP,
    port: unusedPort(),
    protocol: "UDP",
    to: [endpoint.endpoint],
  } as const;
  await test.sync([testServicePlan({ ...at, edge: { sendProxyUdp: "v2" } })]);
  for (const text of ["one", "two"]) {
    await client.send(text, { hostname: VIP, port: at.port });
    assertEquals((await client.next()).text, text);
    assertEquals((await endpoint.next()).bytes, 28 + 3);
  }
  await test.sync([testServicePlan(at)]);
  await client.send("six", { hostname: VIP, port: at.port });
  assertEquals((await client.next()).text, "six");
  assertEquals((await endpoint.next()).bytes, 3);
});

Deno.test("UserspaceBackend limits the flows of a Service and of a client, and ends them in time", async () => {
  await using endpoint = UdpPeer.open({ answer: () => "yes" });
  await using one = UdpPeer.open();
  await using two = UdpPeer.open();
  await using other = UdpPeer.open({ hostname: "127.0.0.8" });
  await using test = new TestUserspaceBackend();
  const at = {
    clusterIp: VIP,
    port: unusedPort(),
    protocol: "UDP",
    to: [endpoint.endpoint],
  } as const;
  await test.sync([testServicePlan({ ...at, edge: { maxPerClient: 1, lifetimeMs: 2_000 } })]);
  const to = { hostname: VIP, port: at.port };
  const { counters } = test.backend.connections;
  await one.send("a", to);
  assertEquals((await one.next()).text, "yes");
  await two.send("b", to);
  await eventually(
    "the second flow is refused",
    async () => (await test.counters()).udpLimited === 1,
  );
  await other.send("c", to);
  assertEquals((await other.next()).text, "yes");
  await test.counters();
  assertEquals([counters.udpFlows, counters.udpDropped], [2, 1]);
  await eventually("both flows end", async () => (await test.counters()).udpExpired === 2);
  await two.send("d", to);
  assertEquals((await two.next()).text, "yes");
});

Deno.test("UserspaceBackend applies other settings to new connections at the next sync", async () => {
  await using endpoint = echo();
  await using test = new TestUserspaceBackend();
  const plan = planOf({}, endpoint.endpoint);
  await test.sync([plan]);
  assertEquals(await exchange(plan, "hello"), "hello");
  await test.sync([{ ...plan, edge: { sendProxy: "v1" } }]);
  assert((await exchange(plan, "hello")).startsWith("PROXY TCP4 "));
  await test.sync([{ ...plan, edge: { maxConnections: 1, acceptProxyFrom: LOOPBACK } }]);
  assertEquals(await exchange(plan, "PROXY UNKNOWN\r\nhello"), "hello");
  const { edge: _, ...plain } = plan;
  await test.sync([plain]);
  assertEquals(await exchange(plan, "hello"), "hello");
  await test.sync([]);
  assert(await isRefused(placeOf(plan)));
});

/** A server at a Unix socket that answers with everything that it got. */
function echoAt(path: string): AsyncDisposable {
  const listener = Deno.listen({ transport: "unix", path });
  const done = (async () => {
    for await (const connection of listener) {
      const buffer = new Uint8Array(1000);
      let text = "";
      for (let count; (count = await connection.read(buffer)) !== null;) {
        text += new TextDecoder().decode(buffer.subarray(0, count));
      }
      await connection.write(encoder.encode(text));
      connection.close();
    }
  })();
  return {
    async [Symbol.asyncDispose]() {
      listener.close();
      await done;
    },
  };
}

Deno.test("UserspaceBackend reaches an endpoint at a Unix socket in an allowed folder only", () =>
  withFolder(async (folder) => {
    const [allowed, other] = [`${folder}/allowed`, `${folder}/allowed-not`];
    for (const each of [allowed, other]) await Deno.mkdir(each);
    await using _inside = echoAt(`${allowed}/app.sock`);
    await using _outside = echoAt(`${other}/app.sock`);
    await Deno.symlink(`${other}/app.sock`, `${allowed}/link.sock`);
    await using test = new TestUserspaceBackend({ unixSocketFolders: [allowed] });
    const at = { address: parseIpAddress("127.0.0.1"), port: parsePort(unusedPort()) };
    const plan = planOf({}, `${at.address}:${at.port}`);
    const edge = (path: string): EdgeSettings => ({
      unixSockets: [{ ...at, path }],
      sendProxy: "v1",
      balance: "least-connections",
    });
    await test.sync([{ ...plan, edge: edge(`${allowed}/app.sock`) }]);
    const answer = await exchange(plan, "hello");
    assert(/^PROXY TCP4 127\.0\.0\.1 127\.96\.18\.2 \d+ \d+\r\nhello$/.test(answer), answer);
    for (const path of [`${other}/app.sock`, `${allowed}/link.sock`, `${allowed}/none.sock`]) {
      await test.sync([{ ...plan, edge: edge(path) }]);
      assert(["", "(reset)"].includes(await exchange(plan, "hello")), path);
    }
    const [{ message = "", fields = {} } = {}] = test.logger.lines;
    assertEquals(message, "Cannot connect to any endpoint");
    assert(String(fields.attempts).includes("is in no folder of --unix-socket-folders"));
  }));
