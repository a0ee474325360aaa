/**
 * The rules of the iptables mode in a namespace, written as the mode does: rendered, compared with
 * the applied ones, and the difference passed to the tool.
 *
 * @module
 */
import { IptablesLayout } from "../../../backends/iptables/layout.ts";
import { IptablesTarget } from "../../../backends/iptables/target.ts";
import { Reconciler } from "../../../lib/engine/reconciler.ts";
import { IptablesSave } from "../../../backends/netfilter/iptables/iptables_save.ts";
import type { RestoreInput } from "../../../backends/netfilter/iptables/restore_error.ts";
import { inPieces } from "../../../lib/os/command_input.ts";
import { FakeClock } from "../../support/fakes/fake_clock.ts";
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
  readonly #rules: WrittenRules;
  #added = 0;
  #version = 0;

  private constructor(
    rules: WrittenRules,
    { services, load }: { readonly services: number; readonly load: RuleWrite },
  ) {
    this.namespace = rules.namespace;
    this.services = services;
    this.load = load;
    this.#rules = rules;
  }

  static async create(variant: IptablesVariant, services: number): Promise<BenchRules> {
    const namespace = await BenchNamespace.create(iptablesTool(variant));
    const rules = new WrittenRules(namespace, services);
    try {
      for (let index = 0; index < services; index++) rules.layout.set(benchServicePlan(index));
      return new BenchRules(rules, { services, load: await rules.write() });
    } catch (error) {
      await namespace[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Gives the index-th Service other endpoints. */
  async change(index: number): Promise<RuleWrite> {
    this.#version++;
    this.#rules.layout.set(benchServicePlan(index % this.services, this.#version));
    return await this.#rules.write();
  }

  /** Adds one more Service. */
  async add(): Promise<RuleWrite> {
    this.#rules.layout.set(benchServicePlan(this.services + this.#added++));
    return await this.#rules.write();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.namespace[Symbol.asyncDispose]();
  }
}

/** A namespace that had no rules, and the engine of its rules. */
class WrittenRules {
  readonly namespace: BenchNamespace;
  readonly layout: IptablesLayout;
  readonly #engine: { sync(): Promise<void> };
  #last: RuleWrite | undefined;

  constructor(namespace: BenchNamespace, services: number) {
    this.namespace = namespace;
    this.layout = new IptablesLayout(BENCH_SHARED, benchOptions(services));
    const clock = new FakeClock();
    const runner = {
      hasRule: () => Promise.resolve(false),
      hasRules: () => Promise.resolve(false),
      save: () => Promise.resolve(new IptablesSave().end()),
      restore: async ({ lines }: RestoreInput) => {
        this.#last = { lines: lines.length, run: await namespace.give(inPieces(lines)) };
      },
    };
    const recreateCounters = () => Promise.resolve(false);
    const target = new IptablesTarget({ clock, runner, recreateCounters });
    target.layout = this.layout;
    this.#engine = new Reconciler({ clock }, target);
  }

  async write(): Promise<RuleWrite> {
    await this.#engine.sync();
    if (this.#last === undefined) throw new Error("Nothing was written");
    return this.#last;
  }
}
