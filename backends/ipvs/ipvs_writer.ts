import type { Cidr } from "../../lib/net/cidr.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { TimeSlice } from "../../lib/os/time_slice.ts";
import { refusedItem, RefusedItems } from "../netfilter/refused_items.ts";
import { adoptKernel } from "./adopt_kernel.ts";
import { AppliedServers } from "./applied_servers.ts";
import { baseChains } from "./base_rules.ts";
import { diffInSteps, type IpvsBatch, type KernelState, KNOWN_KERNEL } from "./diff.ts";
import { Draining } from "./draining.ts";
import type { IpvsRunner } from "./ipvs_runner.ts";
import { IpvsLayout, leaveOutRefused, TOO_MANY_REAL_SERVERS } from "./layout.ts";
import { haveNodePortsChanged, nodePortServers } from "./node_port_servers.ts";
import type { RenderInputs } from "./render_service.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import type { ServerRecordWriter } from "./server_record_writer.ts";
import { blamedServices, ownersOfAddedRules, StepRefusal } from "./step_refusal.ts";
import { runVerified } from "./run_verified.ts";
import type { TakenServers } from "./taken_servers.ts";
import { PostponedServices } from "./postponed_services.ts";
import type { ServerKey } from "./virtual_server.ts";
import type { IpvsStep, WriteFigures } from "./steps.ts";
import { NO_BOUNDS, type WriteBounds } from "./write_room.ts";

interface IpvsWriterDependencies {
  readonly clock: Clock;
  readonly runner: IpvsRunner;
  readonly record: ServerRecordWriter;
  readonly taken: TakenServers;
}

interface IpvsWriterOptions {
  readonly excludeCidrs: readonly Cidr[];
  /** Maximum time for connections to end, milliseconds; 0 = unlimited. */
  readonly drainTimeoutMs: number;
}

/** Maximum number of refused writes in a sync; the next sync continues. */
const MAX_REFUSALS = 16;
/** Operations on virtual servers in a write. The next write continues with what exceeds them. */
const BOUNDS: WriteBounds = { ofService: 512, together: 4_096 };

/** Writes the desired state of one family, and knows the applied one. One call is in flight at most. */
export class IpvsWriter {
  readonly #dependencies: IpvsWriterDependencies;
  readonly #options: IpvsWriterOptions;
  readonly #servers = new AppliedServers();
  readonly #drains: Draining;
  readonly #refused = new RefusedItems();
  /** The plans that were laid out since the last write that succeeded. */
  readonly #laid = new Map<ServicePortKey, ServicePlan>();
  readonly #postponed = new PostponedServices();
  #layout: IpvsLayout | undefined;
  /** The layout whose node ports are in the record. */
  #notedLayout: IpvsLayout | undefined;
  /** The context that the fixed rules were written for. */
  #rules: unknown;
  #isKnown = false;
  #isPending = false;
  #failedRestores = 0;

  constructor(dependencies: IpvsWriterDependencies, options: IpvsWriterOptions) {
    this.#dependencies = dependencies;
    this.#options = options;
    const { drainTimeoutMs: timeoutMs } = options;
    this.#drains = new Draining({ ...dependencies, servers: this.#servers }, { timeoutMs });
  }

  /** Whether the content of the kernel is known; otherwise the next write reads it first. */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  /** Whether changes were taken that are not written yet, or not completely. */
  get isPending(): boolean {
    return this.#isPending;
  }

  /** Restores of rules that failed, since the process began. */
  get failedRestores(): number {
    return this.#failedRestores;
  }

  /** The virtual servers of this mode in the kernel. */
  get servers(): Iterable<ServerKey> {
    return this.#servers.keys;
  }

  /** Addresses that are to be on the device. */
  get addresses(): Iterable<IpAddress> {
    return this.#layout?.addresses.wanted ?? [];
  }

  /** The number of draining real servers. */
  get draining(): number {
    return this.#drains.size;
  }

