/**
 * Compares the wanted and the known state of a table of nftables, with a tool that accepts the
 * difference.
 *
 * @module
 */
import type { NftTransaction } from "../../../backends/netfilter/nft/nft_transaction.ts";
import { EMPTY_TABLE, type TableReading } from "../../../backends/netfilter/nft/table_listing.ts";
import { AppliedTable } from "../../../backends/nftables/applied_table.ts";
import { TABLE } from "../../../backends/nftables/containers.ts";
import { diffTable, type TableDifference } from "../../../backends/nftables/diff.ts";
import { NftablesLayout } from "../../../backends/nftables/layout.ts";
import type { NftablesRenderOptions } from "../../../backends/nftables/render_options.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { defaultRenderOptions } from "../builders/nftables_render_options.ts";
import { testProxyPlan, testSharedPlan } from "../builders/service_plans.ts";
import { FakeNft, type FakeNftTable } from "../fakes/fake_nft.ts";
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
  readonly layout = new NftablesLayout(DIFF_SHARED, OPTIONS);
  readonly applied = new AppliedTable();
  readonly nft = new FakeNft();

  constructor() {
    this.applied.adopt(undefined);
    this.sync();
  }

  get table(): FakeNftTable {
    return this.nft.table(`ip ${TABLE}`);
  }

  /** The relevant content of the table. */
  get meaning(): unknown {
    return nftMeaning(this.table, OPTIONS);
  }

  /** Has the difference written. */
  sync(): NftTransaction<ServicePortKey> {
    const difference = diffTable(this.layout, this.applied);
    this.take(difference);
    this.layout.settle();
    return difference.transaction;
  }

  /** Has a difference written. */
  take({ transaction, applied }: TableDifference): void {
    this.nft.run([...transaction.text()].join(""));
    this.applied.confirm(applied);
  }

  /** Returns a reading of the table. */
  reading(): TableReading {
    const { chains, elements, hooks } = this.table;
    const print = (name: string, rules: readonly string[]) =>
      [hooks.get(name) ?? [], rules].flat().map((line) => `\t\t${line}\n`).join("");
    return {
      ...EMPTY_TABLE,
      declarations: new Map(elements.keys().map((name) => [name, ""])),
      rules: new Map([...chains].map(([name, rules]) => [name, print(name, rules)])),
      elements,
    };
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
