import { assertEquals, assertThrows } from "@std/assert";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import { systemClock } from "../../os/clock.ts";
import { systemNetwork } from "../../os/network.ts";
import { TraceError, type WatchedPacket } from "../../proxy/packet_trace.ts";
import { preparePacket } from "./send_packet.ts";

const EDGES = { clock: systemClock, network: systemNetwork };
const LOOPBACK = parseIpAddress("127.0.0.1");
const NEVER = new AbortController().signal;

function packetTo(port: number, rest: Partial<WatchedPacket> = {}): WatchedPacket {
  return {
    family: "IPv4",
    from: LOOPBACK,
    to: LOOPBACK,
    port: parsePort(port),
    protocol: "TCP",
    comesFrom: "this machine",
    ...rest,
  };
}

Deno.test("preparePacket() sends a SYN from the port that it reported", async () => {
  const listener = systemNetwork.listenTcp({ hostname: LOOPBACK, port: 0 });
  using packet = preparePacket(EDGES, packetTo(listener.addr.port));
  const accepted = listener.accept();
  const origin = await packet.send(NEVER);
  const connection = await accepted;
  assertEquals(connection.remoteAddr.port, packet.sourcePort);
  assertEquals(await connection.read(new Uint8Array(8)), null);
  connection.close();
  listener.close();
  assertEquals(origin, {
    kind: "sent",
    what: "a TCP SYN",
    result: "connected, and closed at once",
  });
  using refused = preparePacket(EDGES, packetTo(listener.addr.port));
  assertEquals((await refused.send(NEVER) as { result: string }).result, "refused");
});

Deno.test("preparePacket() sends one datagram of one byte, and reads an answer", async () => {
  const server = systemNetwork.listenUdp({ hostname: LOOPBACK, port: 0 });
  using packet = preparePacket(EDGES, packetTo(server.addr.port, { protocol: "UDP" }));
  const sending = packet.send(NEVER);
  const [datagram, client] = await server.receive(new Uint8Array(8));
  assertEquals([datagram.length, client.port], [1, packet.sourcePort]);
  await server.send(new Uint8Array(1), client);
  assertEquals((await sending as { result: string }).result, "answered");
  server.close();
});

Deno.test("preparePacket() stops waiting when it is enough", async () => {
  const server = systemNetwork.listenUdp({ hostname: LOOPBACK, port: 0 });
  using packet = preparePacket(EDGES, packetTo(server.addr.port, { protocol: "UDP" }));
  const { result } = await packet.send(AbortSignal.abort()) as { result: string };
  assertEquals(result.startsWith("no answer"), true, result);
  server.close();
});

Deno.test("preparePacket() reports a missing route: no rule is ever asked then", async () => {
  const tryConnectTcp = () =>
    Promise.reject(Object.assign(new Error("os error 101"), { code: "ENETUNREACH" }));
  using packet = preparePacket(
    { ...EDGES, network: { ...systemNetwork, tryConnectTcp } },
    packetTo(80),
  );
  const { result } = await packet.send(NEVER) as { result: string };
  assertEquals(result.startsWith("not sent: this machine has no route"), true, result);
});

Deno.test("preparePacket() names packets that it cannot send", () => {
  assertThrows(
    () => preparePacket(EDGES, packetTo(80, { protocol: "SCTP" })),
    TraceError,
    "only TCP and UDP",
  );
  assertThrows(
    () => preparePacket(EDGES, packetTo(80, { from: parseIpAddress("192.0.2.1") })),
    TraceError,
    "Cannot send from 192.0.2.1",
  );
});
