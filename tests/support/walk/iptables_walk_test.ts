import { assertEquals, assertThrows } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { FakeIptables } from "../../../tests/support/fakes/fake_iptables.ts";
import { type RuleSource, type WalkedHost, walkIptables } from "./iptables_walk.ts";
import type { WalkedPacket } from "./walked_packet.ts";

const PACKET: WalkedPacket = {
  source: parseIpAddress("10.0.0.9"),
  destination: parseIpAddress("172.30.0.1"),
  port: 80,
  protocol: "TCP",
  inInterface: "eth0",
};
const NODE = parseIpAddress("192.168.0.2");
const HOST: WalkedHost = {
  isLocal: (address) => address === NODE,
  isListed: () => false,
};

function sourceOf(tool: FakeIptables): RuleSource {
  return (table, chain) => tool.table(table).get(chain);
}

/** Each end as `verdict probability endpoint`, with `masqueraded` where it is. */
function trace(
  rules: { readonly nat?: readonly string[]; readonly filter?: readonly string[] },
  packet: Partial<WalkedPacket> = {},
  host: Partial<WalkedHost> = {},
): string[] {
  const tool = new FakeIptables();
  for (const table of ["nat", "filter"] as const) {
    const lines = rules[table] ?? [];
    const chains = new Set(lines.map((line) => line.split(" ")[1] ?? ""));
    const made = [...chains].filter((chain) => chain.startsWith("KUBE-")).map((chain) =>
      `:${chain}`
    );
    tool.restore([`*${table}`, ...made, ...lines, "COMMIT", ""].join("\n"));
  }
  return walkIptables(sourceOf(tool), { ...PACKET, ...packet }, { ...HOST, ...host }).map(
    (outcome) => {
      const { endpoint, verdict, probability, masquerade } = outcome;
      const to = endpoint ? ` ${endpoint.address}:${endpoint.port}` : "";
      return `${verdict} ${probability.toFixed(2)}${to}${masquerade ? " masqueraded" : ""}`;
    },
  );
}

Deno.test("walkIptables() lets a packet pass if no rule matches", () => {
  assertEquals(trace({}), ["ACCEPT 1.00"]);
});

Deno.test("walkIptables() follows every branch of chance", () => {
  const dnat = (to: string) => `-j DNAT --to-destination ${to}:80`;
  const half = "-m statistic --mode random --probability 0.5";
  const nat = [
    `-A PREROUTING -d 172.30.0.1 -m tcp -p tcp --dport 80 ${half} ${dnat("10.0.0.1")}`,
    `-A PREROUTING -d 172.30.0.1 -m tcp -p tcp --dport 80 ${half} ${dnat("10.0.0.2")}`,
  ];
  assertEquals(trace({ nat }), [
    "ACCEPT 0.50 10.0.0.1:80",
    "ACCEPT 0.25 10.0.0.2:80",
    "ACCEPT 0.25",
  ]);
  for (
    const other of [{ port: 81 }, { protocol: "UDP" as const }, { destination: PACKET.source }]
  ) {
    assertEquals(trace({ nat }, other), ["ACCEPT 1.00"]);
  }
});

Deno.test("walkIptables() returns from a jump, but not from a goto", () => {
  const rest = [
    "-A KUBE-B -s 1.1.1.1 -j DROP",
    "-A KUBE-A -j DNAT --to-destination 10.0.0.1:80",
    "-A PREROUTING -j KUBE-A",
    "-A PREROUTING -j DNAT --to-destination 10.0.0.2:80",
  ];
  assertEquals(trace({ nat: ["-A KUBE-A -j KUBE-B", ...rest] }), ["ACCEPT 1.00 10.0.0.1:80"]);
  assertEquals(trace({ nat: ["-A KUBE-A -g KUBE-B", ...rest] }), ["ACCEPT 1.00 10.0.0.2:80"]);
});

Deno.test("walkIptables() keeps the mark, and masquerades by it", () => {
  const nat = [
    "-A KUBE-M -j MARK --or-mark 0x4000",
    "-A PREROUTING ! -s 10.0.0.0/8 -j KUBE-M",
    "-A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
    "-A POSTROUTING -j MASQUERADE --random-fully",
  ];
  assertEquals(trace({ nat }), ["ACCEPT 1.00"]);
  const source = parseIpAddress("203.0.113.2");
  assertEquals(trace({ nat }, { source }), ["ACCEPT 1.00 masqueraded"]);
});

Deno.test("walkIptables() knows the destination before it was rewritten", () => {
  const nat = [
    "-A PREROUTING -d 172.30.0.0/24 -j DNAT --to-destination 10.0.0.1:80",
    "-A POSTROUTING -m conntrack --ctstate DNAT --ctorigdst 172.30.0.0/28 -j MASQUERADE",
    "-A POSTROUTING -m conntrack --ctstate DNAT --ctorigdst 10.0.0.1 -j MASQUERADE",
  ];
  assertEquals(trace({ nat }), ["ACCEPT 1.00 10.0.0.1:80 masqueraded"]);
  const destination = parseIpAddress("172.30.0.16");
  assertEquals(trace({ nat }, { destination }), ["ACCEPT 1.00 10.0.0.1:80"]);
});

