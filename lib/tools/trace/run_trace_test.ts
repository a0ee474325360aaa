import { assertEquals, assertRejects } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { type IpAddress, parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import { type Clock, systemClock } from "../../os/clock.ts";
import { type Network, systemNetwork } from "../../os/network.ts";
import type { Packet } from "../../proxy/packet.ts";
import {
  type PacketHeader,
  type TracedPath,
  TraceError,
  type WatchedPacket,
} from "../../proxy/packet_trace.ts";
import type { ExplainedPacket, ExplainReport } from "../explain/explain_report.ts";
import { PacketEndsError } from "../explain/packet_ends.ts";
import { runTrace } from "./run_trace.ts";

const LOOPBACK = parseIpAddress("127.0.0.1");
const POD = parseIpAddress("10.0.0.9");
const VIP = parseIpAddress("10.96.0.1");

function explained(kind: Packet["from"]["kind"], rest: Partial<Packet> = {}): ExplainedPacket {
  const address = kind === "node" ? LOOPBACK : POD;
  const packet = {
    from: { kind, address },
    to: VIP,
    port: parsePort(80),
    protocol: "TCP",
  } as const;
  return {
    family: rest.to?.includes(":") ? "IPv6" : "IPv4",
    packet: { ...packet, ...rest },
    headline: "NOT HANDLED",
    verdict: { kind: "unclaimed", why: "no-service", outcome: "passes" },
    endpoints: [],
  } as unknown as ExplainedPacket;
}

/** Its timers strike at once. */
const LATE: Clock = { ...systemClock, setTimer: (_, strike) => systemClock.setTimer(0, strike) };

/** Runs a trace; the watch sees this header. */
async function trace(
  from: string,
  packets: readonly ExplainedPacket[],
  { header, network = systemNetwork, isSeen = true, clock = systemClock }: {
    readonly clock?: Clock;
    readonly header?: PacketHeader;
    readonly network?: Network;
    readonly isSeen?: boolean;
  } = {},
) {
  const asked: string[] = [];
  const watched: WatchedPacket[] = [];
  const commands = new FakeCommandRunner().on("conntrack", { code: 1, stderr: "no rights" });
  const report = { from, to: "ns1/web", mode: "nftables", nodeName: "a", assumptions: [], packets };
  const path: TracedPath = {
    steps: [],
    ending: header ? "went on" : "not seen",
    ...(header && { header }),
    notes: [],
  };
  const traced = await runTrace({ clock, network, commands }, report as unknown as ExplainReport, {
    explain: (ends) => {
      asked.push(`${ends.from} to ${ends.to}`);
      return Promise.resolve(report as unknown as ExplainReport);
    },
    start: (packet) => {
      watched.push(packet);
      return Promise.resolve({
        way: "a test",
        seen: isSeen ? Promise.resolve() : new Promise<never>(() => {}),
        path: () => Promise.resolve(path),
        [Symbol.asyncDispose]: () => Promise.resolve(),
      });
    },
    waitMs: 20_000,
    signal: new AbortController().signal,
    onWaiting: () => {},
  });
  const { origin } = traced;
  return { traced, asked, watched: watched[0]!, result: origin.kind === "sent" && origin.result };
}

const toPort = (port: number, rest: Partial<Packet> = {}) =>
  explained("node", { to: LOOPBACK, port: parsePort(port), ...rest });

Deno.test("a SYN of the node is sent from the port that is watched", async () => {
  const listener = systemNetwork.listenTcp({ hostname: LOOPBACK, port: 0 });
  const accepted = listener.accept();
  const { watched, result } = await trace("node", [toPort(listener.addr.port)]);
  const connection = await accepted;
  assertEquals(connection.remoteAddr.port as number, watched.sourcePort);
  assertEquals(await connection.read(new Uint8Array(8)), null);
  connection.close();
  listener.close();
  assertEquals([watched.comesFrom, watched.from], ["this machine", undefined]);
  assertEquals(result, "connected, and closed at once");
  const refused = await trace("127.0.0.1", [toPort(listener.addr.port)]);
  assertEquals([refused.watched.from, refused.result], [LOOPBACK, "refused"]);
  assertEquals(refused.traced.outcome, { kind: "rejected" });
});

Deno.test("one datagram of one byte is sent, and its answer read", async () => {
  const server = systemNetwork.listenUdp({ hostname: LOOPBACK, port: 0 });
  const udp = toPort(server.addr.port, { protocol: "UDP" });
  const sending = trace("node", [udp]);
  const [datagram, client] = await server.receive(new Uint8Array(8));
  await server.send(new Uint8Array(1), client);
  const { watched, result } = await sending;
  assertEquals([datagram.length, client.port as number], [1, watched.sourcePort!]);
  assertEquals(result, "answered");
  const silent = await trace("node", [udp], { clock: LATE });
  assertEquals(silent.result, "no answer within 0.4 s, as is usual with UDP");
  server.close();
});

Deno.test("a missing route is reported: no rule is ever asked then", async () => {
  const tryConnectTcp = () =>
    Promise.reject(Object.assign(new Error("os error 101"), { code: "ENETUNREACH" }));
  const { result, traced } = await trace("node", [explained("node")], {
    network: { ...systemNetwork, tryConnectTcp },
  });
  assertEquals(`${result}`.startsWith("not sent: this machine has no route"), true);
  assertEquals([traced.outcome.kind, traced.comparison], ["not seen", undefined]);
});

Deno.test("packets that cannot be sent are named", async () => {
  const sctp = trace("node", [toPort(80, { protocol: "SCTP" })]);
  await assertRejects(() => sctp, TraceError, "only TCP and UDP");
  const from = { kind: "node", address: parseIpAddress("192.0.2.1") } as const;
  const foreign = trace("192.0.2.1", [toPort(80, { from })]);
  await assertRejects(() => foreign, TraceError, "Cannot send from 192.0.2.1");
});

for (
  const [from, kind, arrivedBy, source, sender] of [
    ["ns1/10.0.0.9", "pod", undefined, POD, "ns1/10.0.0.9"],
    ["10.0.0.9@cni0", "pod", "eth0", POD, "10.0.0.9@cni0"],
    ["outside", "outside", "eth0", undefined, "203.0.113.7@eth0"],
  ] as const
) {
  Deno.test(`a packet from ${from} is waited for, and explained as it was seen`, async () => {
    const header = {
      source: parseIpAddress("203.0.113.7"),
      destination: VIP,
      sourcePort: 4000,
      ...(arrivedBy && { arrivedBy }),
    };
    const { watched, asked, traced } = await trace(from, [explained(kind)], { header });
    assertEquals<[string, IpAddress | undefined]>(
      [watched.comesFrom, watched.from],
      ["elsewhere", source],
    );
    assertEquals(asked, [`${sender} to 10.96.0.1:80/TCP`]);
    assertEquals([traced.packet.from, traced.packet.sourcePort], [header.source, 4000]);
    assertEquals(traced.notes, [
      "Connection tracking could not be asked: Cannot run 'conntrack -L': no rights",
    ]);
  });
}

Deno.test("a packet that never comes, or whose path is not seen, ends the trace", async () => {
  const late = trace("outside", [explained("outside")], { isSeen: false, clock: LATE });
  await assertRejects(
    () => late,
    TraceError,
    "no packet was seen within 20 s; expected a new TCP",
  );
  const lost = trace("outside", [explained("outside")]);
  await assertRejects(() => lost, TraceError, "its path was not");
});

Deno.test("the first IP family is traced, and several ports are refused", async () => {
  const [four, six] = [toPort(1), explained("node", { to: parseIpAddress("::1") })];
  assertEquals((await trace("node", [four, six])).watched.family, "IPv4");
  const several = trace("node", [four, six, toPort(2)]);
  await assertRejects(
    () => several,
    PacketEndsError,
    "'ns1/web' may be 127.0.0.1:1/TCP, 127.0.0.1:2/TCP; name one",
  );
});
