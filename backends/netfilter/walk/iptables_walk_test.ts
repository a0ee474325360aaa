import { assertEquals, assertThrows } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { FakeIptables } from "../../../tests/support/fake_iptables.ts";
import { type RuleSource, type WalkedHost, walkIptables } from "./iptables_walk.ts";
import type { WalkedPacket } from "./walk_steps.ts";

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

Deno.test("walkIptables() lets pass what no rule is about", () => {
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
  assertEquals(trace({ nat }, {}, { isListed: () => undefined }), [
    ...["ACCEPT 0.50 10.0.0.1:80", "ACCEPT 0.50 10.0.0.2:80"],
  ]);
});

Deno.test("walkIptables() throws for a target that it does not know", () => {
  assertThrows(() => trace({ nat: ["-A PREROUTING -j DNAT --to-source 1.1.1.1"] }));
  assertThrows(() => trace({ filter: ["-A FORWARD -j REJECT --reject-with tcp-reset"] }));
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
