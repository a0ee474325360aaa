import { assert, assertEquals, assertRejects } from "@std/assert";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { testServicePlan, testSharedPlan } from "../../tests/support/builders/service_plans.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeIptablesMachine } from "../../tests/support/fakes/fake_iptables_machine.ts";
import { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { IptablesError } from "../netfilter/iptables/restore_error.ts";
import { RefusedItems } from "../netfilter/refused_items.ts";
import { IptablesLayout } from "./layout.ts";
import { RuleWriter } from "./rule_writer.ts";
import { ServiceRuleWriter } from "./service_rule_writer.ts";
import { WriteFigures } from "./write_figures.ts";

/** A writer of ServicePorts to a machine whose kernel refuses some. */
class Stage {
  readonly machine = new FakeIptablesMachine();
  readonly layout = new IptablesLayout(testSharedPlan(), defaultRenderOptions("IPv4"));
  readonly refused = new RefusedItems();
  readonly writer: ServiceRuleWriter;

  constructor(tellsCommitOnly: boolean, isBad: (line: string) => boolean) {
    Object.assign(this.machine, { tellsCommitOnly });
    this.machine.judge = (line) => isBad(line) ? "Invalid argument" : undefined;
    const { commands } = this.machine;
    const clock = new FakeClock();
    const runner = new IptablesRunner({ commands }, {
      variant: tellsCommitOnly ? "legacy" : "nft",
      save: "iptables-save",
      restore: "iptables-restore",
      version: "iptables-restore v1.8.9",
      plain: true,
    });
    const writer = new RuleWriter({ clock, runner });
    this.writer = new ServiceRuleWriter({
      clock,
      writer,
      refused: this.refused,
      recreateCounters: () => Promise.resolve(false),
    });
  }

  /** Passes plans to the writer. Returns the ServicePorts in quarantine. */
  async write(plans: readonly ServicePlan[]): Promise<readonly string[]> {
    for (const plan of plans) {
      this.layout.set(plan);
      this.writer.changed(plan.key);
    }
    await this.writer.write(this.layout, new WriteFigures());
    return this.layout.quarantined.map(({ key }) => key).sort();
  }

  /** Names of ServicePorts that have rules. */
  get served(): readonly string[] {
    const rules = this.machine.rules(/ -j DNAT /).map((rule) =>
      /"ns\/(\S+) /.exec(rule)?.[1] ?? ""
    );
    return [...new Set(rules)].sort();
  }
}

function plan(number: number, end = number): ServicePlan {
  return testServicePlan({
    name: `web-${String(number).padStart(2, "0")}`,
    clusterIp: `172.30.0.${number}`,
    to: [`10.0.0.${end}:80`],
  });
}

const PLANS = Array.from({ length: 40 }, (_, index) => plan(index + 1));
const NAMES = PLANS.map(({ name }) => name.name);

for (const tellsCommitOnly of [false, true]) {
  const how = tellsCommitOnly ? "looks for" : "is given";
  for (const bad of [[7], [1, 40], [3, 4, 5, 20, 30]]) {
    Deno.test(`ServiceRuleWriter ${how} refused rules: ${bad.join(", ")} of 40`, async () => {
      const isBad = (line: string) =>
        bad.some((number) => line.includes(` -d 172.30.0.${number} `) && line.includes("DNAT"));
      const stage = new Stage(tellsCommitOnly, isBad);
      const keys = bad.map((number) => plan(number).key as string).sort();
      assertEquals(await stage.write(PLANS), keys);
      assertEquals(
        stage.served,
        NAMES.filter((_, index) => !bad.includes(index + 1)),
      );
      const { restores } = stage.machine;
      assert(restores.length <= 45, `${restores.length} restores`);
      for (const key of keys) {
        const refused = PLANS.find((plan) => plan.key === key)!;
        assert(stage.refused.waitingFor(refused, 500)?.reason.includes("iptables-restore"));
      }
    });
  }

  Deno.test(`ServiceRuleWriter ${how} more that is refused than it searches for`, async () => {
    const stage = new Stage(tellsCommitOnly, (line) => line.includes("-j DNAT"));
    assertEquals((await stage.write(PLANS)).length, 40);
    assertEquals(stage.served, []);
    assert(stage.machine.restores.length <= 100, `${stage.machine.restores.length} restores`);
  });

  Deno.test(`ServiceRuleWriter ${how}: accepted rules stay as they are`, async () => {
    const stage = new Stage(
      tellsCommitOnly,
      (line) => line.includes("--to-destination 10.0.0.99:"),
    );
    await stage.write(PLANS);
    assertEquals(await stage.write([plan(2, 99), plan(3, 98)]), [plan(2).key as string]);
    assertEquals(stage.served, NAMES.filter((name) => name !== "web-02"));
    assertEquals(stage.machine.rules(/10\.0\.0\.98:80/).length, 1);
  });
}

Deno.test("ServiceRuleWriter passes on errors for which no ServicePort is responsible", async () => {
  const stage = new Stage(false, (line) => line.includes("MASQUERADE"));
  await assertRejects(() => stage.write(PLANS), IptablesError, "MASQUERADE");
  stage.machine.judge = () => undefined;
  assertEquals(await stage.write([]), [], "everything is still to be written");
  assertEquals(stage.served, NAMES);
  stage.machine.commands.failNext("timeout");
  await assertRejects(() => stage.write([plan(50)]), IptablesError);
});

Deno.test("ServiceRuleWriter writes all that was to be tried, after a search that broke off", async () => {
  const stage = new Stage(
    true,
    (line) => line.includes(" -d 172.30.0.9 ") && line.includes("DNAT"),
  );
  stage.machine.commands.failCall(5, "timeout");
  await assertRejects(() => stage.write(PLANS), IptablesError);
  assertEquals(await stage.write([]), [plan(9).key as string]);
  assertEquals(stage.served, NAMES.filter((name) => name !== "web-09"));
});
