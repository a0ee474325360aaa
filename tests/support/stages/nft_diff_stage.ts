/**
 * What is wanted of a table of nftables, what is known of it, and a tool that takes the difference.
 *
 * @module
 */
import { AppliedTable, type TableReading } from "../../../backends/nftables/applied_table.ts";
import { TABLE } from "../../../backends/nftables/base_chains.ts";
import { isContainerName } from "../../../backends/nftables/containers.ts";
import { diffTable } from "../../../backends/nftables/diff.ts";
import { NftablesLayout } from "../../../backends/nftables/layout.ts";
import {
  defaultRenderOptions,
  type NftablesRenderOptions,
} from "../../../backends/nftables/render_options.ts";
import type { Transaction } from "../../../backends/nftables/transaction.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { FakeNft, type FakeNftTable } from "../fakes/fake_nft.ts";
import { freshNftTable, nftMeaning } from "../texts/nft_meaning.ts";
import { testProxyPlan, testSharedPlan } from "../builders/service_plans.ts";

const OPTIONS: NftablesRenderOptions = {
  ...defaultRenderOptions("IPv4"),
  nodePortAddresses: { kind: "cidrs", cidrs: [parseCidr("192.168.0.0/16")] },
};

/** What all Services share, unless a test changes it. */
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

  /** What matters of the table. */
  get meaning(): unknown {
    return nftMeaning(this.table, OPTIONS);
  }

  /** Has the difference written. */
  sync(): Transaction {
    const transaction = diffTable(this.layout, this.applied);
    this.take(transaction);
    this.layout.settle();
    return transaction;
  }

  /** Has a transaction written. */
  take(transaction: Transaction): void {
    this.nft.run([...transaction.text()].join(""));
    this.applied.confirm(transaction.applied);
  }

  /** What a reading of the table comes to. */
  reading(): TableReading {
    const { chains, elements } = this.table;
    return {
      chains: [...chains.keys()],
      containers: [...elements.keys()],
      declarations: new Map(),
      isDormant: false,
      rules: new Map([...chains].map(([name, rules]) => [name, rules.join("\n")])),
      elements: new Map(
        [...elements].flatMap(([name, values]) =>
          isContainerName(name) ? [[name, values] as const] : []
        ),
      ),
    };
  }
}

/** What matters of a table that was rendered from nothing for these ServicePorts. */
export function freshMeaning(
  plans: Iterable<ServicePlan>,
  shared: SharedPlan = DIFF_SHARED,
): unknown {
  return nftMeaning(freshNftTable(testProxyPlan([...plans], { shared }), OPTIONS), OPTIONS);
}
