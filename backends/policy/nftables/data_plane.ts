/**
 * Enforces NetworkPolicies by one table of nftables in each family. The table stays when the process
 * ends. The first sync of the next process reads it and writes what differs.
 *
 * @module
 */
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import type { Direction, PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import { NftRunner } from "../../netfilter/nft/nft_runner.ts";
import type { FoundMachine, RulePlaneEdges, RuleWatch } from "../../netfilter/rule_plane.ts";
import { PolicyPlane, type PolicyPlaneOptions } from "../policy_plane.ts";
import { denyChain, NFT_LAYOUT, policyTable, renderPolicies } from "./layout.ts";
import type {
  Batch,
  Change,
  KernelObject,
  ObjectChange,
  ObjectName,
  Objects,
  Reading,
} from "../../../lib/engine/reconciler.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import { TimeSlice, urgent } from "../../../lib/os/time_slice.ts";
import type { NftChain, NftContainer } from "../../netfilter/nft/nft_objects.ts";
import { nftDifferences, NftFigures, NftTable, readChain } from "../../netfilter/nft/nft_table.ts";
import { type Part, type PolicyDifference, PolicyTarget } from "../policy_target.ts";
import type { RefusedItems } from "../../netfilter/refused_items.ts";

/** The data plane of nftables. Runs nothing before it is started. */
export class NftablesPolicyPlane extends PolicyPlane<NftPolicyTarget> {
  readonly tool = "nftables";
  readonly summary: string;
  readonly #runner: NftRunner;

  constructor(edges: RulePlaneEdges, options: PolicyPlaneOptions) {
    super(edges, options);
    const spec = policyTable(options.family);
    this.summary = `table ${spec.family} ${spec.name} of nftables`;
    this.#runner = new NftRunner(edges, spec);
  }

  /** Throws if nft is missing or not permitted. */
  protected override async prepare(): Promise<FoundMachine<NftPolicyTarget>> {
    await this.#runner.chains();
    return await super.prepare();
  }

  protected createTarget(): NftPolicyTarget {
    return new NftPolicyTarget(this.edges.clock, this.#runner, this.family, this.refused);
  }

  protected watch(target: NftPolicyTarget, common: Pick<RuleWatch, "found" | "texts">): RuleWatch {
    return { ...common, ...target.table.watch(this.periodMs) };
  }

  render(plan: PolicyPlan): Iterable<string> {
    return renderPolicies(plan);
  }

  protected deniedIn(direction: Direction): Promise<number | undefined> {
    return this.#runner.packetsOf(denyChain(direction));
  }

  protected async remove(options: { readonly dryRun: boolean }): Promise<CleanupReport> {
    const run = new RemovalRun(this.edges, options);
    await run.removeTable(policyTable(this.family));
    return run.report();
  }
}

/** The table of one family. */
class NftPolicyTarget extends PolicyTarget {
  readonly table: NftTable;
  override readonly root: KernelObject;
  /** The sets of peers and ports. */
  readonly #sets = new Map<string, NftContainer>();

  constructor(
    clock: Clock,
    runner: NftRunner,
    family: IpFamily,
    refused: RefusedItems<{ readonly key: Part }>,
  ) {
    super(NFT_LAYOUT, clock, refused);
    this.table = new NftTable({
      ...{ runner, spec: policyTable(family) },
      others: this.#sets,
      emptiesUnused: true,
      ownerOf: partOf,
    });
    this.root = this.table.root;
  }

  override arrange(
    ...args: Parameters<PolicyTarget["arrange"]>
  ): ReturnType<PolicyTarget["arrange"]> {
    const item = super.arrange(...args);
    if (item === undefined || "addresses" in item) return item;
    for (const { kind, name, text } of this.objectsOf(item)) {
      if (kind === "set") this.#sets.set(name, { kind, declaration: text });
      // The first object of a set declares it, and its members follow.
      if ("set" in item) break;
    }
    return item;
  }

  /** An empty chain is harmless. */
  isUnused({ kind, before }: ObjectChange): boolean {
    return kind === "chain" && before === "";
  }

  async read(): Promise<Objects | undefined> {
    const slice = new TimeSlice(urgent(this.clock));
    const chains: NftChain[] = [];
    this.#sets.clear();
    for (const key of this.keys()) {
      const item = this.arrange(key, undefined);
      for (const object of item && !("set" in item) ? this.objectsOf(item) : []) {
        if (object.kind === "chain") chains.push(readChain(object));
      }
      const turn = slice.pause();
      if (turn) await turn;
    }
    return (await this.table.read(() => chains))?.objects;
  }

  begin(reading: Reading | undefined): Batch<Part> {
    return this.table.begin(reading?.objects);
  }

  tidy(options: { readonly all: boolean }): Promise<boolean> {
    return this.table.tidy(options);
  }

  get operations(): Readonly<Record<string, number>> {
    return this.table.figures.operations;
  }

  countAnew(): void {
    this.table.figures = new NftFigures();
  }

  differences(changes: readonly Change<Part>[]): readonly PolicyDifference[] {
    return nftDifferences(changes, this.table.spec, () => undefined);
  }
}

/** The part that a line belongs to: a rule of a policy, or the set of an element. */
function partOf({ kind, name }: ObjectName, rule?: string): Part | undefined {
  if (rule === undefined) return /^(peers|ports)-/.test(kind) ? kind : undefined;
  return name.startsWith("list-") && !rule.startsWith("goto ") ? rule : undefined;
}
