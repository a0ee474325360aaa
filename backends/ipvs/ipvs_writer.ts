/**
 * Brings the kernel to what is wanted, and knows what it holds: known is what was applied without a
 * failure or read since.
 *
 * @module
 */
import type { Cidr } from "../../lib/net/cidr.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { Quarantined } from "../../lib/proxy/backend.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import { inSteps } from "../netfilter/foreign/in_steps.ts";
import { pauseBetween } from "../netfilter/pause_between.ts";
import { adoptKernel } from "./adopt_kernel.ts";
import { AppliedServers } from "./applied_servers.ts";
import { baseChains } from "./base_rules.ts";
import { diffInSteps, type KernelState, KNOWN_KERNEL } from "./diff.ts";
import { DrainList } from "./drain_list.ts";
import type { IpvsRunner } from "./ipvs_runner.ts";
import { IpvsLayout } from "./layout.ts";
import type { IpvsRenderOptions } from "./render_options.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import type { ServerKey } from "./virtual_server.ts";
import type { WriteFigures } from "./write_figures.ts";

/** What writing needs. */
export interface IpvsWriterDependencies {
  readonly clock: Clock;
  readonly runner: IpvsRunner;
}

/** Settings that stay. */
export interface IpvsWriterOptions {
  readonly excludeCidrs: readonly Cidr[];
  /** Longest time for connections to end, milliseconds; 0 = as long as they like. */
  readonly drainTimeoutMs: number;
}

/** ServicePorts between two questions whether to pause. */
const SLICE_SIZE = 32;

/** Writes for one family. One call is in flight at most. */
export class IpvsWriter {
  readonly #dependencies: IpvsWriterDependencies;
  readonly #options: IpvsWriterOptions;
  readonly #servers = new AppliedServers();
  readonly #drains: DrainList;
  #layout: IpvsLayout | undefined;
  /** What the fixed rules were written for. */
  #rules: unknown;
  #isKnown = false;

  constructor(dependencies: IpvsWriterDependencies, options: IpvsWriterOptions) {
    this.#dependencies = dependencies;
    this.#options = options;
    this.#drains = new DrainList({ timeoutMs: options.drainTimeoutMs });
  }

  /** Whether what the kernel holds is known; otherwise the next write reads it first. */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  /** Virtual servers of ours in the kernel. */
  get servers(): Iterable<ServerKey> {
    return this.#servers.keys;
  }

  /** Addresses that are to be on the device. */
  get addresses(): Iterable<IpAddress> {
    return this.#layout?.addresses.wanted ?? [];
  }

  /** Real servers on their way out. */
  get draining(): number {
    return this.#drains.size;
  }

  /** What is not as its Service asks. */
  get quarantined(): readonly Quarantined[] {
    return this.#layout?.quarantined ?? [];
  }

  /** Whether an address is, or is to be, on the device. */
  ownsAddress(address: IpAddress): boolean {
    const { addresses } = this.#layout ?? {};
    return addresses !== undefined && (addresses.has(address) || addresses.isApplied(address));
  }

  /** What of a ServicePort has a virtual server now. */
  get layout(): IpvsLayout | undefined {
    return this.#layout;
  }

  /** Lays out what has changed; everything, where what all depends on has. */
  async take(
    plan: ProxyPlan,
    { changes, options }: { readonly changes: PlanChanges; readonly options: IpvsRenderOptions },
  ): Promise<void> {
    const pause = pauseBetween(this.#dependencies.clock);
    const current = this.#layout;
    const isNew = current === undefined || changes.everything || changes.shared ||
      !isSame(current.options, options);
    const layout = isNew ? new IpvsLayout(plan.shared, options) : current;
    if (!isNew) { for (const key of changes.removed.keys()) layout.delete(key); }
    let count = 0;
    for (const key of isNew ? plan.services.keys() : changes.upserted) {
      const service = plan.services.get(key);
      if (service) layout.set(service);
      if (++count % SLICE_SIZE === 0) await pause();
    }
    if (isNew && current) layout.inherit(current);
    this.#layout = layout;
  }

  /** Somebody else may have changed it. */
  forget(): void {
    this.#isKnown = false;
  }

  /** Writes what differs, by as few processes as there are tools. Throws; then all is read next time. */
  async write(figures: WriteFigures): Promise<void> {
    const { clock, runner } = this.#dependencies;
    const layout = this.#layout;
    if (layout === undefined) return;
    const kernel = await this.#kernel(layout, figures);
    const batch = await inSteps({ clock }, diffInSteps(layout, this.#servers, kernel));
    this.#isKnown = false;
    for (const step of batch.steps) {
      await runner.run(step);
      figures.add(step);
    }
    for (const [key, server] of batch.servers) {
      this.#servers.confirm(key, server);
      this.#noteDrains(key);
    }
    layout.settle();
    this.#rules = baseChains(layout.ruleContext);
    this.#isKnown = true;
  }

  /** Takes away what has drained. Returns how many real servers. */
  async drain(seen: readonly SeenServer[], figures: WriteFigures): Promise<number> {
    const { clock, runner } = this.#dependencies;
    const operations = this.#drains.due(seen, clock.now());
    if (operations.length === 0) return 0;
    const step = { tool: "ipvsadm", operations } as const;
    try {
      await runner.run(step);
    } catch (error) {
      this.forget();
      throw error;
    }
    figures.add(step);
    for (const operation of operations) {
      if (operation.kind !== "deleteReal") continue;
      const { server: key, key: real } = operation;
      this.#drains.remove(key, real);
      const server = this.#servers.get(key);
      if (server === undefined) continue;
      const reals = new Map(server.reals);
      reals.delete(real);
      this.#servers.confirm(key, { ...server, reals });
    }
    return operations.length;
  }

  async #kernel(layout: IpvsLayout, figures: WriteFigures): Promise<KernelState> {
    if (this.#isKnown) {
      return { ...KNOWN_KERNEL, hasRules: deepEqual(this.#rules, baseChains(layout.ruleContext)) };
    }
    const { runner } = this.#dependencies;
    await runner.makeDevice();
    figures.read();
    const reading = await runner.read();
    const state = adoptKernel({ layout, servers: this.#servers }, reading, this.#options);
    for (const key of this.#servers.keys) this.#noteDrains(key);
    return state;
  }

  #noteDrains(key: ServerKey): void {
    const server = this.#servers.get(key);
    if (server === undefined) {
      this.#drains.remove(key);
      return;
    }
    const nowMs = this.#dependencies.clock.now();
    for (const [real, weight] of server.reals) {
      if (weight === 0) this.#drains.add(key, { real, nowMs });
      else this.#drains.remove(key, real);
    }
  }
}

function isSame(one: IpvsRenderOptions, other: IpvsRenderOptions): boolean {
  const { nodeAddresses, ...rest } = one;
  const { nodeAddresses: others, ...otherRest } = other;
  return deepEqual(rest, otherRest) && nodeAddresses.size === others.size &&
    [...nodeAddresses].every((address) => others.has(address));
}
