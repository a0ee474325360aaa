/**
 * The rules of the iptables mode in a namespace, written as the mode does: rendered, compared with
 * the existing ones, and the difference passed to the tool.
 *
 * @module
 */
import { AppliedRules } from "../../../backends/iptables/applied_rules.ts";
import { baseJumps } from "../../../backends/iptables/base_chains.ts";
import { diffRules } from "../../../backends/iptables/diff.ts";
import { IptablesLayout } from "../../../backends/iptables/layout.ts";
import type { ToolRun } from "../agent_protocol.ts";
import { BenchNamespace } from "../bench_namespace.ts";
import { BENCH_SHARED, benchServicePlan } from "../bench_services.ts";
import { benchOptions } from "./bench_options.ts";
import { iptablesTool, type IptablesVariant } from "./iptables_tool.ts";

/** The cost of one write. */
export interface RuleWrite {
  /** Lines that the tool was given. */
  readonly lines: number;
  readonly run: ToolRun;
}

/** So many Services in a namespace of their own. */
export class BenchRules implements AsyncDisposable {
  readonly namespace: BenchNamespace;
  readonly services: number;
  /** The cost of loading all rules. */
  readonly load: RuleWrite;
  readonly #layout: IptablesLayout;
  readonly #applied: AppliedRules;
  #added = 0;
  #version = 0;

  private constructor(
    { namespace, layout, applied }: {
      readonly namespace: BenchNamespace;
      readonly layout: IptablesLayout;
      readonly applied: AppliedRules;
    },
    { services, load }: { readonly services: number; readonly load: RuleWrite },
  ) {
    this.namespace = namespace;
    this.services = services;
    this.load = load;
    this.#layout = layout;
    this.#applied = applied;
  }

  static async create(variant: IptablesVariant, services: number): Promise<BenchRules> {
    const namespace = await BenchNamespace.create(iptablesTool(variant));
    const parts = {
      namespace,
      layout: new IptablesLayout(BENCH_SHARED, benchOptions(services)),
      applied: new AppliedRules(),
    };
    try {
      for (let index = 0; index < services; index++) parts.layout.set(benchServicePlan(index));
      const load = await write(parts, { jumps: baseJumps(benchOptions(services)) });
      return new BenchRules(parts, { services, load });
    } catch (error) {
      await namespace[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Gives the index-th Service other endpoints. */
  async change(index: number): Promise<RuleWrite> {
    this.#version++;
    this.#layout.set(benchServicePlan(index % this.services, this.#version));
    return await this.#write();
  }

  /** Adds one more Service. */
  async add(): Promise<RuleWrite> {
    this.#layout.set(benchServicePlan(this.services + this.#added++));
    return await this.#write();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.namespace[Symbol.asyncDispose]();
  }

  async #write(): Promise<RuleWrite> {
    const { namespace } = this;
    return await write({ namespace, layout: this.#layout, applied: this.#applied });
  }
}

async function write(
  { namespace, layout, applied }: {
    readonly namespace: BenchNamespace;
    readonly layout: IptablesLayout;
    readonly applied: AppliedRules;
  },
  options: Parameters<typeof diffRules>[2] = {},
): Promise<RuleWrite> {
  const batch = diffRules(layout, applied, options);
  const run = await namespace.give(batch.text());
  applied.confirm(batch.applied);
  layout.settle();
  return { lines: batch.lines.length, run };
}
