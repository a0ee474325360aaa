/**
 * The iptables mode: rules of the kernel, written by `iptables-restore`.
 *
 * `layout.ts` says what is wanted, `target.ts` what the engine needs to know to compare and write it.
 * Rules stay when the process ends, and the next start takes them over.
 *
 * @module
 */
import type { Backend, RuleCounters } from "../../lib/proxy/backend.ts";
import type { CleanupReport } from "../../lib/engine/data_plane.ts";
import type { Change } from "../../lib/engine/reconciler.ts";
import {
  featuresFound,
  type MachineFacts,
  type ProbeResult,
} from "../../lib/proxy/service_mode.ts";
import type { HostSettingRequest } from "../../lib/proxy/data_plane.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_state.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import type {
  ModeCarrier,
  ModeExplanation,
  PacketExplanation,
  PacketHit,
} from "../../lib/proxy/packet_explanation.ts";
import type { PlanChanges, ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import { IptablesError, IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../netfilter/iptables/iptables_variant.ts";
import { readCounters, recreateCounters, removeCounters } from "../netfilter/packet_counters.ts";
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import { type ChainFilter, removeChains } from "../netfilter/foreign/remove_chains.ts";
import { jumpsOf, type SavedTables } from "../netfilter/iptables/iptables_save.ts";
import {
  noLocalhostReason,
  ROUTE_LOCALNET,
  RuleBackend,
  type RuleBackendOptions,
  type RuleComparison,
} from "../netfilter/rule_backend.ts";
import type { FoundMachine, RulePlaneEdges, RuleWatch } from "../netfilter/rule_plane.ts";
import { IptablesLayout } from "./layout.ts";
import { IptablesTarget, ruleDifferences } from "./target.ts";
import { CANARY, isServiceChain, KUBELET_FIREWALL, MARK_MASQ, TREES } from "./base_chains.ts";
import { findFacts, probeIptablesMode } from "./probe.ts";
import {
  ALL_FEATURES,
  allowsRanges,
  hasServiceComments,
  type IptablesFeatures,
  type IptablesRenderOptions,
  renderOptionsOf,
  servesLocalhost,
} from "./render_options.ts";
import { layOut, renderText } from "./render.ts";
import { unsupportedParts } from "./render_service.ts";
import { addressPath, destinationPath, portPath } from "./packet_path.ts";
import { watchCanaries } from "../netfilter/iptables/watch_canaries.ts";

/** Settings of the iptables backend. */
interface IptablesBackendOptions extends RuleBackendOptions {
  readonly localhostNodePorts: boolean;
}

/** The machine as it was found. */
interface Machine {
  readonly runner: IptablesRunner;
  readonly features: IptablesFeatures;
  readonly beLiberal: boolean;
  /** The settings that depend on all Services; those of the plan at hand if left out. */
  readonly serviceComments?: boolean | undefined;
  /** Stays false once it was: a Service that comes and goes must not rewrite all rules each time. */
  readonly masqueradesRanges?: boolean | undefined;
}

/** An iptables backend for one IP family. Runs nothing before it is started. */
export class IptablesBackend
  extends RuleBackend<IptablesLayout, IptablesRenderOptions, IptablesTarget>
  implements Backend {
  readonly mode = "iptables";
  readonly #dependencies: RulePlaneEdges;
  readonly #options: IptablesBackendOptions;
  /** One request may ask for several packets of a plan, and 10,000 ServicePorts take 200 ms. */
  #explained: { readonly plan: ProxyPlan; readonly layout: IptablesLayout } | undefined;
  protected summary = "not started";
  /** As `start()` found it. */
  #machine: Machine | undefined;
  #reportedUnreadable = "";

  constructor(dependencies: RulePlaneEdges, options: IptablesBackendOptions) {
    super(dependencies, options);
    this.#dependencies = dependencies;
    this.#options = options;
  }

  hostSettings(nodePorts: NodePortAddresses): readonly HostSettingRequest[] {
    return servesLocalhost(this.#options, nodePorts) ? [ROUTE_LOCALNET] : [];
  }

  probe(): Promise<readonly ProbeResult[]> {
    return probeIptablesMode(this.#dependencies);
  }

  protected async prepare(): Promise<FoundMachine<IptablesTarget>> {
    const { commands, logger } = this.#dependencies;
    const choice = await chooseIptables({ commands }, { family: this.family });
    if (choice.programs === undefined) {
      throw new Error(`Cannot start mode iptables for ${this.family}: ${choice.problem}`);
    }
    const { features, beLiberal } = await findFacts({ commands }, choice, { isForRun: true });
    const { programs: { restore, variant, version }, reason } = choice;
    logger.info("Chose the variant of iptables", { variant, version, reason });
    const runner = new IptablesRunner({ commands }, choice.programs);
    const target = this.#targetOf(runner);
    const found = await target.readEarly();
    this.#reportUnreadable(target.unreadable);
    const watch = this.#watchOf(
      runner,
      target,
      features.mangle ? ["mangle", "filter", "nat"] : ["filter", "nat"],
    );
    this.summary = `rules by ${restore} ${version}`;
    this.#machine = {
      ...{ runner, features, beLiberal, serviceComments: true, masqueradesRanges: true },
    };
    const isFresh = target.unreadable.length === 0 && !found.nat.chains.has(TREES.services.root);
    return { target, watch, isFresh };
  }

  protected optionsOf(plan: ProxyPlan, changes?: PlanChanges): IptablesRenderOptions {
    const machine = this.#machine;
    if (machine && changes) {
      const { serviceComments, masqueradesRanges } = machine;
      const ranged = changes.shared ? undefined : changes.upserted;
      this.#machine = {
        ...machine,
        serviceComments: hasServiceComments(plan.services.size, serviceComments),
        masqueradesRanges: masqueradesRanges && allowsRanges(plan, ranged),
      };
    }
    return this.#optionsOn(this.#machine ?? this.#machineOf(this.#options.facts), plan);
  }

  protected createLayout(shared: SharedPlan, options: IptablesRenderOptions): IptablesLayout {
    return new IptablesLayout(shared, options);
  }

  explain: Backend["explain"] = (plan, explanation, hit) => {
    if (plan === this.plan && this.layout) return explainIptables(explanation, hit, this.layout);
    if (this.#explained?.plan !== plan) {
      const layout = layOut(plan, this.optionsOf(plan));
      // Only the text of the ServicePorts that are asked for is kept.
      layout.settle();
      this.#explained = { plan, layout };
    }
    return explainIptables(explanation, hit, this.#explained.layout);
  };

  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string> {
    return renderText(plan, this.optionsOf(plan), keys);
  }

  facts(): MachineFacts | undefined {
    if (this.#machine === undefined) return undefined;
    const { features, serviceComments = true, masqueradesRanges = true, beLiberal } = this.#machine;
    return {
      features: { ...features, serviceComments, masqueradesRanges },
      beLiberal,
    };
  }

  override async ruleCounters(): Promise<RuleCounters> {
    const packets = this.#machine?.features.nfacct ? await readCounters(this.#dependencies) : {};
    return { ...await super.ruleCounters(), ...packets };
  }

  /** In both variants. */
  protected async remove(options: { readonly dryRun: boolean }): Promise<CleanupReport> {
    const run = new RemovalRun(this.edges, options);
    await removeChains(this.edges, run, {
      family: this.family,
      whose: "kube-relay's",
      isLeftover: mayBeOurs,
      choose: ownChainsOf,
    });
    // A preview names them after the rules of kube-proxy, which may refer to them too.
    if (!options.dryRun) await removeCounters(this.edges, run);
    return run.report();
  }

  protected override synced(): Promise<void> {
    this.#reportUnreadable(this.target!.unreadable);
    return Promise.resolve();
  }

  protected async comparison(
    plan: ProxyPlan,
    fill: (layout: IptablesLayout) => Promise<void>,
  ): Promise<RuleComparison> {
    const machine = this.#machine ?? await this.#found();
    const target = this.#targetOf(machine.runner);
    const layout = new IptablesLayout(plan.shared, this.#optionsOn(machine, plan));
    await fill(layout);
    target.layout = layout;
    const differencesIn = (changes: readonly Change<ServicePortKey>[]) =>
      ruleDifferences(changes, layout);
    return { target, differencesIn };
  }

  /**
   * A flush of a table removes its canary. The watch checks for it often, in every one of these
   * tables, because other programs may flush a single table (upstream checks mangle only:
   * kubernetes/kubernetes#129128).
   */
  #watchOf(
    runner: IptablesRunner,
    target: IptablesTarget,
    tables: readonly IptablesTable[],
  ): RuleWatch {
    const { clock, logger } = this.#dependencies;
    /** The first table without its canary. One that can't be looked at now is taken to be whole. */
    const findFlushed = async () => {
      for (const table of tables) {
        try {
          if (!await runner.hasRules(table, CANARY)) return { table };
        } catch (error) {
          if (!(error instanceof IptablesError)) throw error;
          logger.verbose(2, "Cannot look for the canary", { table, error });
        }
      }
      return undefined;
    };
    return Object.assign(watchCanaries(clock, this.#options.syncPeriodMs, findFlushed), {
      texts: {
        lost: "Another program flushed a table of iptables; repairing",
        changed: "Another program removed or changed rules; repairing",
        failed: "Cannot check the rules; trying again",
      },
      found() {
        const { chains, removedChains, jumps } = target.figures;
        const counts = { chain: chains + removedChains, rule: jumps };
        return { counts, fields: { chains, jumps } };
      },
    });
  }

  #targetOf(runner: IptablesRunner): IptablesTarget {
    const { clock } = this.#dependencies;
    const recreateCounters = () => this.#recreateCounters();
    return new IptablesTarget({ clock, runner, recreateCounters });
  }

  /** The machine of a process that serves nothing. */
  async #found(): Promise<Machine> {
    const { commands } = this.#dependencies;
    const choice = await chooseIptables({ commands }, { family: this.family });
    if (choice.programs === undefined) {
      throw new Error(`Cannot compare rules of ${this.family}: ${choice.problem}`);
    }
    const { facts } = this.#options;
    const runner = new IptablesRunner({ commands }, choice.programs);
    return { runner, ...facts ? this.#machineOf(facts) : await findFacts({ commands }, choice) };
  }

  /** The machine of these facts. */
  #machineOf(facts: MachineFacts = { features: {} }): Omit<Machine, "runner"> {
    const { serviceComments, masqueradesRanges } = facts.features;
    return {
      features: featuresFound(ALL_FEATURES, facts),
      beLiberal: facts.beLiberal ?? false,
      serviceComments,
      masqueradesRanges,
    };
  }

  #optionsOn(machine: Omit<Machine, "runner">, plan: ProxyPlan): IptablesRenderOptions {
    return renderOptionsOf(this.#options, plan.shared, {
      ...machine,
      serviceComments: machine.serviceComments ?? hasServiceComments(plan.services.size),
      masqueradesRanges: machine.masqueradesRanges ?? allowsRanges(plan),
    });
  }

  /** Creates the counters again. If that fails, the next sync writes rules without them. */
  async #recreateCounters(): Promise<boolean> {
    const exist = await recreateCounters(this.#dependencies);
    const machine = this.#machine;
    if (machine && !exist) {
      this.#machine = { ...machine, features: { ...machine.features, nfacct: false } };
    }
    return exist;
  }

  /** Logs each set of tables once. */
  #reportUnreadable(tables: readonly IptablesTable[]): void {
    const names = tables.join(" ");
    if (names !== "" && names !== this.#reportedUnreadable) {
      this.#dependencies.logger.warn(
        "Tables of iptables contain rules that only nft can show; changes by other programs are not noticed there",
        { tables, cure: "see 'nft list ruleset', and move those rules to a table of their own" },
      );
    }
    this.#reportedUnreadable = names;
  }
}

