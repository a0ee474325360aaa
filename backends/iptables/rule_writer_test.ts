import { assert, assertEquals, assertRejects } from "@std/assert";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { testServicePlan, testSharedPlan } from "../../tests/support/builders/service_plans.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeIptablesMachine } from "../../tests/support/fakes/fake_iptables_machine.ts";
import { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { IptablesError } from "../netfilter/iptables/restore_error.ts";
import { IptablesLayout } from "./layout.ts";
import { RuleWriter } from "./rule_writer.ts";
import { WriteFigures } from "./write_figures.ts";

/** A writer, and the machine that it writes to. */
class Stage {
  readonly machine = new FakeIptablesMachine();
  readonly clock = new FakeClock();
  readonly layout = new IptablesLayout(testSharedPlan(), defaultRenderOptions("IPv4"));
  readonly runner: IptablesRunner;
  readonly writer: RuleWriter;

  constructor() {
    const { commands } = this.machine;
    this.runner = new IptablesRunner({ commands }, {
      variant: "nft",
      save: "iptables-save",
      restore: "iptables-restore",
      version: "iptables-restore v1.8.9 (nf_tables)",
      plain: true,
    });
    this.writer = new RuleWriter(this);
  }

  /** Programs that a write runs. */
  async write(): Promise<readonly string[]> {
    const before = this.machine.commands.calls.length;
    await this.writer.write(this.layout, new WriteFigures());
    return this.machine.commands.calls.slice(before).map(({ program }) => program);
  }
}

const PLAN = testServicePlan({ to: ["10.0.0.1:80"] });

Deno.test("RuleWriter reads unknown tables once, and then relies on its record", async () => {
  const stage = new Stage();
  assertEquals(stage.writer.isKnown, false);
  assertEquals(await stage.write(), ["iptables-save", "iptables-restore"]);
  assertEquals(stage.writer.isKnown, true);
  assertEquals(await stage.write(), []);
  stage.layout.set(PLAN);
  assertEquals(await stage.write(), ["iptables-restore"]);
  stage.writer.forget();
  assertEquals(await stage.write(), ["iptables-save"], "all is as it should be");
});

Deno.test("RuleWriter knows nothing of a machine that it has read and not yet written to", async () => {
  const stage = new Stage();
  const seen = new Set<boolean>();
  const now = stage.clock.now.bind(stage.clock);
  // The clock is read before each pause, in which other tasks may run.
  stage.clock.now = () => {
    if (stage.machine.commands.calls.length > 0) seen.add(stage.writer.isKnown);
    return now();
  };
  for (let number = 1; number <= 40; number++) {
    const endpoints = [1, 2, 3, 4].map((host) => `10.0.${number}.${host}:80`);
    stage.layout.set(testServicePlan({
      name: `web-${number}`,
      clusterIp: `127.96.0.${number}`,
      to: endpoints,
    }));
  }
  await stage.writer.write(stage.layout, new WriteFigures());
  assertEquals([...seen], [false]);
  assertEquals(stage.writer.isKnown, true);
});

Deno.test("RuleWriter needs no second read soon after the first, and one long after", async () => {
  const stage = new Stage();
  await stage.writer.read(new WriteFigures());
  assertEquals(await stage.write(), ["iptables-restore"]);
  const late = new Stage();
  await late.writer.read(new WriteFigures());
  await late.clock.advance(60_000);
  assertEquals(await late.write(), ["iptables-save", "iptables-restore"]);
});

Deno.test("RuleWriter knows nothing after a restore that failed, whatever it did", async () => {
  for (const carriedOut of [false, true]) {
    const stage = new Stage();
    await stage.write();
    stage.layout.set(PLAN);
    stage.machine.commands.failNext("timeout", { carriedOut });
    await assertRejects(() => stage.write(), IptablesError);
    assertEquals([stage.writer.isKnown, stage.writer.failures], [false, 1]);
    assert(stage.writer.batch !== undefined, "to say whose line it was");
    const programs = ["iptables-save", ...(carriedOut ? [] : ["iptables-restore"])];
    assertEquals(await stage.write(), programs);
    assertEquals(stage.writer.batch, undefined);
  }
});

Deno.test("RuleWriter empties a chain with foreign references instead of deleting it", async () => {
  const stage = new Stage();
  const chain = "KUBE-SVC-AAAAAAAAAAAAAAAA";
  stage.machine.tool.restore(
    `*nat\n:${chain} - [0:0]\n-A ${chain} -j RETURN\n-A OUTPUT -s 192.0.2.1 -j ${chain}\nCOMMIT\n`,
  );
  await assertRejects(() => stage.write(), IptablesError, "iptables-restore");
  stage.writer.keep(`nat ${chain}`);
  await stage.write();
  assertEquals(stage.machine.tool.table("nat").get(chain), []);
  assertEquals(stage.machine.tool.table("nat").get("OUTPUT")?.at(-1), `-s 192.0.2.1 -j ${chain}`);
});

Deno.test("RuleWriter counts the rules that it found and those that it wrote", async () => {
  const stage = new Stage();
  await stage.write();
  const { nat } = stage.writer.totals;
  stage.layout.set(PLAN);
  await stage.write();
  const more = stage.writer.totals.nat;
  assert(more > nat);
  stage.writer.forget();
  await stage.write();
  assertEquals(stage.writer.totals.nat, more);
});

Deno.test("RuleWriter continues in a table that the tool cannot print", async () => {
  const stage = new Stage();
  const { machine: { tool }, layout, writer } = stage;
  layout.set(PLAN);
  await stage.write();
  const whole = tool.dump();
  tool.unreadable.add("filter");
  writer.forget();
  await stage.write();
  assertEquals(writer.unreadable, ["filter"]);
  assertEquals(tool.dump(), whole, "known to be whole by its canary");
  tool.flush("filter");
  writer.forget();
  await stage.write();
  assertEquals(tool.dump(), whole, "flushed, and written again");
  stage.machine.commands.failNext("timeout", { carriedOut: true });
  layout.set(testServicePlan({ to: ["10.0.0.2:80"] }));
  await assertRejects(() => stage.write(), IptablesError);
  await stage.write();
  assertEquals(tool.dump(), whole.replaceAll("10.0.0.1", "10.0.0.2"), "written again");
});

Deno.test("RuleWriter takes over a table that the tool cannot print, with the kubelet's chain in it", async () => {
  const stage = new Stage();
  const { machine: { tool }, layout, writer } = stage;
  layout.set(PLAN);
  tool.restore("*filter\n:KUBE-FIREWALL - [0:0]\n-A KUBE-FIREWALL -j DROP\nCOMMIT\n");
  tool.unreadable.add("filter");
  await stage.write();
  const dump = tool.dump();
  assertEquals(tool.table("filter").get("KUBE-FIREWALL")?.at(-1), "-j DROP");
  assertEquals(tool.table("filter").get("KUBE-FIREWALL")?.length, 2);
  assertEquals(tool.table("filter").get("FORWARD")?.length, 4);
  const next = new RuleWriter({ clock: stage.clock, runner: stage.runner });
  layout.touchAll();
  await next.write(layout, new WriteFigures());
  assertEquals(tool.dump(), dump, "a second start changes nothing");
  assertEquals(next.totals, writer.totals);
});
