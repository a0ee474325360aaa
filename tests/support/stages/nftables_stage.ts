import { NftablesBackend } from "../../../backends/nftables/backend.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import { defaultRenderOptions } from "../builders/nftables_render_options.ts";
import { FakeNftMachine } from "../fakes/fake_nft_machine.ts";
import { freshNftTable, nftMeaning } from "../texts/nft_meaning.ts";
import { RULES_SETTINGS, RulesStage } from "./rules_stage.ts";

const OPTIONS = defaultRenderOptions("IPv4");
/** Longer than any pause before a retry. */
const LONG_MS = 400_000;

/** Returns the relevant content of a new machine's table for this plan. */
export function goldenNftMeaning(plan: ProxyPlan): unknown {
  return nftMeaning(freshNftTable(plan, OPTIONS), OPTIONS);
}

/** A kube-relay in nftables mode, without the rest of it. */
export class NftablesStage extends RulesStage<FakeNftMachine> {
  constructor() {
    super(new FakeNftMachine(), (edges) => new NftablesBackend(edges, RULES_SETTINGS));
  }

  /** The relevant content of the table. */
  get meaning(): unknown {
    return nftMeaning(this.machine.tool.table("ip kube-relay"), OPTIONS);
  }

  /** Warnings so far. */
  get warnings(): readonly string[] {
    return this.logger.lines.filter(({ level }) => level === "warn").map(({ message }) => message);
  }

  /** Lets all retries fall due. */
  async wait(): Promise<void> {
    await this.pass(LONG_MS);
  }
}
