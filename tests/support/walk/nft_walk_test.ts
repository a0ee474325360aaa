import { assertEquals, assertThrows } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { type WalkedNftHost, type WalkedNftTable, walkNft } from "./nft_walk.ts";
import type { WalkedPacket } from "./walked_packet.ts";

const PACKET: WalkedPacket = {
  source: parseIpAddress("10.0.0.9"),
  destination: parseIpAddress("172.30.0.1"),
  port: 80,
  protocol: "TCP",
  inInterface: "eth0",
};
const NODE = parseIpAddress("192.168.0.2");
const HOST: WalkedNftHost = { isLocal: (address) => address === NODE, affinity: new Map() };

/** Base chains are named `hook priority`, e.g. `prerouting -100`. */
function tableOf(
  chains: Readonly<Record<string, readonly string[]>>,
  elements: Readonly<Record<string, Readonly<Record<string, string>>>> = {},
): WalkedNftTable {
  const bases = Object.keys(chains).filter((name) => name.includes(" "));
  return {
    chains: new Map(Object.entries(chains)),
    hooks: new Map(bases.map((name) => {
      const [hook, priority] = name.split(" ");
      return [name, `type nat hook ${hook} priority ${priority}`];
    })),
    elements: new Map(
      Object.entries(elements).map(([name, all]) => [name, new Map(Object.entries(all))]),
    ),
  };
}

/** Each end as `verdict probability endpoint`, with `masqueraded` where it is. */
function trace(
  table: WalkedNftTable,
  packet: Partial<WalkedPacket> = {},
  host: WalkedNftHost = HOST,
): string[] {
  return walkNft(table, { ...PACKET, ...packet }, host).map((outcome) => {
    const { endpoint, verdict, probability, masquerade } = outcome;
    const to = endpoint ? ` ${endpoint.address}:${endpoint.port}` : "";
    return `${verdict} ${probability.toFixed(2)}${to}${masquerade ? " masqueraded" : ""}`;
  });
}

const FRONT = "ip daddr . meta l4proto . th dport";
const CHOOSE = `dnat ip addr . port to ${FRONT} . meta priority map @endpoints`;
const DRAW = "meta priority set numgen random mod 2 offset 2147483648";
const TWO_ENDPOINTS = {
  "172.30.0.1 . tcp . 80 . 0x80000000": "10.0.0.1 . 8080",
  "172.30.0.1 . tcp . 80 . 0x80000001": "10.0.0.2 . 8080",
};

Deno.test("walkNft() lets a packet pass if no rule matches", () => {
  assertEquals(trace(tableOf({})), ["ACCEPT 1.00"]);
});

Deno.test("walkNft() follows every branch of chance", () => {
  const table = tableOf({ "prerouting -100": [`${DRAW} ${CHOOSE}`] }, { endpoints: TWO_ENDPOINTS });
  assertEquals(trace(table), ["ACCEPT 0.50 10.0.0.1:8080", "ACCEPT 0.50 10.0.0.2:8080"]);
  const destination = PACKET.source;
  for (const other of [{ port: 81 }, { protocol: "UDP" as const }, { destination }]) {
    assertEquals(trace(table, other), ["ACCEPT 0.50", "ACCEPT 0.50"]);
  }
});

Deno.test("walkNft() returns from a jump, but not from a goto", () => {
  const chains = { idle: [], "prerouting -90": ["ip daddr 172.30.0.0/16 drop"] };
  assertEquals(trace(tableOf({ ...chains, "prerouting -100": ["jump idle", "reject"] })), [
    "REJECT 1.00",
  ]);
  // The next base chain still sees the packet.
  assertEquals(trace(tableOf({ ...chains, "prerouting -100": ["goto idle", "reject"] })), [
    "DROP 1.00",
  ]);
});

Deno.test("walkNft() asks no further chain of a hook once an address was rewritten", () => {
  const table = tableOf({
    "prerouting -100": [`meta priority set 0x80000000 ${CHOOSE}`],
    "prerouting -90": ["drop"],
    "output -100": ["reject"],
  }, { endpoints: TWO_ENDPOINTS });
  assertEquals(trace(table), ["ACCEPT 1.00 10.0.0.1:8080"]);
  const { inInterface: _, ...own } = PACKET;
  assertEquals(walkNft(table, own, HOST).map(({ verdict }) => verdict), ["REJECT"]);
});

Deno.test("walkNft() keeps the mark, and masquerades by it", () => {
  const table = tableOf({
    "prerouting -100": ["ip saddr != 10.0.0.0/8 meta mark set meta mark or 0x4000"],
    "postrouting 100": [
      "meta mark and 0x4000 == 0x4000 meta mark set meta mark xor 0x4000 masquerade fully-random",
    ],
  });
  assertEquals(trace(table), ["ACCEPT 1.00"]);
  const source = parseIpAddress("203.0.113.2");
  assertEquals(trace(table, { source }), ["ACCEPT 1.00 masqueraded"]);
  assertEquals(trace(table, { source, destination: NODE }), ["ACCEPT 1.00"], "it stays here");
});

Deno.test("walkNft() finds a key in a range that a set holds", () => {
  const rules = ["ip daddr . ip saddr @admitted goto idle", "drop"];
  const table = tableOf({ idle: [], "prerouting -100": rules }, {
    admitted: { "172.30.0.1 . 10.0.0.0/24": "", "172.30.0.2 . 10.9.0.0/24": "" },
  });
  assertEquals(trace(table), ["ACCEPT 1.00"]);
  assertEquals(trace(table, { source: parseIpAddress("10.9.0.1") }), ["DROP 1.00"]);
});