/** Explains a packet by the rules of the frontend that it hits, in a layout that holds the whole plan. */
function explainIptables(
  { packet, verdict }: PacketExplanation,
  hit: PacketHit | undefined,
  layout: IptablesLayout,
): ModeExplanation {
  const unserved = hit && unservedReason(hit, packet, layout.options);
  if (unserved !== undefined) return { deviations: { unserved }, carriers: [] };
  if (hit === undefined || verdict.kind === "unclaimed") return { carriers: [] };
  const { service, frontend: { address, port } } = hit;
  const paths = [
    address === undefined
      ? portPath(service.protocol, port)
      : destinationPath(address, service.protocol, port),
    // The rule for an endpoint that is sent its own packet.
    addressPath(packet.from.address),
  ];
  const carriers: ModeCarrier[] = [];
  for (const { table, chain, rules, isShared } of layout.rulesFor(service, paths)) {
    // Table filter has the rules of refusals, which a forwarded packet does not match.
    if (verdict.kind === "forward" && table === "filter") continue;
    for (const rule of rules) {
      carriers.push({
        object: "rule",
        name: `${table} ${chain}`,
        text: `-A ${chain} ${rule}`,
        endpoint: / --to-destination (\S+)$/.exec(rule)?.[1],
        ...(isShared && { isShared }),
      });
    }
  }
  return { carriers };
}

