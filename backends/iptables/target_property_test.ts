import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { randomServicePlan } from "../../tests/support/builders/random_service_plan.ts";
import {
  OwnedPlans,
  testProxyPlan,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { FakeIptables } from "../../tests/support/fakes/fake_iptables.ts";
import { FakeIptablesMachine } from "../../tests/support/fakes/fake_iptables_machine.ts";
import { meaningOf } from "../../tests/support/stages/iptables_stage.ts";
import { IptablesWriterStage } from "../../tests/support/stages/iptables_writer_stage.ts";
import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import { IptablesError } from "../netfilter/iptables/iptables_runner.ts";
import { ruleDifferences } from "./target.ts";
import { IptablesLayout } from "./layout.ts";
import { renderIptables } from "./render.ts";
import type { IptablesRenderOptions } from "./render_options.ts";

const SHARED = testSharedPlan({ localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") } });
const FOREIGN = "-m mark --mark 0x77 -j ACCEPT";
const TABLES: readonly IptablesTable[] = ["mangle", "filter", "nat"];

/** As the tools print it. */
function printed(dump: string): string {
  return dump.replaceAll(/ -d (\d+(?:\.\d+){3}) /g, " -d $1/32 ")
    .replaceAll(/ -m (tcp|udp) -p \1 /g, " -p $1 -m $1 ")
    .replaceAll("--or-mark 0x00004000", "--set-xmark 0x4000/0x4000");
}

/** One history. */
class World {
  shared: SharedPlan = SHARED;
  options: IptablesRenderOptions = {
    ...defaultRenderOptions("IPv4"),
    nodePortAddresses: { kind: "cidrs", cidrs: [parseCidr("192.168.0.0/16")] },
  };
  stage: IptablesWriterStage;
  /** Whether a write failed, so that the kernel may have what nobody knows of. */
  hasFailed = false;
  readonly plans: OwnedPlans;

  constructor(tellsCommitOnly: boolean) {
    const machine = Object.assign(new FakeIptablesMachine(), { tellsCommitOnly });
    machine.commands.on("iptables-save", () => ({ stdout: printed(machine.tool.save()) }));
    for (const [table, chain] of [["filter", "FORWARD"], ["nat", "OUTPUT"]]) {
      machine.tool.restore(`*${table}\n-A ${chain} ${FOREIGN}\nCOMMIT\n`);
    }
    this.stage = new IptablesWriterStage({ machine, ...this });
    const layout = {
      set: (plan: ServicePlan) => this.stage.layout.set(plan),
      delete: (key: ServicePlan["key"]) => this.stage.layout.delete(key),
    };
    this.plans = new OwnedPlans(layout, SHARED);
  }

  get tool(): FakeIptables {
    return this.stage.machine.tool;
  }

  async sync(): Promise<void> {
    await this.stage.write();
  }

  /** Other rules for the same Services. */
  layOutAnew(): void {
    this.stage.layout = new IptablesLayout(this.shared, this.options);
    for (const plan of this.plans.values()) this.stage.layout.set(plan);
    this.stage.engine.forget();
  }

  async differences() {
    const { engine, target } = this.stage;
    return ruleDifferences(await engine.compare(), target.layout);
  }

  fresh(services: readonly ServicePlan[]): FakeIptables {
    const tool = new FakeIptables();
    const plan = testProxyPlan(services, { shared: this.shared });
    tool.restore(renderIptables(plan, this.options).lines.join("\n"));
    return tool;
  }

  check(): void {
    const own = meaningOf(this.tool).filter((line) => !line.endsWith(FOREIGN));
    assertEquals(own, meaningOf(this.fresh(this.plans.values())));
    const jumps = (tool: FakeIptables) =>
      TABLES.flatMap((table) =>
        [...tool.table(table)].filter(([chain]) => !chain.startsWith("KUBE-"))
          .map(([chain, rules]) => [table, chain, rules.filter((rule) => rule !== FOREIGN)])
      );
    assertEquals(jumps(this.tool), jumps(this.fresh([])));
    for (const table of TABLES) {
      const { size } = this.tool.table(table);
      assertEquals(size, new Set(this.wanted(table)).size, `chains of ${table}`);
    }
  }

  wanted(table: IptablesTable): readonly string[] {
    const own = [...this.stage.layout.chains()].filter((ref) => ref.table === table)
      .map(({ name }) => name);
    return [...own, ...[...this.tool.table(table).keys()].filter((name) => !/^KUBE-/.test(name))];
  }
}

type Step = (world: World) => Promise<void> | void;

const counts = { failures: 0, damages: 0, restarts: 0, refusals: 0 };

/** Has another program change something. Returns whether it did. */
const DAMAGES: readonly ((world: World, place: number) => boolean)[] = [
  // A rule is deleted.
  ({ tool, stage }, place) => {
    const table = TABLES[place % 3]!;
    const names = [...stage.layout.chains()].filter((ref) => ref.table === table);
    const filled = names.filter(({ name }) => (tool.table(table).get(name) ?? []).length > 0);
    const { name } = filled[place % filled.length]!;
    const rules = tool.table(table).get(name) ?? [];
    tool.restore(`*${table}\n-D ${name} ${rules[place % rules.length]}\nCOMMIT\n`);
    return true;
  },
  // One is changed.
  ({ tool, stage }, place) => {
    const names = [...stage.layout.chains()].filter(({ table }) => table === "nat");
    const { name } = names[place % names.length]!;
    tool.restore(`*nat\n-I ${name} -s 192.0.2.1 -j RETURN\nCOMMIT\n`);
    return true;
  },
  ({ tool }, place) => {
    tool.flush(TABLES[place % 3]!, { keepChains: place % 2 === 0 });
    tool.restore(`*filter\n-A FORWARD ${FOREIGN}\nCOMMIT\n*nat\n-A OUTPUT ${FOREIGN}\nCOMMIT\n`);
    return true;
  },
  ({ tool }) => {
    const lines = [
      ":KUBE-SVC-OLD - [0:0]",
      ":KUBE-SEP-OLD - [0:0]",
      "-A KUBE-SVC-OLD -j KUBE-SEP-OLD",
    ];
    tool.restore(["*nat", ...lines, "COMMIT", ""].join("\n"));
    return true;
  },
  // Jumps are deleted, doubled, or moved.
  ({ tool }, place) => {
    const rules = tool.table("filter").get("FORWARD")!.filter((rule) => rule !== FOREIGN);
    const rule = rules[place % rules.length]!;
    const first = place % 2 === 0 ? [`-D FORWARD ${rule}`] : [];
    const then = place % 3 === 0 ? [] : [`-A FORWARD ${rule}`];
    if (first.length + then.length === 0) return false;
    tool.restore(["*filter", ...first, ...then, "COMMIT", ""].join("\n"));
    return true;
  },
  ({ tool }) => {
    const rule = '-m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL';
    tool.restore(`*filter\n-I INPUT ${rule}\nCOMMIT\n`);
    return true;
  },
];

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    arbitrary: randomServicePlan.map((plan): Step => ({ plans }) => plans.set(plan)),
    weight: 8,
  },
  {
    arbitrary: fc.nat(60).map((name): Step => ({ plans }) =>
      plans.delete(testServicePlan({ name: String(name) }).key)
    ),
    weight: 3,
  },
  { arbitrary: fc.constant<Step>((world) => world.sync()), weight: 3 },
  {
    arbitrary: fc.subarray(["192.168.0.2", "127.0.0.1", "192.168.1.2"]).map(
      (addresses): Step => (world) => {
        const nodePortAddresses = addresses.map(parseIpAddress);
        world.shared = { ...world.shared, nodePortAddresses };
        world.stage.layout.setShared(world.shared);
      },
    ),
    weight: 1,
  },
  {
    arbitrary: fc.boolean().map((serviceComments): Step => (world) => {
      world.options = { ...world.options, serviceComments };
      world.layOutAnew();
    }),
    weight: 1,
  },
  // It is unknown what the kernel took.
  {
    arbitrary: fc.constantFrom("nothing", "all", 1, 2).map((taken): Step => async (world) => {
      const { machine } = world.stage;
      if (typeof taken === "number") machine.killedAfter = taken;
      else machine.commands.failNext("timeout", { carriedOut: taken === "all" });
      const error = await world.sync().then(() => undefined, (error) => error);
      if (error) counts.failures++;
      if (error) world.hasFailed = true;
      assert(error === undefined || error instanceof IptablesError, `${error}`);
      machine.killedAfter = Infinity;
      // Nothing may have been left to write.
      await machine.commands.run("iptables-restore", ["--version"]).catch(() => {});
    }),
    weight: 1,
  },
  {
    arbitrary: fc.record({ how: fc.nat(DAMAGES.length - 1), place: fc.nat(1_000) }).map(
      ({ how, place }): Step => async (world) => {
        await world.sync();
        if (!DAMAGES[how]!(world, place)) return;
        counts.damages++;
        assert((await world.differences()).length > 0, `damage ${how}`);
        await world.stage.verify();
        assertEquals(await world.differences(), []);
        world.check();
      },
    ),
    weight: 2,
  },
  // Another process takes over, with its own shape of the trees.
  {
    arbitrary: fc.boolean().map((isSynced): Step => async (world) => {
      counts.restarts++;
      if (isSynced) await world.sync();
      world.stage = new IptablesWriterStage({ ...world, machine: world.stage.machine });
      world.layOutAnew();
      await world.sync();
    }),
    weight: 1,
  },
  // The kernel refuses an endpoint, until later.
  {
    arbitrary: fc.array(fc.tuple(randomServicePlan, fc.boolean()), { minLength: 1, maxLength: 12 })
      .map((drawn): Step => async (world) => {
        const { layout, machine } = world.stage;
        const known = new Set(
          world.plans.values().flatMap(({ reachable }) => reachable.map(({ key }) => key)),
        );
        const bad = drawn.flatMap(([{ reachable: [first] }, isBad]) =>
          isBad && first && !known.has(first.key) ? [` ${first.key}`] : []
        );
        await world.sync();
        for (const [plan] of drawn) world.plans.set(plan);
        machine.judge = (line) =>
          bad.some((end) => line.endsWith(end)) ? "Invalid argument" : undefined;
        await world.sync();
        const isBad = (plan: ServicePlan) =>
          renderIptables(testProxyPlan([plan]), world.options).lines.join("\n")
            .split("\n").some((line) => bad.some((end) => line.endsWith(end)));
        const out = world.plans.values().filter(({ key }) => layout.plan(key) === undefined);
        counts.refusals += out.length;
        for (const plan of out) assert(isBad(plan), `${plan.key} is not to blame`);
        for (const plan of world.plans.values()) {
          if (out.includes(plan)) continue;
          assert(!isBad(plan), `${plan.key} is refused`);
        }
        machine.judge = () => undefined;
        for (const plan of out) layout.set(plan);
      }),
    weight: 1,
  },
  {
    arbitrary: fc.constantFrom("filter" as const, "nat" as const).map(
      (table): Step => async (world) => {
        world.tool.unreadable.add(table);
        world.stage.engine.forget();
        await world.sync();
        world.tool.unreadable.clear();
        // What a failed write left in such a table is seen by the next reading.
        if (world.hasFailed) world.stage.engine.forget();
      },
    ),
    weight: 1,
  },
);

Deno.test("the engine gives the rules of a rendering from nothing, whatever happened before", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.boolean(),
      fc.array(step, { minLength: 5, maxLength: 40, size: "max" }),
      async (tellsCommitOnly, steps) => {
        const world = new World(tellsCommitOnly);
        for (const step of steps) await step(world);
        await world.sync();
        world.check();
        assertEquals(await world.stage.write(), []);
        assertEquals(await world.differences(), []);
      },
    ),
    { numRuns: 150 },
  );
  for (const [what, count] of Object.entries(counts)) assert(count > 50, `${count} ${what}`);
});