Deno.test("walkIptables() chooses the hook by where the packet comes from and goes to", () => {
  const filter = ["INPUT", "FORWARD", "OUTPUT"].map((chain, index) =>
    `-A ${chain} -m conntrack --ctstate NEW -j ${["DROP", "REJECT", "DROP"][index]}`
  );
  assertEquals(trace({ filter }), ["REJECT 1.00"]);
  assertEquals(trace({ filter }, { destination: NODE }), ["DROP 1.00"]);
  const tables = new FakeIptables();
  tables.restore(["*filter", ...filter, "COMMIT", ""].join("\n"));
  const { inInterface: _, ...own } = PACKET;
  assertEquals(walkIptables(sourceOf(tables), own, HOST).map(({ verdict }) => verdict), ["DROP"]);
});

Deno.test("walkIptables() knows the lists that a client is in", () => {
  const nat = [
    "-A PREROUTING -m recent --name A --update --seconds 60 --reap -j DNAT --to-destination 10.0.0.1:80",
    "-A PREROUTING -m recent --name B --set -j DNAT --to-destination 10.0.0.2:80",
  ];
  assertEquals(trace({ nat }), ["ACCEPT 1.00 10.0.0.2:80"]);
  assertEquals(trace({ nat }, {}, { isListed: (list) => list === "A" }), [
    "ACCEPT 1.00 10.0.0.1:80",
  ]);
});

/** As {@linkcode trace}, with IPVS: entries by set, and lines by address and port. */
function balance(
  { rules = {}, sets = {}, servers = {}, addresses = [] }: {
    readonly rules?: Readonly<Record<string, readonly string[]>>;
    readonly sets?: Readonly<Record<string, readonly string[]>>;
    readonly servers?: Readonly<Record<string, readonly string[]>>;
    readonly addresses?: readonly string[];
  },
  { packet = PACKET, named = false }: {
    readonly packet?: WalkedPacket;
    /** Whether the path to the last end is named, in place of the ends. */
    readonly named?: boolean;
  } = {},
): readonly string[] {
  const outcomes = walkIptables((table, chain) => rules[`${table} ${chain}`] ?? [], packet, {
    ...HOST,
    ipvs: {
      entries: (set) => sets[set],
      address: (address) => addresses.includes(address) ? `addr replace ${address}` : undefined,
      server: ({ destination, port }) => servers[`${destination}:${port}`],
    },
  });
  if (named) return outcomes.at(-1)!.path.map(({ object, text }) => `${object}: ${text}`);
  return outcomes.map(({ verdict, probability, endpoint, masquerade }) => {
    const to = endpoint ? ` ${endpoint.address}:${endpoint.port}` : "";
    return `${verdict} ${probability.toFixed(2)}${to}${masquerade ? " masqueraded" : ""}`;
  });
}

const { inInterface: _, ...OWN } = PACKET;
const SERVERS = {
  "172.30.0.1:80": [
    "-A -t 172.30.0.1:80 -s rr",
    "-a -t 172.30.0.1:80 -r 10.0.0.1:8080 -m -w 1",
    "-a -t 172.30.0.1:80 -r 10.0.0.9:8080 -m -w 1",
  ],
};
const addresses = [PACKET.destination];

Deno.test("walkIptables() sends packets of a virtual server to each of its real servers", () => {
  const both = ["ACCEPT 0.50 10.0.0.1:8080", "ACCEPT 0.50 10.0.0.9:8080"];
  assertEquals(balance({ servers: SERVERS, addresses }), both);
  assertEquals(balance({ servers: SERVERS, addresses }, { packet: OWN }), both);
  // IPVS comes after INPUT: it does not see forwarded packets.
  assertEquals(balance({ servers: SERVERS }), ["ACCEPT 1.00"]);
  const empty = { "172.30.0.1:80": ["-A -t 172.30.0.1:80 -s rr"] };
  assertEquals(balance({ servers: empty, addresses }), ["REJECT 1.00"]);
});

Deno.test("walkIptables() passes a packet through mangle, nat and filter before IPVS, and nat after it", () => {
  const drop = (chain: string) =>
    balance({ rules: { [chain]: ["-j DROP"] }, servers: SERVERS, addresses });
  for (const chain of ["mangle PREROUTING", "nat PREROUTING", "filter INPUT"]) {
    assertEquals(drop(chain), ["DROP 1.00"], chain);
  }
  assertEquals(drop("filter FORWARD").length, 2);
  const rules = { "nat POSTROUTING": ["-m set --match-set BACK dst,dst,src -j MASQUERADE"] };
  const sets = { BACK: ["10.0.0.9,tcp:8080,10.0.0.9"] };
  const scene = { rules, sets, servers: SERVERS, addresses };
  assertEquals(balance(scene), [
    "ACCEPT 0.50 10.0.0.1:8080",
    "ACCEPT 0.50 10.0.0.9:8080 masqueraded",
  ]);
  assertEquals(balance(scene, { named: true }), [
    "address: addr replace 172.30.0.1",
    ...["virtual server: -A -t 172.30.0.1:80 -s rr"],
    "real server: -a -t 172.30.0.1:80 -r 10.0.0.9:8080 -m -w 1",
    "rule: -I POSTROUTING -m set --match-set BACK dst,dst,src -j MASQUERADE",
    "ip set entry: add BACK 10.0.0.9,tcp:8080,10.0.0.9",
  ]);
});