  /** Deviations from what Services ask for. */
  get quarantined(): readonly Quarantined[] {
    return this.#layout?.quarantined ?? [];
  }

  /** The desired state of the last plan. */
  get layout(): IpvsLayout | undefined {
    return this.#layout;
  }

  /** Lays out changed ServicePorts; all of them if a common input changed. */
  async take(
    plan: ProxyPlan,
    { changes, options }: Pick<RenderInputs, "options"> & { readonly changes: PlanChanges },
  ): Promise<void> {
    this.#isPending = true;
    const slice = new TimeSlice(this.#dependencies.clock);
    const current = this.#layout;
    const isNew = current === undefined || changes.everything ||
      !isSame(current, { shared: plan.shared, options });
    const layout = isNew ? new IpvsLayout(plan.shared, options) : current;
    if (isNew) this.#refused.forgetAll();
    for (const key of changes.removed.keys()) {
      if (!isNew) layout.delete(key);
      this.#refused.forget(key);
      this.#laid.delete(key);
      this.#postponed.delete(key);
    }
    this.#postponed.begin();
    const changed = isNew ? plan.services.keys() : changes.upserted.union(this.#postponed.keys);
    for (const key of changed) {
      const service = plan.services.get(key);
      // The first layout has everything: the kernel may already serve it.
      const isServed = current === undefined || current.plan(key) !== undefined;
      if (service === undefined) this.#postponed.delete(key);
      else if (this.#postponed.admits(service, { isServed, shared: plan.shared })) {
        this.#lay(layout, service);
      }
      await slice.pause();
    }
    if (isNew && current) layout.inherit(current);
    this.#layout = layout;
  }

  /** Another program may have changed it. */
  forget(): void {
    this.#isKnown = false;
  }

  /**
   * Writes the differences with at most one process for each tool. ServicePorts that the kernel
   * refuses are quarantined. Of large Services it writes a part, unless `isWhole`; while it
   * {@linkcode isPending}, the next write continues. Throws if even the rest cannot be written; then
   * the next write reads everything.
   */
  async write(
    figures: WriteFigures,
    { isWhole = false }: { readonly isWhole?: boolean } = {},
  ): Promise<void> {
    const bounds = isWhole ? NO_BOUNDS : BOUNDS;
    let fromMemory: StepRefusal | undefined;
    for (let refusals = 1;; refusals++) {
      // A write based on memory may be refused because another program changed something.
      const wasRead = !this.#isKnown;
      try {
        return await this.#write(figures, bounds);
      } catch (error) {
        if (!(error instanceof StepRefusal) || refusals > MAX_REFUSALS) throw error;
        if (!wasRead) fromMemory = error;
        else if (!await this.#leaveOut(error, fromMemory)) throw error;
      }
    }
  }

  /** Removes drained real servers and returns their number. */
  async drain(seen: readonly SeenServer[], figures: WriteFigures): Promise<number> {
    try {
      return await this.#drains.take(seen, figures);
    } catch (error) {
      this.forget();
      throw error;
    }
  }

  async #write(figures: WriteFigures, wanted: WriteBounds): Promise<void> {
    const { clock } = this.#dependencies;
    const layout = this.#layout;
    if (layout === undefined) return;
    const kernel = await this.#kernel(layout, figures);
    // The other mode serves until all is there.
    const bounds = kernel.isTakeover ? NO_BOUNDS : wanted;
    const steps = diffInSteps(layout, this.#servers, { ...kernel, bounds });
    const batch = await inSteps({ clock }, steps);
    this.#isKnown = false;
    for (const step of batch.steps) {
      await this.#run(step, { layout, expected: batch.servers });
      figures.add(step);
    }
    for (const [key, server] of batch.servers) {
      this.#servers.confirm(key, server);
      this.#drains.note(key);
    }
    this.#notePorts(layout);
    layout.settle();
    layout.touch(batch.unfinished);
    this.#rules = baseChains(layout.ruleContext);
    this.#isKnown = true;
    this.#isPending = batch.unfinished.length > 0 || this.#postponed.size > 0;
    const unfinished = new Set(batch.unfinished.map((key) => layout.server(key)?.owner));
    for (const [key, plan] of this.#laid) {
      if (unfinished.has(key)) continue;
      if (layout.plan(key) === plan) this.#refused.forget(key);
      this.#laid.delete(key);
    }
  }

  async #run(
    step: IpvsStep,
    context: { readonly layout: IpvsLayout; readonly expected: IpvsBatch["servers"] },
  ): Promise<void> {
    try {
      await runVerified(step, { ...this.#dependencies, ...context });
    } catch (error) {
      if (step.tool === "iptables") this.#failedRestores++;
      throw error;
    }
  }

  #lay(layout: IpvsLayout, plan: ServicePlan): void {
    const { clock } = this.#dependencies;
    const now = clock.now();
    const refusal = this.#refused.waitingFor(plan, now) ??
      (layout.hasRoomFor(plan)
        ? undefined
        : this.#refused.refuse(plan, { reason: TOO_MANY_REAL_SERVERS, now }));
    if (refusal) return leaveOutRefused(layout, plan, refusedItem(clock, plan.key, refusal));
    layout.set(plan);
    this.#laid.set(plan.key, plan);
  }

  /** Whether a refusal concerned single ServicePorts. */
  async #leaveOut(refusal: StepRefusal, fromMemory?: StepRefusal): Promise<boolean> {
    const { clock } = this.#dependencies;
    const layout = this.#layout;
    if (layout === undefined) return false;
    const blamed = await inSteps({ clock }, blamedServices(refusal, layout));
    const isReported = blamed.length > 0 || fromMemory === undefined ||
      refusal.details.step.tool !== "iptables";
    const keys = isReported
      ? blamed
      : await inSteps({ clock }, ownersOfAddedRules(fromMemory, layout));
    const reason = refusal.message;
    for (const key of keys) {
      const tried = layout.plan(key);
      if (tried === undefined) continue;
      const plan = this.#laid.get(key) ?? tried;
      const refusal = this.#refused.refuse(plan, { reason, now: clock.now() });
      leaveOutRefused(layout, tried, refusedItem(clock, key, refusal));
    }
    return keys.length > 0;
  }

  async #kernel(layout: IpvsLayout, figures: WriteFigures): Promise<KernelState> {
    if (this.#isKnown) {
      return { ...KNOWN_KERNEL, hasRules: deepEqual(this.#rules, baseChains(layout.ruleContext)) };
    }
    const { record, runner, taken } = this.#dependencies;
    await runner.makeDevice();
    figures.read();
    const reading = await runner.read(this.#servers.keys);
    const state = adoptKernel({ layout, servers: this.#servers }, reading, {
      ...this.#options,
      earlierNodePorts: record.earlierNodePorts,
      onForeign: (key, wanted) => taken.note(key, wanted),
    });
    for (const key of this.#servers.keys) this.#drains.note(key);
    return state;
  }

  /** For the next run, which may find the node without one of its addresses. */
  #notePorts(layout: IpvsLayout): void {
    const { record } = this.#dependencies;
    const isSame = layout === this.#notedLayout && !haveNodePortsChanged(layout);
    this.#notedLayout = layout;
    if (!isSame) record.setNodePorts(() => nodePortServers(layout));
    record.settled();
  }
}

function isSame({ shared, options }: RenderInputs, other: RenderInputs): boolean {
  const { nodeAddresses, ...rest } = options;
  const { nodeAddresses: others, ...otherRest } = other.options;
  return deepEqual(shared.localTraffic, other.shared.localTraffic) &&
    deepEqual(shared.nodePortAddresses, other.shared.nodePortAddresses) &&
    deepEqual(rest, otherRest) && nodeAddresses.symmetricDifference(others).size === 0;
}
