import { syncPeriodsOf } from "../../config/configuration.ts";
import { featureEnabled } from "../../config/feature_gates.ts";
import { SyncLoop, type SyncLoopDependencies } from "../../engine/sync_loop.ts";
import { retryBackoff, type SyncRunnerOptions } from "../../engine/sync_runner.ts";
import type { DriftFigures, ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import type { Backend } from "../../proxy/backend.ts";
import type { SyncReport } from "../../proxy/data_plane.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import type { ControllerParts } from "../controllers.ts";
import type { BackendTable } from "../dependencies.ts";
import { modeSettingsOf } from "../run/mode_settings.ts";
import type { PlanSettings } from "../run/plan_settings.ts";
import { Services } from "./services.ts";
import type { ServiceSyncEvent, ServiceSyncListener } from "./service_sync_event.ts";

/** Longest time between two syncs, as in kube-proxy for modes with tables. */
const MAX_SYNC_PERIOD_MS = 3_600_000;

/** The log messages of syncs. */
export const TEXTS = {
  synced: "Synced proxy rules",
  failed: "Cannot sync proxy rules; the last applied state stays and the changes are tried again",
  quarantined: "Service port is in quarantine; it is tried again, all others work",
  released: "Service port is out of quarantine",
  item: "servicePort",
};

interface ServiceFamilyDependencies extends SyncLoopDependencies {
  readonly backend: Backend;
  readonly metrics: Pick<
    ProxyMetrics,
    "syncQueued" | "syncFinished" | "syncSucceeded" | "syncFailed"
  >;
  /** Called for each sync, in this order. May be extended later. */
  readonly serviceListeners: readonly ServiceSyncListener[];
}

/**
 * Keeps one family's data plane in step with its Services. The families are independent, so a failed one
 * does not affect the other.
 */
export class ServiceFamily {
  readonly family: IpFamily;
  readonly backend: Backend;
  readonly services: Services;
  readonly loop: SyncLoop<ProxyPlan, PlanChanges, ServicePortKey, SyncReport>;
  readonly #dependencies: ServiceFamilyDependencies;
  #isStarted = false;
  #isComplete = false;

  constructor(
    dependencies: ServiceFamilyDependencies,
    services: Services,
    runner: SyncRunnerOptions,
    recorder?: ServiceSyncListener,
  ) {
    this.family = services.family;
    this.backend = dependencies.backend;
    this.services = services;
    this.#dependencies = dependencies;
    this.loop = new SyncLoop(dependencies, {
      id: { controller: "service", family: services.family },
      dataPlane: dependencies.backend,
      source: services,
      listeners: [this, ...(recorder ? [recorder] : [])],
      texts: TEXTS,
      runner,
    });
    services.onDue = () => this.loop.request();
  }

  /** Adopts the state of the machine. Syncs nothing before {@linkcode open} or {@linkcode openEarly}. */
  async start(): Promise<void> {
    await this.loop.start();
    this.#isStarted = true;
  }

  /** Called when all objects are known: other objects on the machine may be removed from now on. */
  open(): void {
    if (this.#isComplete) return;
    this.#isComplete = true;
    this.services.setPartial(false);
    this.loop.open();
  }

  /**
   * Starts syncs with the objects known so far, if the mode supports it; see {@linkcode
   * Backend.takesPartialPlans}.
   */
  openEarly(): void {
    if (!this.#isStarted || this.loop.isOpen || !this.backend.takesPartialPlans) return;
    this.services.setPartial(true);
    this.loop.open();
  }

  /** Counts the syncs, and passes them on. */
  async on(event: ServiceSyncEvent): Promise<void> {
    const { clock, metrics, serviceListeners } = this.#dependencies;
    const { family, services } = this;
    switch (event.kind) {
      case "started":
      case "queued":
        metrics.syncQueued(family, clock.wallNow());
        break;
      case "synced": {
        const { at, quarantined, report } = event;
        metrics.syncSucceeded(family, {
          at,
          quarantined: quarantined.length,
          programmingSeconds: services.takeTriggerTimes().map((trigger) =>
            Math.max(0, at - trigger) / 1000
          ),
          noLocalEndpoints: services.noLocalEndpoints(),
          ...(report.rules && { rules: report.rules }),
        });
        break;
      }
      case "failed":
        metrics.syncFailed(family);
        break;
      case "finished":
        metrics.syncFinished(family, event);
    }
    for (const listener of serviceListeners) {
      const done = listener.on(event);
      if (event.kind === "syncing") await done;
    }
  }

  /** Takes the addresses of the machine, sorted; those that the backend put there are not the node's. */
  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void {
    const ofNode = addresses.filter(({ address, interfaceName }) =>
      ipFamilyOf(address) === this.family && !this.backend.ownsAddress(address, interfaceName)
    );
    this.services.onInterfaceAddresses([...new Set(ofNode.map(({ address }) => address))]);
  }

  /** Whether a plan was applied, so that it decides about every address. */
  get hasSynced(): boolean {
    return this.loop.lastSync !== undefined;
  }

  /** Gives up addresses of an earlier run, once the backend has started; see {@linkcode Backend.disown}. */
  async disown(isForeign: (address: IpAddress) => boolean): Promise<readonly IpAddress[]> {
    if (!this.#isStarted) return [];
    return await this.backend.disown?.(isForeign) ?? [];
  }
}

/** Makes a family of a run. Starts nothing. `traffic`: `undefined` = nothing is counted. */
export function createServiceFamily(
  parts: Omit<ControllerParts, "controllerOfServices">,
  family: IpFamily,
  settings: PlanSettings,
  traffic: ServiceTrafficTable | undefined,
): ServiceFamily {
  const { clock, configuration, changes, judges, metrics, random } = parts;
  const { proxy, mode } = configuration;
  const logger = parts.logger.with({ ipFamily: family });
  const minPeriodMs = syncPeriodsOf(proxy, mode).minSyncPeriod;
  const loop = { controller: "service", family } as const;
  const judge = judges.get(family);
  const recorder = changes.followServices(loop, minPeriodMs);
  const allowExternalIps = featureEnabled(proxy, "AllowServiceExternalIPs");
  const services = new Services({ clock, recorder }, family, settings, { allowExternalIps });
  const backend = (parts.backends as Required<BackendTable>)[mode]({
    ...parts,
    logger,
    onDrift(figures: DriftFigures) {
      metrics.loops.driftFound(loop, figures);
      changes.driftFound(loop, figures);
      // The repair may have left out a Service, which is to be reported and tried again.
      services.onDue();
    },
    onHealth: (healthChanges) => changes.healthChanged(family, healthChanges),
  }, {
    family,
    ...modeSettingsOf(configuration),
    ...(traffic && { traffic: traffic.of(family) }),
    ...(judge && { judge }),
  });
  return new ServiceFamily(
    { ...parts, logger, backend },
    services,
    { minPeriodMs, maxPeriodMs: MAX_SYNC_PERIOD_MS, retryMs: retryBackoff(random) },
    recorder,
  );
}
