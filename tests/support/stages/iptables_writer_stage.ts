/** A layout of Services, and the engine that writes it to the tables of a machine. */
import { IptablesRunner } from "../../../backends/netfilter/iptables/iptables_runner.ts";
import { IptablesLayout } from "../../../backends/iptables/layout.ts";
import type { IptablesRenderOptions } from "../../../backends/iptables/render_options.ts";
import { IptablesTarget } from "../../../backends/iptables/target.ts";
import { Reconciler } from "../../../lib/engine/reconciler.ts";
import type { SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { defaultRenderOptions } from "../builders/iptables_render_options.ts";
import { testSharedPlan } from "../builders/service_plans.ts";
import { FakeClock } from "../fakes/fake_clock.ts";
import { FakeIptablesMachine } from "../fakes/fake_iptables_machine.ts";

/** The machine and the wanted state; each is new unless given. */
interface StageParts {
  readonly machine?: FakeIptablesMachine;
  readonly shared?: SharedPlan;
  readonly options?: IptablesRenderOptions;
  /** @default {they cannot be} */
  readonly recreateCounters?: () => Promise<boolean>;
}

/** An engine, and the machine that it writes to. */
export class IptablesWriterStage {
  readonly machine: FakeIptablesMachine;
  readonly clock = new FakeClock();
  readonly target: IptablesTarget;
  readonly engine: Reconciler<string, unknown, ServicePortKey>;
  layout: IptablesLayout;

  constructor(
    { machine, shared, options, recreateCounters = () => Promise.resolve(false) }: StageParts = {},
  ) {
    this.machine = machine ?? new FakeIptablesMachine();
    this.layout = new IptablesLayout(
      shared ?? testSharedPlan(),
      options ?? defaultRenderOptions("IPv4"),
    );
    const { clock, machine: { commands, tellsCommitOnly } } = this;
    const runner = new IptablesRunner({ commands }, {
      variant: tellsCommitOnly ? "legacy" : "nft",
      save: "iptables-save",
      restore: "iptables-restore",
      version: "iptables-restore v1.8.9 (nf_tables)",
      plain: true,
    });
    this.target = new IptablesTarget({ clock, runner, recreateCounters });
    this.engine = new Reconciler({ clock }, this.target);
  }

  /** Has the difference written. Returns the programs that ran. */
  async write(): Promise<readonly string[]> {
    const before = this.machine.commands.calls.length;
    this.target.countAnew();
    this.target.layout = this.layout;
    await this.engine.sync();
    return this.machine.commands.calls.slice(before).map(({ program }) => program);
  }

  /** Has the difference written. Returns the lines of the last restore; none if nothing differs. */
  async lines(): Promise<readonly string[]> {
    const before = this.machine.restores.length;
    await this.write();
    return this.machine.restores.slice(before).at(-1)?.stdin.split("\n").slice(0, -1) ?? [];
  }

  /** Has the rules checked, and repaired. */
  async verify(): Promise<void> {
    this.target.countAnew();
    this.target.layout = this.layout;
    await this.engine.verify();
  }
}
