/**
 * Modes whose rules the kernel applies. A mode says what it wants (its layout) and how that is read and
 * written (its target); the plan's way into the kernel and comparisons are here, once for all of them.
 *
 * @module
 */
import { type Change, type Objects, Reconciler, type Target } from "../../lib/engine/reconciler.ts";
import { SyncFailure } from "../../lib/engine/sync_event.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import { type IpAddress, type IpFamily, isLoopback } from "../../lib/net/ip_address.ts";
import { TimeSlice, urgent } from "../../lib/os/time_slice.ts";
import type { Backend, BackendMode, RuleCounters } from "../../lib/proxy/backend.ts";
import type {
  DataPlaneDifference,
  HostSettingRequest,
  Quarantined,
  SyncReport,
} from "../../lib/proxy/data_plane.ts";
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import type { PacketHit } from "../../lib/proxy/packet_explanation.ts";
import type { PlanChanges, ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type {
  BackendInspection,
  ComparisonScope,
  MachineFacts,
  ServedAddress,
  ServiceInspection,
} from "../../lib/proxy/service_mode.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { TrafficFigures } from "../../lib/proxy/service_traffic.ts";
import { refusedByKey, refusedItem, type RefusedItems } from "./refused_items.ts";
import { type CountingTarget, RulePlane } from "./rule_plane.ts";
import {
  contestedAddressesOf,
  frontendsOf,
  nodePortAddressesOf,
} from "../../lib/proxy/frontend.ts";

/** The settings of a backend that writes rules. */
export interface RuleBackendOptions {
  readonly family: IpFamily;
  readonly masqueradeBit: number;
  /** Maximum interval of checks for a flush, milliseconds. */
  readonly syncPeriodMs: number;
  /** The facts of a machine, for rendering without a `start()`. @default {everything} */
  readonly facts?: MachineFacts;
}

/** The wanted objects of a mode, by ServicePort. */
interface RuleLayout<Options> {
  readonly options: Options;
  /** ServicePorts that have no rules, or not all, and why. */
  readonly quarantined: readonly Quarantined[];
  /** The plan by which a ServicePort has rules; `undefined` = it has none. */
  plan(key: ServicePortKey): ServicePlan | undefined;
  /** Lays out a ServicePort by a plan, and takes it out of quarantine. */
  set(plan: ServicePlan): void;
  delete(key: ServicePortKey): void;
  /** Leaves a ServicePort out, until it is set again. */
  quarantine(item: Quarantined, plan: ServicePlan): void;
  /** Returns why a ServicePort can't be laid out. @default {it can} */
  obstacle?(plan: ServicePlan): string | undefined;
  /** @default {nothing else than what every rule depends on is used} */
  setShared?(shared: SharedPlan): void;
  /** Whether it serves with these too. @default {the options and the detector are the same} */
  fits?(shared: SharedPlan, options: Options): boolean;
}

/** The objects that a layout wants, for the engine. */
export interface RuleTarget<Layout> extends CountingTarget<ServicePortKey> {
  /** Set before anything is asked. */
  layout: Layout;
  readonly refused: RefusedItems;
  /** Looks at what is not in the plan, before what is wanted is compared. @default {nothing} */
  prepare?(): Promise<void>;
  /** @default {nothing else to report} */
  readonly report?: Pick<SyncReport, "isUnfinished" | "rules">;
  /** Whether the engine compares a new layout with what was applied. @default {everything is read} */
  readonly comparesLayouts?: true;
  /** The groups of ServicePorts, and those that belong to none. @default {all are compared} */
  groupsOf?(services: readonly ServicePlan[]): Iterable<string>;
  /** As `read()`, but changes nothing that is known. */
  readBeside?(): Promise<Objects | undefined>;
}

/** A plan that is compared with the machine. */
export interface RuleComparison {
  /** With a layout of the plan. */
  readonly target: Target<string, unknown, ServicePortKey>;
  /** Groups as another engine last knew them. @default {none} */
  readonly applied?: Iterable<readonly [string, unknown]>;
  /** Changes in words, of every ServicePort. */
  differencesIn(
    changes: readonly Change<ServicePortKey>[],
  ): readonly DataPlaneDifference[] | Promise<readonly DataPlaneDifference[]>;
}

/** The kernel setting for node ports on 127.0.0.1: without it, such packets never leave the node. */
export const ROUTE_LOCALNET: HostSettingRequest = {
  name: "net.ipv4.conf.all.route_localnet",
  value: "1",
  purpose: "serve node ports on 127.0.0.1",
};

/** Returns why no node port is served at a loopback address; `undefined` if one is. */
export function noLocalhostReason(
  { frontend: { role } }: PacketHit,
  { to }: Packet,
  { family, localhostNodePorts, cure }: {
    readonly family: IpFamily;
    readonly localhostNodePorts: boolean;
    /** The reason in IPv4, which is a setting. */
    readonly cure: string;
  },
): string | undefined {
  if (role !== "NodePort" || !isLoopback(to)) return undefined;
  if (family === "IPv6") return "IPv6 has no route_localnet: packets to ::1 stay on loopback";
  return localhostNodePorts ? undefined : cure;
}

/** A mode in one IP family. Runs nothing before it is started. */
export abstract class RuleBackend<
  Layout extends RuleLayout<Options>,
  Options,
  Target extends RuleTarget<Layout>,
> extends RulePlane<Target, ServicePortKey>
  implements Omit<Backend, "compare" | "explain" | "facts" | "hostSettings" | "probe" | "repair"> {
  abstract readonly mode: BackendMode;
  readonly usesConntrack = true;
  readonly counting = this;
  #isDistrusted = false;
  /** Whether another program may have written in the middle of a sync since the last comparison. */
  #isSuspect = true;
  /** Of the last sync, whether it succeeded or not. */
  protected plan: ProxyPlan | undefined;
  /** Absent before the first plan. */
  protected layout: Layout | undefined;
  /** The detector that the layout was made with. */
  #localTraffic: SharedPlan["localTraffic"] | undefined;
  /** Whether all changes that were taken are written. */
  #isWritten = true;
  /** Where the rules are, for `status`. */
  protected abstract readonly summary: string;
  /** The settings of all rules; `changes` of a plan that is synced. */
  protected abstract optionsOf(plan: ProxyPlan, changes?: PlanChanges): Options;
  protected abstract createLayout(shared: SharedPlan, options: Options): Layout;
  /** For a plan of its own, which `fill` lays out. Needs no `start()`. */
  protected abstract comparison(
    plan: ProxyPlan,
    fill: (layout: Layout) => Promise<void>,
    scope: ComparisonScope,
  ): Promise<RuleComparison>;
  abstract render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string>;

  /** A plan was written. */
  protected synced(_plan: ProxyPlan, _changes: PlanChanges): Promise<void> {
    return Promise.resolve();
  }

  /** The counted traffic of a ServicePort. */
  protected trafficOf(_service: ServicePlan): TrafficFigures | undefined {
    return undefined;
  }

  /** Since the process began. */
  protected get failedWrites(): number {
    return this.engine?.failures ?? 0;
  }

  get takesPartialPlans(): boolean {
    return this.isFresh;
  }

  /** Throws a {@linkcode SyncFailure}. */
  sync(plan: ProxyPlan, changes: PlanChanges): Promise<SyncReport> {
    return this.turns.run(async () => {
      const { engine, target } = this;
      if (engine === undefined || target === undefined) {
        throw new Error(`Cannot sync mode ${this.mode}: start() has not succeeded`);
      }
      this.plan = plan;
      target.countAnew();
      try {
        const layout = await this.#take(plan, changes, target);
        target.layout = layout;
        await target.prepare?.();
        await engine.sync();
        this.#isWritten = true;
        this.expectComparison(plan.services.size);
        await this.synced(plan, changes);
        const { upserted, removed } = changes;
        return {
          full: engine.isFull,
          services: upserted.size + removed.size,
          operations: target.operations,
          quarantined: layout.quarantined,
          ...target.report,
        };
      } catch (cause) {
        throw new SyncFailure(messageOf(cause), { full: engine.isFull, cause });
      }
    });
  }

  /** By a second engine, for a plan of its own. */
  async compare(
    plan: ProxyPlan,
    scope: ComparisonScope = {},
  ): Promise<readonly DataPlaneDifference[]> {
    const { keys, ignoresExtra } = scope;
    if (keys && ignoresExtra && await this.#holds(plan, keys)) return [];
    const refused = refusedByKey(scope.quarantined);
    const fill = (layout: Layout) =>
      this.#fill(layout, plan, plan.services.keys(), ({ key }) => refused.get(key));
    const { target, applied, differencesIn } = await this.comparison(plan, fill, scope);
    const engine = new Reconciler(this.edges, target, applied);
    return await engine.compareSelected(async (changes) =>
      (await differencesIn(changes)).filter((difference) =>
        keys === undefined || concerns(difference, keys)
      )
    );
  }

  /** Whether the kernel has all of these ServicePorts as planned; `false` = that is not known. */
  async #holds(plan: ProxyPlan, keys: ReadonlySet<ServicePortKey>): Promise<boolean> {
    const services = [...keys].flatMap((key) => plan.services.get(key) ?? []);
    const { target } = this;
    const isInForce = () =>
      target !== undefined && !this.hasUnwrittenPlan && this.plan?.shared === plan.shared &&
      services.every((service) => this.layout?.plan(service.key) === service);
    if (!target?.groupsOf || !target.readBeside || !isInForce()) return false;
    const found = await target.readBeside();
    return isInForce() && this.engine?.holds(target.groupsOf(services), found) === true;
  }

  /** All ServicePorts, or the requested ones that exist. Empty before the first plan. */
  async inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection> {
    const { plan, layout, summary } = this;
    if (plan === undefined || layout === undefined) {
      return { summary, services: [], quarantined: [] };
    }
    const quarantined = layout.quarantined.filter(({ key }) => keys?.includes(key) ?? true);
    const services: ServiceInspection[] = [];
    const slice = new TimeSlice(this.edges.clock);
    for (const key of keys ?? plan.services.keys()) {
      await slice.pause();
      const service = plan.services.get(key);
      if (service === undefined) continue;
      const traffic = this.trafficOf(service);
      const inspection = inspectService(service, plan.shared, quarantined);
      services.push({ ...inspection, ...(traffic && { traffic }) });
    }
    return { summary, services, quarantined };
  }

  distrust(isDistrusted: boolean): void {
    this.#isDistrusted = isDistrusted;
    if (!isDistrusted || !this.#isSuspect || this.edges.clock.now() < this.restsUntil) return;
    this.#isSuspect = false;
    this.recheck();
  }

  ruleCounters(): Promise<RuleCounters> {
    const { failedWrites } = this;
    const failedPartialWrites = this.engine?.partialFailures ?? 0;
    return Promise.resolve({ failedWrites, failedPartialWrites, failedCleanups: 0 });
  }

  findAffinity: Backend["findAffinity"] = () =>
    Promise.reject(new Error(`mode ${this.mode} does not show which client has which endpoint`));

  refreshTraffic(): Promise<void> {
    return Promise.resolve();
  }

  ownsAddress(_address: IpAddress, _interfaceName: string): boolean {
    return false;
  }

  protected get hasUnwrittenPlan(): boolean {
    return this.layout === undefined || !this.#isWritten ||
      this.target?.report?.isUnfinished === true;
  }

  /**
   * Updates the layout to a plan without writing. A ServicePort that the kernel refused is left out
   * until its retry. The cost depends on the changes. If something changed that all rules depend on,
   * the layout is made from scratch.
   */
  async #take(plan: ProxyPlan, changes: PlanChanges, { refused, comparesLayouts }: Target) {
    const { clock } = this.edges;
    const { shared, services } = plan;
    this.#isWritten = false;
    this.#isSuspect = true;
    const options = this.optionsOf(plan, changes);
    const current = this.layout;
    const isNew = current === undefined || !(current.fits?.(shared, options) ??
      (deepEqual(current.options, options) && deepEqual(this.#localTraffic, shared.localTraffic)));
    const layout = isNew ? this.createLayout(shared, options) : current;
    this.layout = layout;
    if (this.#isDistrusted || (isNew && current && !comparesLayouts)) this.engine?.forget();
    if (isNew || changes.shared) refused.forgetAll();
    if (!isNew && changes.shared) layout.setShared?.(shared);
    this.#localTraffic = isNew ? shared.localTraffic : this.#localTraffic;
    for (const key of changes.removed.keys()) {
      layout.delete(key);
      refused.forget(key);
    }
    await this.#fill(layout, plan, isNew ? services.keys() : changes.upserted, (service) => {
      const now = clock.now();
      const obstacle = layout.obstacle?.(service);
      const refusal = refused.waitingFor(service, now) ??
        (obstacle === undefined ? undefined : refused.refuse(service, obstacle, now));
      return refusal && refusedItem(clock, service.key, refusal);
    });
    return layout;
  }

  async #fill(
    layout: Layout,
    { services }: ProxyPlan,
    keys: Iterable<ServicePortKey>,
    refusalOf: (service: ServicePlan) => Quarantined | undefined,
  ): Promise<void> {
    const slice = new TimeSlice(urgent(this.edges.clock));
    for (const key of keys) {
      const turn = slice.pause();
      if (turn) await turn;
      const service = services.get(key);
      if (service === undefined) continue;
      const refusal = refusalOf(service);
      if (refusal === undefined) layout.set(service);
      else layout.quarantine(refusal, service);
    }
  }
}

/** Without an owner, an extra chain or server is of another ServicePort, but rules and jumps are of all. */
function concerns(
  { key, kind, object }: DataPlaneDifference,
  keys: ReadonlySet<ServicePortKey>,
): boolean {
  if (key !== undefined) return keys.has(key);
  return kind !== "extra" || object === "rule" || object === "jump";
}

/** The addresses of a ServicePort and the verdicts of their packets. */
export function inspectService(
  plan: ServicePlan,
  shared: SharedPlan,
  quarantined: readonly Quarantined[],
): ServiceInspection {
  const { key, protocol } = plan;
  const own = quarantined.filter((item) => item.key === key);
  const isOut = own.some(({ address }) => address === undefined);
  const addressesOf = ({ address }: { readonly address?: IpAddress }) =>
    address === undefined ? nodePortAddressesOf(plan, shared.nodePortAddresses) : [address];
  const addresses: ServedAddress[] = [];
  for (const frontend of frontendsOf(plan)) {
    const { role, port, verdict: { external, internal } } = frontend;
    const isServed = external.kind === "forward" || internal.kind === "forward";
    const isQuarantined = isOut || (role !== "ClusterIP" && own.length > 0);
    const state = isQuarantined ? "quarantined" : isServed ? "serving" : "refusing";
    for (const address of addressesOf(frontend)) {
      addresses.push({ role, address, port, protocol, state });
    }
  }
  for (const place of contestedAddressesOf(plan, shared.nodePortAddresses)) {
    addresses.push({ ...place, protocol, state: "quarantined" });
  }
  return { key, addresses };
}