Deno.test("walkIptables() meets the rules of INPUT if the node's own packet has no virtual server", () => {
  const rules = { "filter INPUT": ["-m set --match-set IPS dst -j REJECT"] };
  const scene = { rules, sets: { IPS: ["172.30.0.1"] }, addresses };
  assertEquals(balance(scene, { packet: OWN }), ["REJECT 1.00"]);
  assertEquals(balance({ ...scene, servers: SERVERS }, { packet: OWN }).length, 2);
});

Deno.test("walkIptables() looks packets up in sets of every type", () => {
  for (
    const [sides, entry, isMet] of [
      ["dst", "172.30.0.1", true],
      ["dst", "10.0.0.9", false],
      ["src", "10.0.0.9", true],
      ["dst", "80", true],
      ["dst", "8080", false],
      ["dst,dst", "172.30.0.1,tcp:80", true],
      ["dst,dst", "172.30.0.1,udp:80", false],
      ["src,dst", "10.0.0.9,tcp:80", true],
      ["dst,dst,src", "172.30.0.1,tcp:80,10.0.0.9", true],
      ["dst,dst,src", "172.30.0.1,tcp:80,10.0.0.0/24", true],
      ["dst,dst,src", "172.30.0.1,tcp:81,10.0.0.0/24", false],
      ["dst,dst,src", "172.30.0.1,tcp:80,10.0.1.0/24", false],
    ] as const
  ) {
    const rules = { "nat PREROUTING": [`-m set --match-set X ${sides} -j DROP`] };
    const verdict = isMet ? "DROP 1.00" : "ACCEPT 1.00";
    assertEquals(balance({ rules, sets: { X: [entry] } }), [verdict], `${sides} ${entry}`);
  }
});

Deno.test("walkIptables() goes by the smallest block of a set that has an address", () => {
  const entries = ["172.16.0.0/12", "172.30.0.0/16 nomatch", "172.30.0.0/24", "172.30.0.1 nomatch"];
  const rules = { "nat PREROUTING": ["-m set --match-set X dst -j DROP"] };
  for (const [count, verdict] of entries.map((_, index) => [index + 1, index % 2 === 0] as const)) {
    const found = balance({ rules, sets: { X: entries.slice(0, count).toReversed() } });
    assertEquals(found, [verdict ? "DROP 1.00" : "ACCEPT 1.00"], `${count} entries`);
  }
});

Deno.test("walkIptables() names a return by a set, which spares a packet the rest of the chain", () => {
  const rules = {
    "filter FORWARD": ["-j KUBE-A"],
    "filter KUBE-A": ["-m set --match-set SPARED src -j RETURN", "-j DROP"],
  };
  assertEquals(balance({ rules, sets: { SPARED: ["10.0.0.9"] } }, { named: true }), [
    "rule: -I FORWARD -j KUBE-A",
    "rule: -A KUBE-A -m set --match-set SPARED src -j RETURN",
    "ip set entry: add SPARED 10.0.0.9",
  ]);
  assertThrows(() => balance({ rules }), Error, "there is no set 'SPARED'");
});

Deno.test("walkIptables() throws for a real server that it cannot read", () => {
  const servers = { "172.30.0.1:80": ["-A …", "-a -t 172.30.0.1:80 -r 10.0.0.1:8080 -g -w 1"] };
  assertThrows(() => balance({ servers, addresses }), Error, "Cannot walk the real server");
});

Deno.test("walkIptables() throws for a target that it does not know", () => {
  assertThrows(() => trace({ nat: ["-A PREROUTING -j DNAT --to-source 1.1.1.1"] }));
  assertThrows(() => trace({ filter: ["-A FORWARD -j REJECT --frobnicate"] }));
});

Deno.test("walkIptables() names the rules that had a part in the outcome", () => {
  const tool = new FakeIptables();
  tool.restore([
    ...["*nat", ":KUBE-A", ":KUBE-B", ":KUBE-C"],
    "-A KUBE-A -s 1.1.1.1 -j DROP",
    "-A KUBE-B -m mark --mark 0x1/0x1 -j RETURN",
    "-A KUBE-B -g KUBE-A",
    "-A KUBE-C -j DNAT --to-destination 10.0.0.1:80",
    ...["-A PREROUTING -j KUBE-A", "-A PREROUTING -j KUBE-B", "-A PREROUTING -j KUBE-C"],
    ...["COMMIT", ""],
  ].join("\n"));
  const [outcome] = walkIptables(sourceOf(tool), PACKET, HOST);
  assertEquals(outcome?.path.map(({ object, name, text }) => [object, name, text]), [
    ["rule", "nat PREROUTING", "-I PREROUTING -j KUBE-C"],
    ["rule", "nat KUBE-C", "-A KUBE-C -j DNAT --to-destination 10.0.0.1:80"],
  ]);
});
