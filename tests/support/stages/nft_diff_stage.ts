/** A layout of Services, and the engine that writes it to a table of a machine. */
import type { NftFigures } from "../../../backends/netfilter/nft/nft_table.ts";
import { NftRunner } from "../../../backends/netfilter/nft/nft_runner.ts";
import { servicesTable, TABLE } from "../../../backends/nftables/containers.ts";
import { NftablesLayout } from "../../../backends/nftables/layout.ts";
import type { NftablesRenderOptions } from "../../../backends/nftables/render_options.ts";
import { NftablesTarget } from "../../../backends/nftables/target.ts";
import { Reconciler } from "../../../lib/engine/reconciler.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { defaultRenderOptions } from "../builders/nftables_render_options.ts";
import { testProxyPlan, testSharedPlan } from "../builders/service_plans.ts";
import { FakeClock } from "../fakes/fake_clock.ts";
import type { FakeNftTable } from "../fakes/fake_nft.ts";
import { FakeNftMachine } from "../fakes/fake_nft_machine.ts";
import { freshNftTable, nftMeaning } from "../texts/nft_meaning.ts";

const OPTIONS: NftablesRenderOptions = {
  ...defaultRenderOptions("IPv4"),
  nodePortAddresses: { kind: "cidrs", cidrs: [parseCidr("192.168.0.0/16")] },
};

/** The part of the plan that all Services share, unless a test changes it. */
export const DIFF_SHARED: SharedPlan = testSharedPlan({
  localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") },
  serviceCidrs: [parseCidr("172.30.0.0/16")],
});

/** A layout, and a table that was synced with it once. */
export class NftDiffStage {
  readonly target: NftablesTarget;
  readonly engine: Reconciler<string, unknown, ServicePortKey>;

  private constructor(readonly machine: FakeNftMachine, readonly layout: NftablesLayout) {
    const runner = new NftRunner(machine, servicesTable("IPv4"));
    const clock = new FakeClock();
    this.target = new NftablesTarget({ clock, runner }, "IPv4");
    this.target.layout = layout;
    this.engine = new Reconciler({ clock }, this.target);
  }

  /** The layout of another stage is that of a process before it. */
  static async create(
    machine = new FakeNftMachine(),
    layout = new NftablesLayout(DIFF_SHARED, OPTIONS),
  ): Promise<NftDiffStage> {
    const stage = new NftDiffStage(machine, layout);
    await stage.sync();
    return stage;
  }

  get table(): FakeNftTable {
    return this.machine.tool.table(`ip ${TABLE}`);
  }

  /** The relevant content of the table. */
  get meaning(): unknown {
    return nftMeaning(this.table, OPTIONS);
  }

  /** The work of the last write or check. */
  get figures(): NftFigures {
    return this.target.table.figures;
  }

  /** Has the difference written. Returns the lines. */
  async sync(): Promise<readonly string[]> {
    const before = this.machine.writes.length;
    this.target.countAnew();
    await this.engine.sync();
    return this.machine.writes.slice(before).flatMap(({ stdin }) => stdin.split("\n").slice(0, -1));
  }

  /** As {@linkcode sync}, of a table that other programs may have changed. */
  async resync(): Promise<readonly string[]> {
    this.engine.forget();
    return await this.sync();
  }

  /** Has the table checked. Returns what other programs changed. */
  async verify(): Promise<readonly string[]> {
    this.target.countAnew();
    return (await this.engine.verify()).map(({ name }) => name);
  }
}

/**
 * Returns the relevant content of a table that was rendered from nothing for these ServicePorts.
 */
export function freshMeaning(
  plans: Iterable<ServicePlan>,
  shared: SharedPlan = DIFF_SHARED,
): unknown {
  return nftMeaning(freshNftTable(testProxyPlan([...plans], { shared }), OPTIONS), OPTIONS);
}
