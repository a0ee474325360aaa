import { assertEquals, assertThrows } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import { defaultRenderOptions } from "../../tests/support/builders/nftables_render_options.ts";
import { chainName, chainRules, type ChainSpec, fromPod, notFromPod } from "./chain_spec.ts";

const SPEC: ChainSpec = { front: "vip", treatment: "keep", main: 2 };
const CONTEXT = {
  options: defaultRenderOptions("IPv4"),
  localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") },
} as const;
const draw = (count: number, first = 2_147_483_648) =>
  `meta priority set numgen random mod ${count} offset ${first} ` +
  "dnat ip addr . port to ip daddr . meta l4proto . th dport . meta priority map @endpoints";

Deno.test("chainName() holds the whole spec", () => {
  const cases: readonly [Partial<ChainSpec>, string][] = [
    [{}, "to-2"],
    [{ treatment: "off-cluster" }, "off-cluster-2"],
    [{ front: "port", treatment: "masquerade" }, "node-port-masquerade-2"],
    [{ treatment: "local", local: "drop" }, "local-2-drop"],
    [{ treatment: "local", local: 1, affinitySeconds: 60 }, "local-2-1-sticky-60"],
  ];
  for (const [spec, name] of cases) assertEquals(chainName({ ...SPEC, ...spec }), name);
});

Deno.test("chainRules() chooses an endpoint after the mark for masquerade", () => {
  const rules = (spec: Partial<ChainSpec>) => chainRules({ ...SPEC, ...spec }, CONTEXT);
  const mark = "meta mark set meta mark or 0x4000";
  assertEquals(rules({}), [draw(2)]);
  assertEquals(rules({ treatment: "masquerade" }), [mark, draw(2)]);
  assertEquals(rules({ treatment: "off-cluster" }), [
    `ip saddr != 10.0.0.0/8 ${mark}`,
    draw(2),
  ]);
  assertEquals(rules({ treatment: "local", local: "drop" }), [
    `ip saddr 10.0.0.0/8 ${draw(2)}`,
    `fib saddr type local ${mark}`,
    `fib saddr type local ${draw(2)}`,
    "drop",
  ]);
  assertEquals(
    rules({ treatment: "local", local: 1 }).at(-1),
    draw(1, 2_147_483_648 + 32_768),
  );
});

Deno.test("chainRules() ignores pods without a way to recognize them", () => {
  const context = { ...CONTEXT, localTraffic: { kind: "none" } } as const;
  assertEquals(chainRules({ ...SPEC, treatment: "off-cluster" }, context).length, 1);
  assertEquals(chainRules({ ...SPEC, treatment: "local", local: 1 }, context).length, 3);
});

Deno.test("chainRules() asks for the client of a ServicePort, by whichever frontend it comes", () => {
  const front = "meta l4proto . th dport . meta priority";
  const client = "meta priority and 0xbfff8000 . ip saddr";
  const remember = `update @affinity { ${client} timeout 60s : meta priority }`;
  const toSlot = `meta priority set ${front} map @node-port-choices`;
  const dnat = `dnat ip addr . port to ${front} map @node-port-endpoints`;
  const spec = { front: "port", main: 2, affinitySeconds: 60 } as const;
  assertEquals(chainRules({ ...spec, treatment: "keep" }, CONTEXT), [
    `meta priority set 0x80000000 ${toSlot} meta priority set ${client} map @affinity ` +
    `${remember} ${front} @node-port-endpoints ${dnat}`,
    `delete @affinity { ${client} : meta priority }`,
    `meta priority set numgen random mod 2 offset 2147483648 ${toSlot} ${remember}`,
    dnat,
  ]);
  const local = "meta priority set meta priority or 0x40000000";
  assertEquals(chainRules({ ...spec, treatment: "local", local: 1 }, CONTEXT).slice(-4), [
    `meta priority set 0x80008000 ${toSlot} meta priority set ${client} map @affinity ` +
    `${remember} ${local} ${front} @node-port-endpoints ${dnat}`,
    `delete @affinity { ${client} : meta priority }`,
    `meta priority set numgen random mod 1 offset 2147516416 ${toSlot} ${remember}`,
    `${local} ${dnat}`,
  ]);
});

Deno.test("fromPod() and notFromPod() say the same of a packet, one of them denied", () => {
  const cases: readonly [LocalTrafficDetector, pod: string | undefined, not: string | undefined][] =
    [
      [
        { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") },
        "ip saddr 10.0.0.0/8",
        "ip saddr != 10.0.0.0/8",
      ],
      [{ kind: "byBridge", interfaceName: "cni0" }, 'iifname "cni0"', 'iifname != "cni0"'],
      [{ kind: "byInterfacePrefix", prefix: "veth" }, 'iifname "veth*"', 'iifname != "veth*"'],
      [{ kind: "none" }, undefined, undefined],
    ];
  for (const [detector, pod, not] of cases) {
    assertEquals([fromPod(detector, "IPv4"), notFromPod(detector, "IPv4")], [pod, not]);
  }
  const byCidr = { kind: "byCidr", cidr: parseCidr("fd00::/8") } as const;
  assertEquals(fromPod(byCidr, "IPv6"), "ip6 saddr fd00::/8");
});

Deno.test("fromPod() makes a prefix that is as long as names get a whole name", () => {
  const matchOf = (prefix: string) => fromPod({ kind: "byInterfacePrefix", prefix }, "IPv4");
  assertEquals(matchOf("fourteen-bytes"), 'iifname "fourteen-bytes*"');
  assertEquals(matchOf("fifteen-letters"), 'iifname "fifteen-letters"');
});

Deno.test("fromPod() refuses a name that nft would read as something else", () => {
  for (const interfaceName of ['a"b', "a\\b", "veth*", "a b"]) {
    const detector = { kind: "byBridge", interfaceName } as const;
    assertThrows(() => fromPod(detector, "IPv4"), RangeError, "can't quote its name");
  }
});
