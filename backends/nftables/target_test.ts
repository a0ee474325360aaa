import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { Reconciler } from "../../lib/engine/reconciler.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { defaultRenderOptions } from "../../tests/support/builders/nftables_render_options.ts";
import { testServicePlan, testSharedPlan } from "../../tests/support/builders/service_plans.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeNftMachine } from "../../tests/support/fakes/fake_nft_machine.ts";
import { NftError } from "../netfilter/nft/nft_error.ts";
import { NftRunner } from "../netfilter/nft/nft_runner.ts";
import { chainElement } from "./chain_spec.ts";
import { servicesTable } from "./containers.ts";
import { NftablesLayout } from "./layout.ts";
import { NftablesTarget } from "./target.ts";

const LIST = "nft --debug=netlink --numeric-protocol list table";

/** An engine, and the machine that it writes to. */
class Stage {
  readonly machine = new FakeNftMachine();
  readonly clock = new FakeClock();
  readonly layout = new NftablesLayout(testSharedPlan(), defaultRenderOptions("IPv4"));
  readonly target: NftablesTarget;
  readonly engine: Reconciler<string, unknown, ServicePortKey>;

  constructor() {
    const runner = new NftRunner(this.machine, servicesTable("IPv4"));
    this.target = new NftablesTarget({ clock: this.clock, runner }, "IPv4");
    this.target.layout = this.layout;
    this.engine = new Reconciler(this, this.target);
  }

  /** Returns the commands of a write. */
  write(): Promise<readonly ("read" | "write")[]> {
    this.target.countAnew();
    return this.#run(() => this.engine.sync());
  }

  /** Returns the commands of a removal of chains. */
  tidy(all: boolean): Promise<readonly ("read" | "write")[]> {
    return this.#run(async () => {
      if (!await this.target.tidy({ all })) this.engine.forget();
    });
  }

  elements(name: string): readonly string[] {
    return [...this.machine.tool.table("ip kube-relay").elements.get(name)?.keys() ?? []];
  }

  get chains(): ReadonlyMap<string, readonly string[]> {
    return this.machine.tool.table("ip kube-relay").chains;
  }

  async #run(action: () => Promise<void>): Promise<readonly ("read" | "write")[]> {
    const { calls } = this.machine.commands;
    const before = calls.length;
    await action();
    return calls.slice(before).flatMap(({ args }) =>
      args[0] === "-f" ? "write" : args.includes("list") ? "read" : []
    );
  }
}

function plan(number: number, endpoints = 1): ServicePlan {
  const to = Array.from({ length: endpoints }, (_, index) => `10.0.${number}.${index + 1}:80`);
  return testServicePlan({ name: `web-${number}`, clusterIp: `172.30.0.${number}`, to });
}

/** An engine that has written these ServicePorts. */
async function stageWith(...plans: readonly ServicePlan[]): Promise<Stage> {
  const stage = new Stage();
  for (const each of plans) stage.layout.set(each);
  await stage.write();
  return stage;
}

Deno.test("the table: the engine knows whose element is refused if it is the only one of its map", async () => {
  const stage = new Stage();
  stage.layout.set(plan(1));
  stage.machine.judge = (line) => / : 10\.0\./.test(line) ? "Invalid argument" : undefined;
  await stage.write();
  assertEquals(stage.layout.quarantined.map(({ key }) => key), [plan(1).key]);
});

Deno.test("the table: the engine makes a base chain anew that has another hook, and quarantines nothing", async () => {
  const stage = await stageWith(plan(1));
  const chain = "chain ip kube-relay nat-output";
  stage.machine.tool.run(
    `flush ${chain}\ndelete ${chain}\nadd ${chain} { type nat hook output priority 7 ; }\n`,
  );
  stage.engine.forget();
  assertEquals(await stage.write(), ["read", "write"]);
  assertEquals(stage.layout.quarantined, []);
  assertStringIncludes(stage.machine.tool.table("ip kube-relay").hooks.get("nat-output")!, "-100");
  assertEquals(stage.elements("service-ips").length, 1);
  stage.engine.forget();
  await stage.write();
  assertEquals(await stage.write(), [], "it is kept from then on");
});

Deno.test("the table: the engine keeps the table if only ServicePorts were to blame", async () => {
  const stage = await stageWith(plan(1));
  stage.machine.tool.table("ip kube-relay").elements.get("affinity")?.set("client", "slot");
  stage.machine.judge = (line) => /10\.0\.2\.1/.test(line) ? "Invalid argument" : undefined;
  stage.layout.set(plan(2));
  await stage.write();
  assertEquals(stage.layout.quarantined.length, 1);
  assertEquals(stage.elements("affinity"), ["client"]);
});

Deno.test("the table: the engine writes a chain that was idle again with a table that can't be read", async () => {
  const stage = await stageWith(plan(1, 2));
  stage.layout.set(plan(1));
  await stage.write();
  stage.engine.forget();
  stage.layout.set(plan(1, 2));
  stage.machine.commands.on(LIST, { code: 139 });
  for (let time = 1; time <= 2; time++) await assertRejects(() => stage.write(), NftError);
  assertEquals([await stage.write(), stage.chains.has("to-2")], [["read", "write"], true]);
});

