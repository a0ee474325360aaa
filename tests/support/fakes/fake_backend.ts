/** A backend that remembers its ServicePorts, and fails on demand. */
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import type { Backend } from "../../../lib/proxy/backend.ts";
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import type { HostSettingRequest, Quarantined, SyncReport } from "../../../lib/proxy/data_plane.ts";
import type {
  BackendInspection,
  MachineFacts,
  ProbeResult,
} from "../../../lib/proxy/service_mode.ts";
import { deepEqual } from "../../../lib/proxy/deep_equal.ts";
import type { PlanChanges, ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";

/** One sync as the backend saw it. */
export interface FakeSync {
  readonly upserted: readonly string[];
  readonly removed: readonly string[];
  readonly everything: boolean;
  readonly isPartial?: true;
}

/** Applies changes the way a real backend has to: what changed, nothing else. */
export class FakeBackend implements Backend {
  readonly mode = "userspace";
  usesConntrack = false;
  takesPartialPlans = false;
  /** The ServicePorts after the last successful sync. */
  readonly held = new Map<ServicePortKey, ServicePlan>();
  /** Every sync, failed ones too. */
  readonly syncs: FakeSync[] = [];
  /** Makes the next syncs throw, one error each. */
  readonly failures: Error[] = [];
  /** Keys that can't be brought into effect now, with the reason. */
  readonly refusals = new Map<string, string>();
  readonly own = new Set<IpAddress>();

  constructor(readonly family: IpFamily = "IPv4") {}

  probe(): Promise<readonly ProbeResult[]> {
    return Promise.resolve([]);
  }

  start(): Promise<void> {
    return Promise.resolve();
  }

  sync(plan: ProxyPlan, changes: PlanChanges): Promise<SyncReport> {
    this.syncs.push({
      upserted: [...changes.upserted].sort(),
      removed: [...changes.removed.keys()].sort(),
      everything: changes.everything,
      ...(changes.isPartial && { isPartial: true }),
    });
    const failure = this.failures.shift();
    if (failure) return Promise.reject(failure);
    let writes = 0;
    for (const key of changes.removed.keys()) writes += Number(this.held.delete(key));
    const quarantined: Quarantined[] = [];
    for (const key of changes.upserted) {
      const reason = this.refusals.get(key);
      if (reason !== undefined) quarantined.push({ key, reason });
      else if (this.#hold(plan.services.get(key)!)) writes++;
    }
    const { upserted, removed, everything } = changes;
    return Promise.resolve({
      full: everything,
      services: upserted.size + removed.size,
      operations: writes > 0 ? { writes } : {},
      quarantined,
    });
  }

  /** Returns whether packets notice: endpoints that no verdict picks have no rules. */
  #hold(next: ServicePlan): boolean {
    const previous = this.held.get(next.key);
    this.held.set(next.key, next);
    return previous === undefined ||
      !deepEqual({ ...previous, endpoints: [] }, { ...next, endpoints: [] });
  }

  hostSettings(): readonly HostSettingRequest[] {
    return [];
  }

  render(): Iterable<string> {
    return [];
  }

  facts(): MachineFacts | undefined {
    return undefined;
  }

  compare: Backend["compare"] = () => Promise.resolve([]);
  repair: Backend["repair"] = () => Promise.resolve({});
  explain: Backend["explain"] = () => ({ carriers: [] });
  findAffinity: Backend["findAffinity"] = () => Promise.resolve(undefined);

  recheck(): void {}

  inspect(): Promise<BackendInspection> {
    return Promise.resolve({ summary: "in memory", services: [], quarantined: [] });
  }

  ownsAddress(address: IpAddress): boolean {
    return this.own.has(address);
  }

  cleanup(): Promise<CleanupReport> {
    return Promise.resolve({ removed: [], failed: [] });
  }

  previewCleanup(): Promise<CleanupReport> {
    return this.cleanup();
  }

  drain(): Promise<void> {
    return Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}