Deno.test("walkNft() finds an address between two others that a set holds", () => {
  const rules = ["ip saddr @peers accept", "drop"];
  for (
    const [key, verdict] of [
      ["10.0.0.7-10.0.0.9", "ACCEPT"],
      ["9.255.255.255-10.0.0.10", "ACCEPT"],
      ["10.0.0.9", "ACCEPT"],
      ["10.0.0.10-10.0.0.90", "DROP"],
      ["10.0.0.1-10.0.0.8", "DROP"],
    ] as const
  ) {
    const table = tableOf({ "prerouting -100": rules }, { peers: { [key]: "" } });
    assertEquals(trace(table), [`${verdict} 1.00`], key);
  }
});

const CLIENT = "meta priority and 0xbfff8000 . ip saddr";
const STICKY = tableOf({
  "prerouting -100": [
    `meta priority set 0x80000000 meta priority set ${CLIENT} map @affinity ${CHOOSE}`,
    `${DRAW} update @affinity { ${CLIENT} timeout 60s : meta priority }`,
    CHOOSE,
  ],
}, { endpoints: TWO_ENDPOINTS });

Deno.test("walkNft() uses the client's entry in the affinity map", () => {
  const [, second] = walkNft(STICKY, PACKET, HOST);
  const affinity = second?.affinity;
  assertEquals(affinity, new Map([["0x80000000 . 10.0.0.9", "0x80000001"]]));
  assertEquals(trace(STICKY, {}, { ...HOST, affinity: affinity! }), ["ACCEPT 1.00 10.0.0.2:8080"]);
});

Deno.test("walkNft() names the rules and elements that had a part in the outcome", () => {
  const table = tableOf({
    idle: ["ip daddr 1.1.1.1 drop"],
    services: [`${FRONT} vmap @verdicts`, "reject"],
    "prerouting -100": ["jump idle", "jump services"],
  }, { verdicts: { "172.30.0.1 . tcp . 80": "drop" } });
  const [outcome] = walkNft(table, PACKET, HOST);
  assertEquals(outcome?.path.map(({ object, name, text }) => [object, name, text]), [
    ["rule", "prerouting -100", "prerouting -100 jump services"],
    ["rule", "services", `services ${FRONT} vmap @verdicts`],
    ["map element", "verdicts", "172.30.0.1 . tcp . 80 : drop"],
  ]);
});

Deno.test("walkNft() throws for a missing chain or set", () => {
  assertThrows(() => trace(tableOf({ "prerouting -100": ["jump none"] })), Error, "chain 'none'");
  assertThrows(
    () => trace(tableOf({ "prerouting -100": ["ip daddr @none drop"] })),
    Error,
    "'none'",
  );
});

Deno.test("walkNft() asks the next chain of a hook after accept, but not after a refusal", () => {
  const table = tableOf({
    "forward -1": [
      "ct state established,related accept",
      "ip saddr . ip daddr @pairs accept",
      "drop",
    ],
    "forward 0": ["icmpv6 type 135-136 ip6 hoplimit 255 accept", "ip daddr vmap @pods"],
    list: ["meta l4proto tcp th dport 80 accept", "goto deny"],
    deny: ["meta l4proto tcp reject with tcp reset", "reject with icmp type admin-prohibited"],
  }, { pairs: { "10.0.0.9 . 172.30.0.1": "" }, pods: { "172.30.0.1": "goto list" } });
  assertEquals(trace(table), ["ACCEPT 1.00"]);
  assertEquals(trace(table, { port: 81 }), ["REJECT 1.00"]);
  assertEquals(trace(table, { protocol: "UDP" }), ["REJECT 1.00"]);
  assertEquals(trace(table, { source: parseIpAddress("10.0.0.8") }), ["DROP 1.00"]);
  assertEquals(trace(table, { destination: NODE }), ["ACCEPT 1.00"], "it is not forwarded");
});

Deno.test("walkNft() finds protocols, and ports in ranges, in rules and in sets", () => {
  const verdictOf = (rule: string, packet: Partial<WalkedPacket>) =>
    trace(
      tableOf({ "forward 0": [`${rule} drop`] }, {
        ports: { "tcp . 80": "", "udp . 5000-6000": "" },
        blocks: { "10.0.0.0/8": "" },
      }),
      packet,
    ).join();
  const ports = "meta l4proto . th dport @ports";
  const udp = { protocol: "UDP" as const };
  assertEquals(verdictOf(ports, {}), "DROP 1.00");
  assertEquals(verdictOf(ports, { ...udp, port: 5_000 }), "DROP 1.00");
  assertEquals(verdictOf(ports, { ...udp, port: 6_000 }), "DROP 1.00");
  assertEquals(verdictOf(ports, { ...udp, port: 6_001 }), "ACCEPT 1.00");
  assertEquals(verdictOf(ports, { port: 5_500 }), "ACCEPT 1.00");
  assertEquals(verdictOf("meta l4proto udp", udp), "DROP 1.00");
  assertEquals(verdictOf("meta l4proto udp", {}), "ACCEPT 1.00");
  assertEquals(verdictOf("th dport 79-80", {}), "DROP 1.00");
  assertEquals(verdictOf("th dport 81-90", {}), "ACCEPT 1.00");
  assertEquals(verdictOf("ip saddr != @blocks", {}), "ACCEPT 1.00");
  assertEquals(verdictOf("ip daddr != @blocks", {}), "DROP 1.00");
});
