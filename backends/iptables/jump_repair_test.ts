import { assertEquals } from "@std/assert";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { testProxyPlan } from "../../tests/support/builders/service_plans.ts";
import { FakeIptables } from "../../tests/support/fakes/fake_iptables.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { IptablesSave, type SavedTables } from "../netfilter/iptables/iptables_save.ts";
import type { Jump } from "./base_chains.ts";
import { repairJumps } from "./jump_repair.ts";
import { renderIptables } from "./render.ts";

const OPTIONS = defaultRenderOptions("IPv4");
const FOREIGN = '-s 192.0.2.0/24 -m comment --comment "not ours" -j ACCEPT';

/** A machine with our rules, and what else is written to it. */
function machine(...lines: readonly string[]): FakeIptables {
  const tool = new FakeIptables();
  tool.restore([...renderIptables(testProxyPlan([]), OPTIONS).batch.text()].join(""));
  if (lines.length > 0) tool.restore(`${lines.join("\n")}\n`);
  return tool;
}

function read(tool: FakeIptables): SavedTables {
  const save = new IptablesSave();
  for (const line of tool.save().split("\n")) save.take(line);
  return save.end();
}

/** Each jump as its line. */
function repair(tool: FakeIptables, options = OPTIONS) {
  const { removedJumps, jumps } = repairJumps(options, read(tool));
  return {
    removed: removedJumps.map(({ table, from, rule }) => `${table} ${from} ${rule}`),
    inserted: jumps.map(({ table, from, rule }: Jump) => `${table} ${from} ${ruleText(rule)}`),
  };
}

const POSTROUTING = '-m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING';

Deno.test("repairJumps() has nothing to do if all are there, whatever stands among them", () => {
  assertEquals(repair(machine()), { removed: [], inserted: [] });
  const among = machine("*filter", `-I INPUT ${FOREIGN}`, `-A INPUT ${FOREIGN}`, "COMMIT");
  assertEquals(repair(among), { removed: [], inserted: [] });
});

Deno.test("repairJumps() inserts all on an empty machine, and removes none", () => {
  const { removed, inserted } = repair(new FakeIptables());
  assertEquals([removed, inserted.length], [[], 15]);
});

Deno.test("repairJumps() inserts one that is missing if it is the only one of its chain", () => {
  const tool = machine("*nat", `-D POSTROUTING ${POSTROUTING}`, "COMMIT");
  assertEquals(repair(tool), { removed: [], inserted: [`nat POSTROUTING ${POSTROUTING}`] });
});

Deno.test("repairJumps() removes a duplicate jump, and inserts one in place of both", () => {
  const tool = machine("*nat", `-A POSTROUTING ${POSTROUTING}`, "COMMIT");
  const line = `nat POSTROUTING ${POSTROUTING}`;
  assertEquals(repair(tool), { removed: [line, line], inserted: [line] });
});

Deno.test("repairJumps() puts a chain in order again, in which one is missing", () => {
  const firewall =
    '-m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL';
  const { removed, inserted } = repair(machine("*filter", `-D OUTPUT ${firewall}`, "COMMIT"));
  assertEquals(removed.map((line) => /KUBE-\S+$/.exec(line)?.[0]), [
    "KUBE-SERVICES",
    "KUBE-EXTERNAL-SERVICES",
  ]);
  assertEquals(inserted.map((line) => /KUBE-\S+$/.exec(line)?.[0]), [
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-SERVICES",
    "KUBE-PROXY-FIREWALL",
  ]);
});

Deno.test("repairJumps() removes leftover jumps of kube-proxy's ipvs mode, and no foreign ones", () => {
  const ipvs = '-m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL';
  const others = "-p tcp -m tcp --dport 9 -j KUBE-PROXY-FIREWALL";
  const tool = machine("*filter", `-I INPUT ${ipvs}`, `-I INPUT ${others}`, "COMMIT");
  assertEquals(repair(tool), { removed: [`filter INPUT ${ipvs}`], inserted: [] });
});

Deno.test("repairJumps() adds one rule of kube-relay to a chain that the kubelet has filled", () => {
  const drop = "-m mark --mark 0x8000/0x8000 -j DROP";
  const tool = machine("*filter", ":KUBE-FIREWALL - [0:0]", `-A KUBE-FIREWALL ${drop}`, "COMMIT");
  const { removed, inserted } = repair(tool);
  assertEquals([removed, inserted.map((line) => line.slice(0, 42))], [[], [
    "filter KUBE-FIREWALL -d 127.0.0.0/8 ! -s 1",
  ]]);
  tool.restore(`*filter\n-I ${inserted[0]?.slice("filter ".length)}\nCOMMIT\n`);
  assertEquals(repair(tool), { removed: [], inserted: [] });
  assertEquals(repair(tool, { ...OPTIONS, localhostNodePorts: false }).inserted, []);
});
