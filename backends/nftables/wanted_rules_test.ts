import { assertEquals, assertRejects } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { defaultRenderOptions } from "../../tests/support/builders/nftables_render_options.ts";
import {
  testPlanChanges,
  testProxyPlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeNftMachine } from "../../tests/support/fakes/fake_nft_machine.ts";
import { NftError } from "../netfilter/nft/nft_error.ts";
import { NftRunner } from "../netfilter/nft/nft_runner.ts";
import { RefusedItems } from "../netfilter/refused_items.ts";
import { WantedRules } from "../netfilter/wanted_rules.ts";
import { servicesTable } from "./containers.ts";
import { NftablesLayout } from "./layout.ts";
import { NftFigures } from "../netfilter/nft/nft_table.ts";
import type { NftablesRenderOptions } from "./render_options.ts";
import { TableWriter } from "./target.ts";

const OPTIONS = defaultRenderOptions("IPv4");
const WEB = testServicePlan({ masqueradeInternal: "off-cluster", to: ["10.0.0.1:80"] });
const DB = testServicePlan({ name: "db", clusterIp: "172.30.0.2", to: ["10.0.0.2:5432"] });

/** A table of a machine, taken from plans. */
class Stage {
  readonly clock = new FakeClock();
  readonly writer: TableWriter;
  readonly wanted: WantedRules<NftablesLayout, NftablesRenderOptions, NftFigures>;
  #previous: ProxyPlan | undefined;

  constructor(readonly machine = new FakeNftMachine()) {
    const runner = new NftRunner(this.machine, servicesTable("IPv4"));
    const { clock } = this;
    const refused = new RefusedItems();
    this.writer = new TableWriter({ clock, runner, refused }, "IPv4");
    this.wanted = new WantedRules({
      ...{ clock, refused, writer: this.writer },
      createLayout: (shared, options) => new NftablesLayout(shared, options),
    });
  }

