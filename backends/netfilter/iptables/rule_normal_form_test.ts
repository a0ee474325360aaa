import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { isSameRule, normalRule } from "./rule_normal_form.ts";

/** As we write a rule, and as a tool prints it. */
const SAME = String.raw`
-d 10.96.0.1 -m tcp -p tcp --dport 80 -j DROP | -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DROP
-d fd00::1 -p udp -j DROP | -d fd00::1/128 -p udp -j DROP
-d 10.0.0.1 -s 10.0.0.2 -j MASQUERADE | -s 10.0.0.2/32 -d 10.0.0.1/32 -j MASQUERADE
-d fd00::/64 -s fd00::2 -j MASQUERADE | -s fd00::2/128 -d fd00::/64 -j MASQUERADE
-m conntrack --ctstate RELATED,ESTABLISHED -m comment --comment "a b" -j ACCEPT | -m comment --comment "a b" -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
! -s 10.0.0.0/8 -m conntrack --ctstate DNAT --ctorigdst 10.96.0.1/32 -j ACCEPT | ! -s 10.0.0.0/8 -m conntrack --ctstate DNAT --ctorigdst 10.96.0.1 -j ACCEPT
-j MARK --or-mark 0x00004000 | -j MARK --set-xmark 0x4000/0x4000
-j MARK --xor-mark 0x00004000 | -j MARK --set-xmark 0x4000/0x0
-m mark ! --mark 0x00004000/0x00004000 -j RETURN | -m mark ! --mark 0x4000/0x4000 -j RETURN
-m statistic --mode random --probability 0.3333333333 -j A | -m statistic --mode random --probability 0.33333333349 -j A
-m recent --name A --rcheck --seconds 60 --reap -j A | -m recent --rcheck --seconds 60 --reap --name A --mask 255.255.255.255 --rsource -j A
-j REJECT | -j REJECT --reject-with icmp-port-unreachable
-j REJECT | -j REJECT --reject-with icmp6-port-unreachable
-m tcp -p tcp --dport 0:1023 -j A | -p tcp -m tcp --dport :1023 -j A
-m comment --comment ns/web -j A | -m comment --comment "ns/web" -j A
-m comment --comment "-j B \"x\"" -j A | -m comment --comment "-j B \"x\"" -j A
`.trim().split("\n").map((line) => line.split(" | ") as [string, string]);

for (const [written, printed] of SAME) {
  Deno.test(`normalRule() finds the same in ${written} and as it is printed`, () => {
    assertEquals(normalRule(written), normalRule(printed));
    assert(isSameRule(written, printed));
  });
}

const DIFFERENT: readonly (readonly [string, string])[] = [
  ["-d 10.96.0.1 -j A", "-s 10.96.0.1 -j A"],
  ["-d 10.96.0.1 -j A", "! -d 10.96.0.1 -j A"],
  ["-d 10.0.0.1 -s 10.0.0.2 -j A", "-s 10.0.0.1/32 -d 10.0.0.2/32 -j A"],
  ["-d 10.96.0.1 -j A", "-d 10.96.0.1 -g A"],
  ["-d 10.96.0.0/31 -j A", "-d 10.96.0.0 -j A"],
  ["-m mark --mark 0x1/0x1 -j A", "-m mark ! --mark 0x1/0x1 -j A"],
  ["-m mark --mark 0x1 -j A", "-m mark --mark 0x1/0x1 -j A"],
  ["-j MARK --or-mark 0x1", "-j MARK --xor-mark 0x1"],
  [
    "-m statistic --mode random --probability 0.5 -j A",
    "-m statistic --mode random --probability 0.25 -j A",
  ],
  ["-p tcp -m tcp --dport 80 -j A", "-p udp -m udp --dport 80 -j A"],
  ["-p tcp -m tcp --dport 80 -j A", "-p tcp -m tcp --sport 80 -j A"],
  ["-m comment --comment a -j A", "-m comment --comment b -j A"],
  ["-m comment --comment a -j A", "-j A"],
  ["-j DNAT --to-destination 10.0.0.1:80", "-j DNAT --to-destination 10.0.0.1:81"],
];

for (const [one, other] of DIFFERENT) {
  Deno.test(`normalRule() distinguishes ${one} from ${other}`, () => {
    assertNotEquals(normalRule(one), normalRule(other));
    assert(!isSameRule(one, other) && !isSameRule(other, one));
  });
}

Deno.test("normalRule() knows a limit in every unit that a tool may print", () => {
  const rule = (limit: string) => normalRule(`-m limit --limit ${limit} -j NFLOG`);
  for (const [one, other] of [["120/minute", "2/sec"], ["90/min", "90/minute"]] as const) {
    assertEquals(rule(one), rule(other));
  }
  assertEquals(rule("24/day"), rule("1/hour"));
  assertEquals(rule("2/sec") === rule("2/min"), false);
});
