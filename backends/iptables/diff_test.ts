import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { randomServicePlan } from "../../tests/support/builders/random_service_plan.ts";
import {
  OwnedPlans,
  testProxyPlan,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { FakeIptables } from "../../tests/support/fakes/fake_iptables.ts";
import type { RestoreBatch } from "../netfilter/iptables/restore_batch.ts";
import { AppliedRules } from "./applied_rules.ts";
import { baseJumps } from "./base_chains.ts";
import { diffRules, diffRulesInSteps, staleChains } from "./diff.ts";
import { IptablesLayout } from "./layout.ts";
import { renderIptables } from "./render.ts";

const OPTIONS = defaultRenderOptions("IPv4");
const SHARED = testSharedPlan({ localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") } });

/** A layout, and a tool that takes its batches. */
class Stage {
  readonly layout = new IptablesLayout(SHARED, OPTIONS);
  readonly applied = new AppliedRules();
  readonly tool: FakeIptables;

  constructor(onCommit?: ConstructorParameters<typeof FakeIptables>[0]) {
    this.tool = new FakeIptables(onCommit);
    this.sync({ jumps: baseJumps(OPTIONS) });
  }

  sync(options?: Parameters<typeof diffRules>[2]): RestoreBatch<ServicePortKey> {
    const batch = diffRules(this.layout, this.applied, options);
    this.tool.restore([...batch.text()].join(""));
    this.applied.confirm(batch.applied);
    this.layout.settle();
    return batch;
  }
}

/** The number-th ServicePort, with two endpoints. */
function plan(number: number, to?: readonly string[]): ServicePlan {
  const [high, low] = [number >> 8, number & 255];
  return testServicePlan({
    name: `service-${number}`,
    clusterIp: `172.30.${high}.${low}`,
    masqueradeInternal: "off-cluster",
    to: to ?? [`10.1.${high}.${low}:8080`, `10.2.${high}.${low}:8080`],
  });
}

Deno.test("diffRules() gives an empty batch when nothing changed", () => {
  const stage = new Stage();
  stage.layout.set(plan(1));
  assertEquals(stage.sync().isEmpty, false);
  assert(stage.sync().isEmpty);
  stage.layout.set({ ...plan(1) });
  assert(stage.sync().isEmpty, "the same rules once more");
  stage.layout.touchAll();
  assert(stage.sync().isEmpty, "all rules compared");
});

for (const count of [100, 10_000]) {
  Deno.test(`diffRules() writes at most 60 lines for one change among ${count}`, () => {
    const stage = new Stage();
    const ascending = count === 100;
    const at = (number: number) => ascending ? number : Math.imul(number, 40_503) & 0xffff;
    for (let number = 1; number <= count; number++) stage.layout.set(plan(at(number)));
    stage.sync();
    for (let number = 1; number <= count; number += count / 50) {
      stage.layout.set(plan(at(number), ["10.3.0.1:80", "10.3.0.2:80"]));
      const { lines } = stage.sync();
      assert(lines.length <= 60, `one endpoint: ${lines.length}`);
    }
    for (let number = count + 1; number <= count + 50; number++) {
      stage.layout.set(plan(at(number)));
      const { lines } = stage.sync();
      assert(lines.length <= 60, `one Service more: ${lines.length}`);
    }
    for (let number = 1; number <= count; number += count / 50) {
      stage.layout.delete(plan(at(number)).key);
      const { lines } = stage.sync();
      assert(lines.length <= 70, `one Service less: ${lines.length}`);
    }
  });
}

Deno.test("diffRules() keeps chains few and dispatch flat at 10,000 ServicePorts", () => {
  const layout = new IptablesLayout(SHARED, OPTIONS);
  for (let number = 1; number <= 10_000; number++) layout.set(plan(number));
  const batch = diffRules(layout, new AppliedRules());
  assert(batch.applied.length <= 1_000, `${batch.applied.length} chains`);
  const largest = Math.max(...batch.applied.map(({ rules = [] }) => rules.length));
  assert(largest <= 52, `a chain of ${largest} rules`);
});

Deno.test("diffRules() names the ServicePort of each line", () => {
  const stage = new Stage();
  stage.layout.set(plan(1));
  const batch = stage.sync();
  for (const [index, line] of batch.lines.entries()) {
    assertEquals(batch.ownerOf(index + 1) === plan(1).key, line.includes("172.30.0.1"), line);
  }
});

Deno.test("diffRules() refuses before nat changes, and stops refusing after", () => {
  const stage = new Stage();
  stage.layout.set(plan(1));
  stage.sync();
  const tables = ({ lines }: RestoreBatch<ServicePortKey>) =>
    lines.filter((line) => line.startsWith("*"));
  stage.layout.set(plan(1, []));
  assertEquals(tables(stage.sync()), ["*filter", "*nat"]);
  stage.layout.set(plan(1));
  assertEquals(tables(stage.sync()), ["*nat", "*filter"]);
  stage.layout.set(plan(2, []));
  stage.sync();
  stage.layout.set(plan(1, []));
  stage.layout.set(plan(2));
  const batch = stage.sync();
  assertEquals(tables(batch), ["*filter", "*nat", "*filter"]);
  const refused = batch.lines.filter((line) => line.endsWith("-j REJECT"))
    .map((line) => /172\.30\.0\.\d/.exec(line)?.[0]);
  assertEquals(refused, ["172.30.0.1", "172.30.0.2", "172.30.0.1"]);
});

Deno.test("diffRulesInSteps() has a step for each chain", () => {
  const layout = new IptablesLayout(SHARED, OPTIONS);
  for (let number = 1; number <= 2_000; number++) layout.set(plan(number));
  const steps = diffRulesInSteps(layout, new AppliedRules());
  assert([...steps].length > [...layout.dirty].length);
});

Deno.test("diffRules() adopts the rules of kube-proxy, and removes stale ones", () => {
  const stage = new Stage();
  stage.tool.restore(
    [
      "*filter",
      ":KUBE-SERVICES - [0:0]",
      "-A KUBE-SERVICES -d 172.30.0.9/32 -p tcp -m tcp --dport 80 -j REJECT",
      "COMMIT",
      "*nat",
      ":KUBE-SVC-AAAA - [0:0]",
      ":KUBE-SEP-BBBB - [0:0]",
      ":KUBE-SERVICES - [0:0]",
      "-A KUBE-SERVICES -d 172.30.0.1/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-AAAA",
      "-A KUBE-SVC-AAAA -j KUBE-SEP-BBBB",
      "-A KUBE-SEP-BBBB -p tcp -j DNAT --to-destination 10.0.0.1:80",
      "COMMIT",
      "",
    ].join("\n"),
  );
  const { applied, layout, tool } = stage;
  for (const table of ["filter", "nat"] as const) {
    applied.adopt(table, new Map([...tool.table(table)].filter(([name]) => /^KUBE-/.test(name))));
  }
  layout.touchAll();
  layout.set(plan(1));
  const stale = staleChains(layout, applied);
  assertEquals(stale, { filter: [], mangle: [], nat: ["KUBE-SVC-AAAA", "KUBE-SEP-BBBB"] });
  const { lines } = stage.sync({ stale });
  const [first] = lines.join("\n").split("*nat");
  assert(!first?.includes(":KUBE-SERVICES"), "what was refused is refused until nat is written");
  const fresh = new Stage();
  fresh.layout.set(plan(1));
  fresh.sync();
  assertEquals(tool.dump(), fresh.tool.dump());
});

/** Every rule that is no dispatch, sorted: chains of the tree may differ with the history. */
function meaning(tool: FakeIptables): string[] {
  return tool.dump().split("\n")
    .filter((line) =>
      line.startsWith("  ") && !/-[jg] KUBE-(VIP|EVIP|FVIP|ENP|NP|HP|HCP)-/.test(line)
    )
    .sort();
}

Deno.test("diffRules() gives the result of a fresh rendering, whatever the history", () => {
  const step = fc.oneof(
    {
      arbitrary: fc.record({ kind: fc.constant("set" as const), service: randomServicePlan }),
      weight: 6,
    },
    { arbitrary: fc.record({ kind: fc.constant("delete" as const), at: fc.nat(60) }), weight: 2 },
    { arbitrary: fc.constant({ kind: "sync" as const }), weight: 3 },
  );
  fc.assert(
    fc.property(fc.array(step, { minLength: 30, maxLength: 150, size: "max" }), (steps) => {
      const stage = new Stage();
      const plans = new OwnedPlans(stage.layout, SHARED);
      for (const step of steps) {
        if (step.kind === "sync") stage.sync();
        else if (step.kind === "set") plans.set(step.service);
        else plans.delete(testServicePlan({ name: String(step.at) }).key);
      }
      stage.sync();
      const wanted = [...stage.layout.chains()];
      for (const ref of wanted) {
        const { rules } = stage.layout.content(ref) ?? {};
        assertEquals(stage.tool.table(ref.table).get(ref.name), rules, ref.name);
      }
      const names = new Set(wanted.map(({ table, name }) => `${table} ${name}`));
      for (const table of ["filter", "nat"] as const) {
        for (const name of stage.tool.table(table).keys()) {
          if (name.startsWith("KUBE-")) assert(names.has(`${table} ${name}`), `${name} is stale`);
        }
      }
      const fresh = new FakeIptables();
      const plan = { ...testProxyPlan(plans.values()), shared: SHARED };
      fresh.restore([...renderIptables(plan, OPTIONS).batch.text()].join(""));
      assertEquals(meaning(stage.tool), meaning(fresh));
    }),
    { numRuns: 60 },
  );
});

Deno.test("renderIptables() gives the same bytes whatever the order of the plan", () => {
  const plans = Array.from({ length: 50 }, (_, number) => plan(number));
  const text = (services: readonly ServicePlan[]) =>
    [...renderIptables({ ...testProxyPlan(services), shared: SHARED }, OPTIONS).batch.text()]
      .join("");
  assertEquals(text(plans), text(plans.toReversed()));
});
