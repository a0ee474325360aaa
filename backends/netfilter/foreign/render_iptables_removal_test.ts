import { assertEquals } from "@std/assert";
import { kubeProxyIptablesRules } from "../../../tests/support/builders/kube_proxy_rules.ts";
import {
  type DumpedTable,
  IptablesDumpReader,
  type JumpFilter,
} from "../iptables/iptables_dump.ts";
import { isKubeProxyChain } from "./known_chains.ts";
import { atOnce } from "../in_steps.ts";
import {
  describeTableRemoval,
  isNothing,
  planTableRemoval,
  renderTableRemoval,
  type TableRemoval,
} from "./render_iptables_removal.ts";

const KEEP_FOREIGN: JumpFilter = (_, { from, to }) =>
  isKubeProxyChain("nat", to) && !isKubeProxyChain("nat", from);

function tableOf(lines: readonly string[], keepJump = KEEP_FOREIGN): DumpedTable {
  const reader = new IptablesDumpReader(keepJump);
  for (const line of ["*nat", ":PREROUTING ACCEPT [0:0]", ...lines, "COMMIT"]) reader.take(line);
  return reader.dump.tables[0]!;
}

function plan(lines: readonly string[], isLeftover = isKubeProxyChain): TableRemoval {
  return atOnce(planTableRemoval(tableOf(lines), isLeftover));
}

const USED = [
  ":KUBE-SERVICES - [0:0]",
  ":KUBE-MARK-MASQ - [0:0]",
  ":KUBE-POSTROUTING - [0:0]",
  ":MINE - [0:0]",
  '-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
  "-A KUBE-SERVICES -j KUBE-MARK-MASQ",
  "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
];

Deno.test("renderTableRemoval() empties chains, then removes jumps, then chains, in one commit", () => {
  assertEquals(
    [...renderTableRemoval(plan(USED))].join(""),
    `*nat
:KUBE-SERVICES - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
-D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-X KUBE-SERVICES
-X KUBE-MARK-MASQ
-X KUBE-POSTROUTING
COMMIT
`,
  );
});

Deno.test("planTableRemoval() leaves rules that masquerade for other programs as they are", () => {
  const { chains, emptied, kept } = plan([...USED, "-A MINE -j KUBE-MARK-MASQ"]);
  assertEquals(chains, ["KUBE-SERVICES"]);
  assertEquals(emptied, []);
  assertEquals(kept, [
    "chain KUBE-MARK-MASQ in nat: MINE marks by it",
    "chain KUBE-POSTROUTING in nat: MINE marks by it",
  ]);
});

Deno.test("planTableRemoval() empties a chain with a foreign reference, once", () => {
  const holder = "-A MINE -g KUBE-SERVICES";
  assertEquals(plan([...USED, holder]).emptied, ["KUBE-SERVICES"]);
  const afterwards = plan([":KUBE-SERVICES - [0:0]", ":MINE - [0:0]", holder]);
  assertEquals(isNothing(afterwards), true);
  assertEquals(afterwards.kept.length, 1);
});

Deno.test("planTableRemoval() keeps jumps to chains that kube-relay owns now", () => {
  const removal = plan(USED, (_, chain) => chain === "KUBE-POSTROUTING");
  assertEquals({ jumps: removal.jumps, chains: removal.chains }, {
    jumps: [],
    chains: ["KUBE-POSTROUTING"],
  });
});

Deno.test("describeTableRemoval() counts the chains of Services instead of naming each", () => {
  const rules = kubeProxyIptablesRules({ family: "IPv4", services: 300 });
  const nat = rules.slice(rules.indexOf("*nat")).split("\n").slice(1, -2);
  const lines = describeTableRemoval(plan(nat), "iptables-nft");
  for (const line of ["300 chains KUBE-SVC-…", "600 chains KUBE-SEP-…", "chain KUBE-SERVICES"]) {
    assertEquals(lines.includes(`${line} in nat (iptables-nft)`), true, lines.join("\n"));
  }
});

Deno.test("planTableRemoval() pauses within a large table", () => {
  const chains = Array.from({ length: 3_000 }, (_, number) => `:CHAIN-${number} - [0:0]`);
  assertEquals([...planTableRemoval(tableOf(chains), isKubeProxyChain)].length > 10, true);
});

Deno.test("planTableRemoval() keeps a chain that is reached from one which masquerades for other programs", () => {
  const lines = [
    ...USED,
    ":KUBE-HAIRPIN - [0:0]",
    "-A KUBE-POSTROUTING -j KUBE-HAIRPIN",
    "-A KUBE-HAIRPIN -s 10.0.0.1 -d 10.0.0.1 -j MASQUERADE",
    "-A MINE -j KUBE-MARK-MASQ",
  ];
  const table = tableOf(lines, () => true);
  const { chains, emptied, kept } = atOnce(
    planTableRemoval(table, (_, chain) => chain.startsWith("KUBE-")),
  );
  assertEquals({ chains, emptied }, { chains: ["KUBE-SERVICES"], emptied: ["KUBE-HAIRPIN"] });
  assertEquals(
    kept.at(-1),
    "chain KUBE-HAIRPIN in nat, without rules: KUBE-POSTROUTING refers to it",
  );
});