Deno.test("the table: the engine counts only readings that fail one after the other", async () => {
  const stage = await stageWith(plan(1));
  for (const fails of [true, true, false, true, true]) {
    stage.engine.forget();
    if (fails) stage.machine.commands.failNext({ code: 139 });
    await (fails ? assertRejects(() => stage.write(), NftError) : stage.write());
  }
});

Deno.test("the table: the engine replaces no table that it may not read", async () => {
  const stage = await stageWith(plan(1));
  stage.engine.forget();
  const stderr = "Operation not permitted (you must be root)\n";
  stage.machine.commands.on(LIST, { code: 1, stderr });
  for (let time = 1; time <= 5; time++) await assertRejects(() => stage.write(), NftError);
});

Deno.test("the table: the engine knows the chains that were there when a reading failed", async () => {
  const stage = await stageWith(plan(1));
  assertEquals(await stage.target.table.missingChains(), []);
  stage.machine.commands.failNext({ code: 139 });
  await assertRejects(() => stage.engine.verify(), NftError);
  stage.machine.tool.run(
    "flush chain ip kube-relay nat-output\ndelete chain ip kube-relay nat-output\n",
  );
  assertEquals(await stage.target.table.missingChains(), ["nat-output"]);
});

Deno.test("the table: the engine names the chains that another program has recreated since the last look", async () => {
  const stage = await stageWith(plan(1));
  assertEquals(await stage.target.table.missingChains(), []);
  stage.layout.set(plan(2, 2));
  await stage.write();
  assertEquals(
    await stage.target.table.missingChains(),
    [],
    "what was just written is no one else's",
  );
  const { handles } = stage.machine.tool;
  for (const [chain, handle] of handles) handles.set(chain, handle + 100);
  const all = [...stage.chains.keys()];
  assertEquals(await stage.target.table.missingChains(), all);
  assertEquals(await stage.target.table.missingChains(), all, "until it was read");
  stage.engine.forget();
  await stage.write();
  assertEquals(await stage.target.table.missingChains(), []);
});

Deno.test("the table: the engine removes idle chains on request, and their numbers at once", async () => {
  const stage = await stageWith(plan(1, 2));
  const { name: number } = chainElement("to-2");
  stage.layout.set(plan(1));
  await stage.write();
  assertEquals(await stage.tidy(false), [], "one is not many");
  const state =
    () => [stage.elements("numbered-chains").includes(number), stage.chains.has("to-2")];
  assertEquals(state(), [false, true]);
  assertEquals([await stage.tidy(true), state()], [["write"], [false, false]]);
  assertEquals(await stage.tidy(true), []);
  stage.layout.set(plan(1, 2));
  await stage.write();
  assertEquals(state(), [true, true], "it comes back when it is wanted");
});

Deno.test("the table: the engine removes no chain that is used again", async () => {
  const stage = await stageWith(plan(1, 2));
  for (const endpoints of [1, 2]) {
    stage.layout.set(plan(1, endpoints));
    await stage.write();
  }
  await stage.tidy(true);
  assertEquals([stage.target.table.failedRemovals, stage.chains.has("to-2")], [0, true]);
  assertEquals(stage.chains.has("to-1"), false);
});

Deno.test("the table: the engine misses no chain that it removed or made again itself", async () => {
  const stage = await stageWith(plan(1, 2));
  const { table } = stage.target;
  assertEquals(await table.missingChains(), []);
  stage.layout.set(plan(1));
  await stage.write();
  await stage.tidy(true);
  assertEquals([stage.chains.has("to-2"), await table.missingChains()], [false, []]);
  stage.layout.set(plan(1, 2));
  await stage.write();
  assertEquals([stage.chains.has("to-2"), await table.missingChains()], [true, []]);
});

Deno.test("the table: the engine removes a set of another program once", async () => {
  const stage = await stageWith(plan(1));
  stage.machine.tool.run("add set ip kube-relay foreign { type ipv4_addr ; }\n");
  await stage.engine.verify();
  assertEquals(stage.machine.tool.table("ip kube-relay").elements.has("foreign"), false);
  assertEquals([await stage.tidy(true), stage.target.table.failedRemovals], [[], 0]);
});

Deno.test("the table: the engine removes idle chains at once when they are many", async () => {
  const stage = await stageWith(plan(1));
  for (let endpoints = 2; endpoints <= 257; endpoints++) {
    stage.layout.set({ ...plan(1), affinityTimeoutSeconds: endpoints });
    await stage.write();
  }
  // to-1 is one of the 256, and the last one is in use.
  const left = [...stage.chains.keys()].filter((name) => /^to-/.test(name));
  assertEquals(left, ["to-1-sticky-257"]);
});

Deno.test("the table: the engine counts a failed removal of chains, and nothing else", async () => {
  const stage = await stageWith(plan(1));
  stage.machine.tool.run("add chain ip kube-relay to-77\n");
  stage.engine.forget();
  await stage.write();
  stage.machine.commands.failNext({ code: 1, stderr: "Device or resource busy" });
  assertEquals(await stage.tidy(true), ["write"]);
  const { engine: { failures, isKnown }, target: { table: { failedRemovals } } } = stage;
  assertEquals([failures, failedRemovals, isKnown], [0, 1, false]);
  await stage.write();
  assertEquals(await stage.tidy(true), ["write"]);
  assertEquals(stage.chains.has("to-77"), false);
});
