import { assertEquals, assertThrows } from "@std/assert";
import { parseNftRule } from "./nft_rule.ts";

Deno.test("parseNftRule() reads every step of a rule, in order", () => {
  assertEquals(parseNftRule('iifname != "cni*" ip daddr @cluster-ips goto reject-all'), [
    { kind: "interface", name: "cni*", not: true },
    { kind: "member", key: [{ kind: "destination" }], container: "cluster-ips" },
    { kind: "verdict", verdict: "goto reject-all" },
  ]);
});

Deno.test("parseNftRule() reads two hashes of the same parts as these parts", () => {
  const client = "meta priority and 0xbfff8000 . " +
    "jhash ip6 saddr mod 4294967295 seed 0x1 . jhash ip6 saddr mod 4294967295 seed 0x2";
  const [step] = parseNftRule(`delete @affinity { ${client} : meta priority }`);
  assertEquals(step, {
    kind: "forget",
    key: [{ kind: "priority", mask: 0xbfff8000 }, { kind: "source" }],
    container: "affinity",
  });
});

Deno.test("parseNftRule() refuses every rule that we do not write", () => {
  const rules = [
    "counter drop",
    "ip daddr 10.0.0.1 log",
    "tcp dport 80 drop",
    "drop ip saddr 10.0.0.1",
    "fib daddr type broadcast drop",
    "meta mark and 0x1 == 0x3 drop",
    "masquerade",
    'oifname "eth0" drop',
  ];
  for (const rule of rules) {
    assertThrows(() => parseNftRule(rule), SyntaxError, `Cannot read the rule '${rule}'`);
  }
  const other = "meta priority and 0x1 . " +
    "jhash ip6 saddr mod 4294967295 seed 0x1 . jhash ip6 daddr mod 4294967295 seed 0x2";
  assertThrows(
    () => parseNftRule(`delete @affinity { ${other} : meta priority }`),
    SyntaxError,
    "Cannot read a hash",
  );
});

Deno.test("parseNftRule() reads the rules for links that pods share, which no walked packet meets", () => {
  for (
    const rule of [
      'oifname "cni0" ip daddr 224.0.0.0/4 goto shared-link-ingress',
      'oifname "cni0" fib daddr type broadcast goto shared-link-ingress',
      'oifname "cni0" ip6 daddr fe80::/10 goto shared-link-ingress',
    ]
  ) assertEquals(parseNftRule(rule)[0], { kind: "never" }, rule);
  const refusal = 'iifname "cni0" oifname "cni0" meta l4proto tcp ct status dnat ' +
    "tcp flags & (fin|syn|rst|ack) == syn reject with icmpv6 type port-unreachable";
  assertEquals(parseNftRule(refusal).map(({ kind }) => kind), [
    ...["interface", "never", "protocol", "was-dnat", "note", "verdict"],
  ]);
});
