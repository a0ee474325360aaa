/**
 * The nftables backend on a real kernel: whatever happens, the table comes to what is wanted.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { createNftablesBackend } from "../../backends/nftables/backend.ts";
import { CONTAINER_NAMES, DYNAMIC_CONTAINER } from "../../backends/nftables/containers.ts";
import { renderNftables } from "../../backends/nftables/render.ts";
import { defaultRenderOptions } from "../../backends/nftables/render_options.ts";
import { TableListing } from "../../backends/nftables/table_listing.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../../lib/os/command_runner.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { eventually } from "../support/eventually.ts";
import { FakeNft } from "../support/fake_nft.ts";
import { MemoryLogger } from "../support/memory_logger.ts";
import { Namespace, netnsRequirements } from "../support/netns.ts";
import { randomServicePlan } from "../support/random_service_plan.ts";
import { isMissing, program } from "../support/requirement.ts";
import { testPlanChanges, testProxyPlan, testServicePlan } from "../support/service_plans.ts";

const ignore = isMissing("nftables mode on a real kernel", [
  ...netnsRequirements(),
  program("nft"),
]);

const OPTIONS = defaultRenderOptions("IPv4");
const SHARED = {
  localTraffic: { kind: "byCidr" as const, cidr: parseCidr("10.0.0.0/8") },
  serviceCidrs: [parseCidr("172.30.0.0/16")],
};

/** A backend whose tools run in a namespace, and what it ran. */
class Stage implements AsyncDisposable {
  readonly namespace: Namespace;
  readonly logger = new MemoryLogger();
  readonly calls: string[] = [];
  readonly drift: unknown[] = [];
  backend: ReturnType<typeof createNftablesBackend>;
  #plan: ProxyPlan | undefined;

  private constructor(namespace: Namespace) {
    this.namespace = namespace;
    this.backend = this.#create();
  }

  static async create(): Promise<Stage> {
    const stage = new Stage(await Namespace.create("nft"));
    await stage.backend.start();
    return stage;
  }

  async restart(): Promise<void> {
    await this.backend[Symbol.asyncDispose]();
    this.backend = this.#create();
    this.#plan = undefined;
    await this.backend.start();
  }

  sync(plans: readonly ServicePlan[]) {
    const plan = testProxyPlan(plans, { shared: SHARED });
    const changes = testPlanChanges(plan, this.#plan);
    this.#plan = plan;
    return this.backend.sync(plan, changes);
  }

  nft(command: string): Promise<string> {
    return this.namespace.output("nft", command.split(" "));
  }

  /** Sets, maps and chains as the kernel has them, against what is rendered from nothing. */
  async check(plans: readonly ServicePlan[]): Promise<void> {
    const listing = new TableListing();
    for (const line of (await this.nft("list table ip kube-relay")).split("\n")) listing.take(line);
    const { elements, chains } = listing.end();
    const { transaction } = renderNftables(testProxyPlan(plans, { shared: SHARED }), OPTIONS);
    const fake = new FakeNft();
    fake.run([...transaction.text()].join(""));
    const wanted = fake.table("ip kube-relay");
    for (const name of CONTAINER_NAMES) {
      if (name === DYNAMIC_CONTAINER) continue;
      const found = [...elements.get(name) ?? []];
      const texts = (list: Iterable<[string, string]>) =>
        [...list].map(([key, value]) => `${key.replace(/0x8000[08]\w+$/, "")} ${value}`).sort();
      const expected = [...wanted.elements.get(name) ?? []];
      // Chains that nothing leads to stay for a while.
      if (name === "chains") {
        const missing = expected.filter(([key, value]) => elements.get(name)?.get(key) !== value);
        assertEquals(missing, [], name);
        continue;
      }
      // Which of the numbers an endpoint has is left to history.
      if (/endpoints|choices/.test(name)) assertEquals(texts(found), texts(expected), name);
      else assertEquals(found.sort(), expected.sort(), name);
    }
    for (const chain of wanted.chains.keys()) assert(chains.includes(chain), chain);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.backend[Symbol.asyncDispose]();
    await this.namespace[Symbol.asyncDispose]();
  }

  #create() {
    const { name } = this.namespace;
    const commands: CommandRunner = {
      run: (program, args, options) => {
        this.calls.push([program, ...args].join(" "));
        return systemCommandRunner.run("ip", ["netns", "exec", name, program, ...args], options);
      },
    };
    return createNftablesBackend({
      clock: systemClock,
      commands,
      logger: this.logger,
      random: () => 0,
      onDrift: (figures) => this.drift.push(figures),
    }, {
      family: "IPv4",
      masqueradeBit: 14,
      syncPeriodMs: 50,
      node: () => ({ nodePortAddresses: { kind: "all" } }),
    });
  }
}

function plan(number: number, to = [`10.1.0.${number}:8080`, `10.2.0.${number}:8080`]) {
  return testServicePlan({
    name: `service-${number}`,
    clusterIp: `172.30.0.${number}`,
    masqueradeInternal: "off-cluster",
    to,
  });
}