  async apply(plan: ProxyPlan, options = OPTIONS): Promise<NftFigures> {
    const figures = new NftFigures();
    await this.wanted.take(plan, { changes: testPlanChanges(plan, this.#previous), options });
    this.#previous = plan;
    await this.wanted.write(figures);
    return figures;
  }

  rules(chain: string): readonly string[] | undefined {
    return this.machine.tool.table("ip kube-relay").chains.get(chain);
  }
}

Deno.test("WantedRules of nftables has nothing to write before there is a plan", async () => {
  const { wanted, machine } = new Stage();
  await wanted.write(new NftFigures());
  await wanted.verify(new NftFigures());
  assertEquals([machine.commands.calls, wanted.quarantined], [[], []]);
});

Deno.test("WantedRules of nftables costs as much as the change", async () => {
  const stage = new Stage();
  await stage.apply(testProxyPlan([WEB, DB]));
  const { reads, elements, chains } = await stage.apply(testProxyPlan([WEB]));
  // The number of its chain is one of them.
  assertEquals([reads, elements, chains], [0, 4, 0]);
});

Deno.test("WantedRules of nftables writes all rules again when pods are detected in another way, and reads once", async () => {
  const stage = new Stage();
  const byCidr = (cidr: string) =>
    testProxyPlan([WEB], {
      shared: { localTraffic: { kind: "byCidr", cidr: parseCidr(cidr) } },
    });
  await stage.apply(byCidr("10.0.0.0/8"));
  const { reads, elements } = await stage.apply(byCidr("10.1.0.0/16"));
  assertEquals([reads, elements], [1, 0]);
  assertEquals(
    stage.rules("off-cluster-1")?.[0],
    [
      "ip saddr != 10.1.0.0/16 meta mark set meta mark or 0x4000",
    ].join(""),
  );
});

Deno.test("WantedRules of nftables writes all rules again with other options, and none with the same", async () => {
  const stage = new Stage();
  const plan = testProxyPlan([{ ...WEB, masqueradeInternal: "all" }]);
  await stage.apply(plan);
  assertEquals((await stage.apply(plan, { ...OPTIONS })).transactions, 0);
  assertEquals((await stage.apply(plan, { ...OPTIONS, masqueradeBit: 15 })).reads, 1);
  assertEquals(stage.rules("masquerade-1")?.[0], "meta mark set meta mark or 0x8000");
});

Deno.test("WantedRules of nftables accepts ranges of Services without reading anything", async () => {
  const stage = new Stage();
  await stage.apply(testProxyPlan([WEB]));
  const serviceCidrs = [parseCidr("172.30.0.0/16")];
  const { reads, elements } = await stage.apply({
    ...testProxyPlan([WEB], { shared: { serviceCidrs } }),
  });
  // The ServicePort is the very same.
  assertEquals([reads, elements], [0, 1]);
});

Deno.test("WantedRules of nftables retries refused items later, or when they have changed", async () => {
  const stage = new Stage();
  stage.machine.judge = (line) => line.includes("10.0.0.2 . 5432") ? "why" : undefined;
  const plan = testProxyPlan([WEB, DB]);
  await stage.apply(plan);
  assertEquals(stage.wanted.quarantined.map(({ key }) => key), [DB.key]);
  stage.machine.judge = () => undefined;
  const retry = async (services: ProxyPlan) => {
    const changes = { ...testPlanChanges(plan, plan), upserted: new Set([DB.key]) };
    await stage.wanted.take(services, { changes, options: OPTIONS });
    return stage.wanted.quarantined.length;
  };
  assertEquals(await retry(plan), 1, "too early");
  await stage.clock.advance(1_000);
  assertEquals(await retry(plan), 0);

  const other = new Stage();
  other.machine.judge = (line) => line.includes("10.0.0.2 . 5432") ? "why" : undefined;
  await other.apply(plan);
  await other.apply(testProxyPlan([WEB, { ...DB }]));
  assertEquals(other.wanted.quarantined.length, 1, "another plan is tried at once, and refused");
  await other.apply(testProxyPlan([WEB]));
  assertEquals(other.wanted.quarantined, []);
});

Deno.test("WantedRules of nftables retries refused items at once when settings of all rules change", async () => {
  const plan = testProxyPlan([WEB, DB]);
  const serviceCidrs = [parseCidr("172.30.0.0/16")];
  const others: readonly [ProxyPlan, typeof OPTIONS][] = [
    [plan, { ...OPTIONS, masqueradeBit: 15 }],
    [testProxyPlan([WEB, DB], { shared: { serviceCidrs } }), OPTIONS],
  ];
  for (const [next, options] of others) {
    const stage = new Stage();
    stage.machine.judge = (line) => line.includes("10.0.0.2 . 5432") ? "why" : undefined;
    await stage.apply(plan);
    stage.machine.judge = () => undefined;
    const changes = { ...testPlanChanges(next, plan), upserted: new Set([DB.key]) };
    await stage.wanted.take(next, { changes, options });
    assertEquals(stage.wanted.quarantined, []);
  }
});

Deno.test("WantedRules of nftables: verify() finds changes by other programs, and ignores unused chains", async () => {
  const stage = new Stage();
  const two = testServicePlan({
    name: "db",
    clusterIp: "172.30.0.2",
    to: ["10.0.0.2:1", "10.0.0.3:1"],
  });
  await stage.apply(testProxyPlan([WEB, two]));
  await stage.apply(testProxyPlan([WEB]));
  const verified = async () => {
    const figures = new NftFigures();
    await stage.wanted.verify(figures);
    return [figures.elements, figures.drift.length];
  };
  assertEquals(await verified(), [0, 0]);
  assertEquals(stage.rules("to-2"), undefined);
  stage.machine.tool.run("delete element ip kube-relay cluster-ips {\n  127.96.0.1\n}\n");
  assertEquals(await verified(), [1, 1]);
  assertEquals([await verified(), stage.wanted.failedWrites], [[0, 0], 0]);
});

Deno.test("WantedRules of nftables: verify() leaves endpoints the numbers that they were given when they came", async () => {
  const stage = new Stage();
  const web = (to: readonly string[], more = {}) =>
    testServicePlan({ ...more, nodePort: 30_080, to });
  for (const more of [{}, { affinityTimeoutSeconds: 60 }]) {
    await stage.apply(testProxyPlan([web(["10.0.0.2:80"], more)]));
    // The first one in the order of the plan comes last, and gets the last number.
    await stage.apply(testProxyPlan([web(["10.0.0.1:80", "10.0.0.2:80"], more)]));
    const figures = new NftFigures();
    await stage.wanted.verify(figures);
    assertEquals([figures.reads, figures.elements], [1, 0]);
    // Nor does a second verification, nor a change after it, move an endpoint that stays.
    await stage.wanted.verify(figures);
    assertEquals([figures.reads, figures.elements], [2, 0]);
    const { elements } = await stage.apply(testProxyPlan([web(["10.0.0.2:80"], more)]));
    assertEquals(elements > 0, true);
    await stage.wanted.verify(figures);
    assertEquals([figures.reads, figures.elements], [3, 0]);
  }
});

Deno.test("WantedRules of nftables: verify() reads again if the kernel repeats elements in place of others", async () => {
  const stage = new Stage();
  await stage.apply(testProxyPlan([WEB, DB]));
  for (const tornListings of [1, 3]) {
    stage.machine.tornListings = tornListings;
    const figures = new NftFigures();
    await stage.wanted.verify(figures);
    assertEquals([stage.machine.tornListings, figures.elements], [0, 0]);
  }
});

Deno.test("WantedRules of nftables: verify() reports no change when a listing lacks rules", async () => {
  const stage = new Stage();
  await stage.apply(testProxyPlan([WEB, DB]));
  // The first listing of new chains is the print that later ones are compared with.
  for (const cutListings of [1, 0, 0, 1, 0]) {
    stage.machine.cutListings = cutListings;
    const figures = new NftFigures();
    await stage.wanted.verify(figures);
    assertEquals([figures.drift, figures.elements], [[], 0]);
  }
});

Deno.test("WantedRules of nftables: verify() removes rules that another program adds before and after a start", async () => {
  const before = new Stage();
  await before.apply(testProxyPlan([WEB]));
  const right = [...before.rules("services") ?? []];
  const { machine } = before;
  const add = () => machine.tool.run("add rule ip kube-relay services ip saddr 10.0.0.1 drop\n");
  add();
  const stage = new Stage(machine);
  await stage.apply(testProxyPlan([WEB]));
  for (let time = 1; time <= 4; time++) {
    add();
    const figures = new NftFigures();
    await stage.wanted.verify(figures);
    assertEquals(figures.drift.map(({ name }) => name), ["services"]);
    assertEquals(stage.rules("services"), right);
  }
});

Deno.test("WantedRules of nftables: verify() replaces the rules of former settings that another program restores after a start", async () => {
  const before = new Stage();
  const { machine } = before;
  await before.apply(testProxyPlan([WEB]), { ...OPTIONS, masqueradeBit: 15 });
  const former = before.rules("nat-postrouting")!;
  const stage = new Stage(machine);
  await stage.apply(testProxyPlan([WEB]));
  const right = stage.rules("nat-postrouting");
  const { chains } = machine.tool.table("ip kube-relay");
  chains.set("nat-postrouting", [...former]);
  for (let time = 1; time <= 3; time++) {
    await stage.wanted.verify(new NftFigures());
    assertEquals(stage.rules("nat-postrouting"), right);
  }
});

Deno.test("the numbers of endpoints are kept after a write that failed, and after a restart", async () => {
  const stage = new Stage();
  const web = (...to: readonly string[]) => testProxyPlan([testServicePlan({ to })]);
  await stage.apply(web("10.0.0.2:80"));
  await stage.apply(web("10.0.0.1:80", "10.0.0.2:80"));
  stage.machine.commands.failNext("timeout");
  const changed = web("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80");
  await assertRejects(() => stage.apply(changed), NftError);
  const targets =
    () => [...stage.machine.tool.table("ip kube-relay").elements.get("endpoints")!.values()];
  const wanted = ["10.0.0.2 . 80", "10.0.0.1 . 80", "10.0.0.3 . 80"];
  await stage.apply(changed);
  assertEquals(targets(), wanted);
  const restarted = new Stage(stage.machine);
  assertEquals((await restarted.apply(changed)).elements, 0);
  assertEquals(targets(), wanted);
});

Deno.test("WantedRules of nftables counts failures, including those of cleanups", async () => {
  const stage = new Stage();
  stage.machine.commands.failCall(2, "timeout");
  await assertRejects(() => stage.apply(testProxyPlan([WEB, DB])), NftError);
  assertEquals([stage.wanted.isKnown, stage.wanted.failedWrites], [false, 1]);
  await stage.wanted.write(new NftFigures());
  await stage.apply(testProxyPlan([WEB]));
  stage.machine.commands.failNext("timeout");
  await stage.wanted.verify(new NftFigures());
  const { failedWrites, isKnown } = stage.wanted;
  const { failedCleanups } = stage.writer;
  assertEquals([failedWrites, failedCleanups, isKnown], [2, 1, true]);
});