function unservedReason(
  hit: PacketHit,
  packet: Packet,
  options: IptablesRenderOptions,
): string | undefined {
  const { everything, external, quarantined } = unsupportedParts(hit.service, options.features);
  if (everything || (external && hit.frontend.role !== "ClusterIP")) return quarantined[0]?.reason;
  const cure = "node ports on 127.0.0.0/8 are turned off, by --iptables-localhost-nodeports or " +
    "--nodeport-addresses";
  return noLocalhostReason(hit, packet, { ...options, cure });
}

/** Chains of fixed name that kube-proxy has as well. */
const SHARED_NAMES: Readonly<Record<string, readonly string[]>> = {
  mangle: [CANARY],
  filter: [
    CANARY,
    "KUBE-FORWARD",
    TREES.refused.root,
    TREES.refusedExternal.root,
    TREES.firewall.root,
    TREES.healthChecks.root,
  ],
  nat: [CANARY, MARK_MASQ, "KUBE-POSTROUTING", TREES.services.root, TREES.nodePorts.root],
};
const KUBE_PROXY_SERVICE_CHAIN = /^KUBE-(SVC|SVL|EXT|FW|SEP)-/;
/** Chains that the kubelet creates in mangle. */
const KUBELET_CHAINS = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];

/**
 * Selects the chains of this mode. Chains with kube-proxy's names belong to it if they lead to
 * chains that only this mode has: a kube-proxy that ran later would have rewritten them.
 */