Deno.test({
  name: "random histories come to what is rendered from nothing, restarts and flushes among them",
  ignore,
  fn: async () => {
    await using stage = await Stage.create();
    const histories = fc.sample(
      fc.array(
        fc.record({
          set: fc.array(randomServicePlan, { maxLength: 8 }),
          remove: fc.array(fc.nat(60), { maxLength: 8 }),
          event: fc.constantFrom("none", "none", "none", "restart", "flush", "delete"),
        }),
        { minLength: 60, maxLength: 60 },
      ),
      1,
    ).flat();
    const plans = new Map<ServicePortKey, ServicePlan>();
    for (const { set, remove, event } of histories) {
      for (const number of remove) plans.delete(`ns/${number}/TCP` as ServicePortKey);
      for (const plan of set) plans.set(plan.key, plan);
      if (event === "restart") await stage.restart();
      if (event === "flush") {
        await stage.nft("flush map ip kube-relay endpoints").catch(() => {});
      }
      if (event === "delete") await stage.nft("delete table ip kube-relay").catch(() => {});
      const report = await stage.sync([...plans.values()]);
      assertEquals(report.quarantined, []);
      if (event === "flush" || event === "delete") {
        // A sync that happens to touch nothing of what went leaves it to the watch.
        stage.backend.recheck?.();
        await eventually(
          "the table is repaired",
          () => stage.check([...plans.values()]).then(() => true, () => false),
        );
      }
      await stage.check([...plans.values()]);
    }
  },
});

Deno.test({
  name: "a normal sync is one run of nft and lists nothing",
  ignore,
  fn: async () => {
    await using stage = await Stage.create();
    await stage.sync([plan(1), plan(2)]);
    const before = stage.calls.length;
    const report = await stage.sync([plan(1, ["10.1.0.1:8080"]), plan(2)]);
    const calls = stage.calls.slice(before).filter((call) => call !== "nft list chains ip");
    assertEquals(calls, ["nft -f -"]);
    assertEquals(report.full, false);
    assertEquals((await stage.sync([plan(1, ["10.1.0.1:8080"]), plan(2)])).operations, {});
  },
});

Deno.test({
  name: "what the kernel refuses of one Service is left out, and the others are served",
  ignore,
  fn: async () => {
    await using stage = await Stage.create();
    await stage.sync([plan(1)]);
    // Nothing that is parsed first can be refused; this is what a bug of ours would look like.
    const broken = { ...plan(3), clusterIp: "172.30.0.300" as never };
    const report = await stage.sync([plan(1), plan(2), broken]);
    assertEquals(report.quarantined.map(({ key }) => key), [broken.key]);
    await stage.check([plan(1), plan(2)]);
    assertEquals((await stage.sync([plan(1), plan(2), plan(3)])).quarantined, []);
    await stage.check([plan(1), plan(2), plan(3)]);
  },
});

Deno.test({
  name: "rules and elements that somebody changes are put right within seconds, and counted",
  ignore,
  fn: async () => {
    await using stage = await Stage.create();
    const plans = [plan(1), plan(2)];
    await stage.sync(plans);
    await stage.nft("flush ruleset");
    await eventually("drift is told", () => stage.drift.length > 0);
    await stage.check(plans);
    // The first comparison learns how nft prints the rules.
    const verify = async () => {
      const reads = () => stage.calls.filter((call) => call.startsWith("nft list table")).length;
      const before = reads();
      stage.backend.recheck?.();
      await eventually("the table is read", () => reads() > before);
      await stage.sync(plans);
    };
    await verify();
    stage.drift.length = 0;
    // A chain that fell out of use is taken away, and nobody else's doing.
    await stage.sync([plan(1, [1, 2, 3].map((host) => `10.1.0.${host}:8080`)), plan(2)]);
    await stage.sync(plans);
    await verify();
    assertEquals(stage.drift, []);
    assert(!(await stage.nft("list table ip kube-relay")).includes("off-cluster-3"));
    await stage.nft("insert rule ip kube-relay services drop");
    await stage.nft("delete element ip kube-relay cluster-ips { 172.30.0.1 }");
    stage.backend.recheck?.();
    await eventually("drift of both kinds is told", () => stage.drift.length === 2);
    assertEquals(stage.drift, [
      { kind: "chain", found: 1, repaired: 1 },
      { kind: "rule", found: 1, repaired: 1 },
    ]);
    await stage.check(plans);
    assert(!(await stage.nft("list chain ip kube-relay services")).includes("drop"));
  },
});

Deno.test({
  name: "a restart keeps the table, and a cleanup leaves nothing of ours and all of others",
  ignore,
  fn: async () => {
    await using stage = await Stage.create();
    await stage.nft("add table ip other");
    await stage.sync([plan(1), plan(2)]);
    const handle = /# handle (\d+)/.exec(await stage.nft("-a list table ip kube-relay"))?.[1];
    await stage.restart();
    const report = await stage.sync([plan(1), plan(3)]);
    assertEquals([report.full, report.operations["reads"]], [true, 1]);
    await stage.check([plan(1), plan(3)]);
    assertEquals(
      /# handle (\d+)/.exec(await stage.nft("-a list table ip kube-relay"))?.[1],
      handle,
    );
    await stage.backend.drain(0);
    const preview = await stage.backend.previewCleanup?.();
    assertEquals(preview?.removed, ["table ip kube-relay (nftables)"]);
    assertEquals((await stage.backend.cleanup()).failed, []);
    assertEquals((await stage.nft("list tables")).trim(), "table ip other");
    assertEquals((await stage.backend.cleanup()).removed, []);
  },
});
