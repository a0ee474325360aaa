import { assertEquals } from "@std/assert";
import { IptablesStage } from "../../tests/support/stages/iptables_stage.ts";
import { rulesPlan } from "../../tests/support/stages/rules_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";

/** Foreign rules, also in a foreign chain. */
const FOREIGN = `*filter
:OTHER-CHAIN - [0:0]
-A INPUT -s 192.0.2.1 -j OTHER-CHAIN
-A OTHER-CHAIN -j ACCEPT
COMMIT
*nat
-A PREROUTING -s 192.0.2.1 -j ACCEPT
COMMIT
`;

/** The rules that a kubelet creates on its node. */
const KUBELET = `*mangle
:KUBE-IPTABLES-HINT - [0:0]
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
-I INPUT -j KUBE-FIREWALL
-I OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
COMMIT
`;

/** Enough ServicePorts that there are chains of every kind, and those refused too. */
const PLAN = rulesPlan(Array.from({ length: 60 }, (_, index) =>
  testServicePlan({
    name: `web-${index}`,
    clusterIp: `172.30.${index % 5}.${index}`,
    nodePort: 30_000 + index,
    externalIps: [`192.0.2.${100 + index}`],
    to: index % 4 === 0
      ? []
      : Array.from({ length: index % 20 }, (_, end) => `10.0.0.${end + 1}:80`),
  })));

async function servedOn(...tables: readonly string[]): Promise<IptablesStage> {
  const stage = new IptablesStage();
  for (const text of tables) stage.machine.tool.restore(text);
  await stage.backend.start();
  await stage.sync(PLAN);
  return stage;
}

/** A machine that never had our rules. */
function untouched(...tables: readonly string[]): string {
  const { machine: { tool } } = new IptablesStage();
  for (const text of tables) tool.restore(text);
  return tool.dump();
}

Deno.test("cleanup() leaves the machine as it was, after a process that is gone too", async () => {
  for (const isGone of [false, true]) {
    await using stage = await servedOn(FOREIGN);
    if (isGone) await stage.restart();
    const { removed, failed, kept } = await stage.backend.cleanup();
    assertEquals([failed, kept], [[], undefined]);
    assertEquals(removed.includes("chain KUBE-SERVICES in nat (iptables-nft)"), true, `${removed}`);
    assertEquals(stage.machine.tool.dump(), untouched(FOREIGN));
    assertEquals((await stage.backend.cleanup()).removed, [], "nothing is left");
  }
});

Deno.test("cleanup() leaves the chains of the kubelet", async () => {
  await using stage = await servedOn(FOREIGN, KUBELET);
  await stage.backend.cleanup();
  assertEquals(stage.machine.tool.dump(), untouched(FOREIGN, KUBELET));
});

Deno.test("cleanup() changes nothing in a dry run, and reports the removals", async () => {
  await using stage = await servedOn(FOREIGN);
  const before = stage.machine.tool.dump();
  const { removed, commands } = await stage.backend.previewCleanup!();
  assertEquals(stage.machine.tool.dump(), before);
  assertEquals([removed.length > 0, commands?.length], [true, 3]);
  assertEquals((await stage.backend.cleanup()).removed, removed);
});

Deno.test("cleanup() leaves the entry points to a kube-proxy that has taken them over", async () => {
  await using stage = await servedOn(FOREIGN);
  const { tool } = stage.machine;
  const leftovers = [
    "-d 10.96.0.1/32 -j KUBE-SVC-AAAAAAAAAAAAAAAA",
    "-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS",
  ];
  tool.restore([
    ...["*filter", ":KUBE-SERVICES - [0:0]", ":KUBE-EXTERNAL-SERVICES - [0:0]"],
    ...[":KUBE-NODEPORTS - [0:0]", ":KUBE-PROXY-FIREWALL - [0:0]", "COMMIT"],
    ...["*nat", ":KUBE-SERVICES - [0:0]", ":KUBE-NODEPORTS - [0:0]", ":KUBE-POSTROUTING - [0:0]"],
    ...[
      ":KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]",
      ...leftovers.map((rule) => `-A KUBE-SERVICES ${rule}`),
    ],
    ...["COMMIT", ""],
  ].join("\n"));
  await stage.backend.cleanup();
  const chains = [...tool.table("nat").keys()];
  assertEquals(
    chains.filter((name) => /^KUBE-(VIP|NP|HP|HAIRPIN)/.test(name)),
    [],
    "only we have them",
  );
  assertEquals(chains.includes("KUBE-SVC-AAAAAAAAAAAAAAAA"), true);
  assertEquals(tool.table("nat").get("KUBE-SERVICES"), leftovers);
  assertEquals(
    tool.table("nat").get("PREROUTING")?.length,
    2,
    "the jump stays, and the foreign rule",
  );
});

Deno.test("cleanup() removes the rule against martians when the ipvs mode has taken over", async () => {
  for (const kubelet of [[], [KUBELET]]) {
    await using stage = await servedOn(FOREIGN, ...kubelet);
    const { tool } = stage.machine;
    // The rules after the first sync of the ipvs mode, without the chains of kube-proxy that it
    // removed.
    for (const table of ["filter", "nat", "mangle"] as const) {
      const taken = [...tool.table(table).keys()].filter((chain) =>
        /^KUBE-(SERVICES|EXTERNAL-SERVICES|NODEPORTS|PROXY-FIREWALL|PROXY-CANARY)$/.test(chain)
      );
      if (taken.length === 0) continue;
      const dead = ["INPUT", "OUTPUT", "FORWARD", "PREROUTING"].flatMap((from) =>
        (tool.table(table).get(from) ?? []).filter((rule) =>
          taken.some((chain) => rule.endsWith(`-j ${chain}`))
        ).map((rule) => `-D ${from} ${rule}`)
      );
      const flushed = [...taken, ...(table === "nat" ? ["KUBE-POSTROUTING"] : [])]
        .map((chain) => `:${chain} - [0:0]`);
      const gone = taken.map((chain) => `-X ${chain}`);
      tool.restore([`*${table}`, ...flushed, ...dead, ...gone, "COMMIT", ""].join("\n"));
    }
    await stage.backend.cleanup();
    const firewall = tool.table("filter").get("KUBE-FIREWALL");
    assertEquals(firewall?.length, kubelet.length === 0 ? undefined : 1);
    const jumps = tool.table("filter").get("INPUT")?.filter((rule) => rule.includes("FIREWALL"));
    assertEquals(jumps?.length, kubelet.length);
  }
});

Deno.test("cleanup() reports chains that it cannot remove", async () => {
  await using stage = await servedOn();
  stage.machine.judge = (line) => line === "*nat" ? "no" : undefined;
  const { failed } = await stage.backend.cleanup();
  assertEquals(failed.length, 1);
  assertEquals(failed[0]?.startsWith("kube-relay's chains in nat (iptables-nft): "), true);
  assertEquals(stage.machine.tool.table("filter").has("KUBE-SERVICES"), false);
});