function ownChainsOf(saved: SavedTables): ChainFilter {
  const tables = Object.entries(saved);
  const has = (isSought: (chain: string, table: string) => boolean) =>
    tables.some(([table, { chains }]) => chains.keys().some((chain) => isSought(chain, table)));
  const isInForce = tables.some(([name, table]) =>
    jumpsOf(table).some(({ from, to }) => isOursAlone(name, to) && !isOursAlone(name, from))
  );
  const isHere = has((chain, table) => isOursAlone(table, chain));
  const hasCanary = has((chain) => chain === CANARY);
  // The ipvs mode takes the entry points over and the canaries away. Where a canary is, another
  // iptables mode may be in force, to which the chain belongs then.
  const hasFirewall = isInForce || (isHere && !hasCanary);
  const hasKubelet = has((chain) => KUBELET_CHAINS.includes(chain));
  // Without a kubelet, its chain exists only for the one rule of this mode.
  const isMartianRuleAlone = (saved.filter.chains.get(KUBELET_FIREWALL) ?? []).length <= 1;
  return (table, chain) => {
    if (isOursAlone(table, chain)) return true;
    if (chain === KUBELET_FIREWALL) {
      return table === "filter" && hasFirewall && !hasKubelet && isMartianRuleAlone;
    }
    return isInForce && mayBeOurs(table, chain);
  };
}

function isOursAlone(table: string, chain: string): boolean {
  if (table !== "nat" && table !== "filter") return false;
  if (chain === TREES.hairpin.root || chain === TREES.refusedNodePorts.root) return true;
  return isServiceChain(table, chain) && !KUBE_PROXY_SERVICE_CHAIN.test(chain);
}

function mayBeOurs(table: string, chain: string): boolean {
  if (SHARED_NAMES[table]?.includes(chain) || isOursAlone(table, chain)) return true;
  if (table === "filter") return chain === KUBELET_FIREWALL;
  return table === "nat" && KUBE_PROXY_SERVICE_CHAIN.test(chain);
}
