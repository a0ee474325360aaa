import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { DrainList, isDrained } from "./drain_list.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import { type RealServerKey, realServerKey, serverKey } from "./virtual_server.ts";

const SERVER = serverKey({ protocol: "TCP", address: parseIpAddress("10.96.0.1"), port: 80 });
const REAL = realServerKey(parseIpAddress("10.0.0.1"), 8080);
const OTHER = realServerKey(parseIpAddress("10.0.0.2"), 8080);
const MINUTE = 60_000;

/** Returns the state of the server in the kernel. */
function seen(
  ...reals: readonly { key: RealServerKey; weight?: number; active?: number; inactive?: number }[]
): SeenServer[] {
  const defaults = { forwarding: "masquerade", weight: 0, active: 0, inactive: 0 } as const;
  return [{
    key: SERVER,
    scheduler: "rr",
    isOnePacket: false,
    reals: reals.map((real) => ({ ...defaults, ...real })),
  }];
}

function lines(list: DrainList, servers: readonly SeenServer[], nowMs: number): string[] {
  return list.due(servers, nowMs).map(({ server, real }) => `${server} ${real}`);
}

function listWith(timeoutMs: number, ...reals: readonly RealServerKey[]): DrainList {
  const list = new DrainList(timeoutMs);
  for (const real of reals) list.add(SERVER, real, 0);
  return list;
}

const GONE = "-t 10.96.0.1:80 10.0.0.1:8080";

Deno.test("DrainList removes a real server when its last connection has ended", () => {
  const list = listWith(15 * MINUTE, REAL);
  assertEquals(lines(list, seen({ key: REAL, active: 1 }), MINUTE), []);
  assertEquals(lines(list, seen({ key: REAL, inactive: 2 }), 2 * MINUTE), []);
  assertEquals(lines(list, seen({ key: REAL }), 3 * MINUTE), [GONE]);
  assertEquals(list.size, 1, "it is on the list until the kernel has taken it");
  list.remove(SERVER, REAL);
  assertEquals(list.size, 0);
});

Deno.test("DrainList removes a real server when its time is over, even with connections", () => {
  const list = listWith(15 * MINUTE, REAL);
  assertEquals(lines(list, seen({ key: REAL, active: 9 }), 15 * MINUTE - 1), []);
  assertEquals(lines(list, seen({ key: REAL, active: 9 }), 15 * MINUTE), [GONE]);
});

Deno.test("DrainList waits as long as connections like with a time-out of 0", () => {
  assertEquals(lines(listWith(0, REAL), seen({ key: REAL, active: 1 }), 1e12), []);
});

Deno.test("DrainList ignores a real server that another program removed, or gave a weight", () => {
  const list = listWith(MINUTE, REAL, OTHER);
  assertEquals(lines(list, seen({ key: OTHER, weight: 5 }), 2 * MINUTE), []);
  assertEquals(list.size, 0);
});

Deno.test("DrainList.add() keeps the time of a real server that drains already", () => {
  const list = listWith(10 * MINUTE, REAL);
  list.add(SERVER, REAL, 9 * MINUTE);
  assertEquals(lines(list, seen({ key: REAL, active: 1 }), 10 * MINUTE), [GONE]);
});

Deno.test("DrainList.remove() forgets one real server, or all of a virtual one", () => {
  const list = listWith(0, REAL, OTHER);
  list.remove(SERVER, REAL);
  assertEquals([list.has(SERVER, REAL), list.has(SERVER, OTHER)], [false, true]);
  list.remove(SERVER);
  assertEquals(list.size, 0);
});

Deno.test("isDrained() waits for connections of TCP only", () => {
  const address = parseIpAddress("fd00::1");
  const isSo = (["TCP", "UDP", "SCTP"] as const).map((protocol) =>
    isDrained(serverKey({ protocol, address, port: 1 }))
  );
  assertEquals(isSo, [true, false, false]);
});
