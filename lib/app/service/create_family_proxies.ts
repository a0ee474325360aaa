import { syncPeriodsOf } from "../../config/configuration.ts";
import { featureEnabled } from "../../config/feature_gates.ts";
import type { DriftFigures } from "../../metrics/proxy_metrics.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { EndpointHealthChange } from "../../proxy/service_mode.ts";
import type { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import type { SyncListener } from "../../engine/sync_event.ts";
import { retryBackoff } from "../../engine/sync_runner.ts";
import type { ChangeListener } from "../change_listener.ts";
import type { BackendDependencies, BackendOptions, BackendTable } from "../dependencies.ts";
import type { ConnectionJudges } from "../policy/relayed_policies.ts";
import { FamilyProxy } from "./family_proxy.ts";
import { modeSettingsOf } from "../run/mode_settings.ts";
import type { PlanSettings } from "../run/plan_settings.ts";
import type { RunConfiguration } from "../run/run_configuration.ts";
import type { ServiceSyncListener } from "./service_sync_event.ts";

/** Longest time between two syncs, as in kube-proxy for modes with tables. */
const MAX_SYNC_PERIOD_MS = 3_600_000;

interface FamilyProxiesDependencies extends Omit<BackendDependencies, "onDrift" | "onHealth"> {
  readonly backends: BackendTable;
}

/** Options that the families of a run share. */
interface FamilyProxiesOptions {
  readonly configuration: RunConfiguration;
  readonly settings: PlanSettings;
  readonly listeners: readonly SyncListener[];
  readonly metrics: ProxyMetrics;
  /** May be extended later. */
  readonly serviceListeners: readonly ServiceSyncListener[];
  readonly changes: ChangeListener;
  /** `undefined` = nothing is counted. */
  readonly traffic: ServiceTrafficTable | undefined;
  readonly judges: ConnectionJudges;
}

/** One for each family that is served. Starts nothing. */
export function createFamilyProxies(
  dependencies: FamilyProxiesDependencies,
  options: FamilyProxiesOptions,
): readonly FamilyProxy[] {
  const { families } = options.configuration;
  return families.map((family) => createFamilyProxy(dependencies, { ...options, family }));
}

type FamilyOptions = FamilyProxiesOptions & { readonly family: IpFamily };

function createFamilyProxy(
  dependencies: FamilyProxiesDependencies,
  options: FamilyOptions,
): FamilyProxy {
  const { configuration, changes, family, listeners, metrics, serviceListeners } = options;
  const { proxy, mode } = configuration;
  const logger = dependencies.logger.with({ ipFamily: family });
  const waitMs = syncPeriodsOf(proxy, mode).minSyncPeriod;
  const loop = { controller: "service", family } as const;
  const recorder = changes.followServices(loop, waitMs);
  const onDrift = (figures: DriftFigures) => {
    metrics.loops.driftFound(loop, figures);
    changes.driftFound(loop, figures);
  };
  const onHealth = (healthChanges: readonly EndpointHealthChange[]) =>
    changes.healthChanged(family, healthChanges);
  const edges = { ...dependencies, logger, onDrift, onHealth };
  const create = (dependencies.backends as Required<BackendTable>)[mode];
  const backend = create(edges, backendOptionsOf(options));
  return new FamilyProxy(
    { ...edges, listeners, metrics, serviceListeners, recorder, backend },
    {
      family,
      node: options.settings.nodeState(undefined),
      settings: options.settings,
      allowExternalIps: featureEnabled(proxy, "AllowServiceExternalIPs"),
      runner: {
        minPeriodMs: waitMs,
        maxPeriodMs: MAX_SYNC_PERIOD_MS,
        retryMs: retryBackoff(dependencies.random),
      },
    },
  );
}

function backendOptionsOf(
  { configuration, family, judges, traffic }: FamilyOptions,
): BackendOptions {
  const judge = judges.get(family);
  return {
    family,
    ...modeSettingsOf(configuration),
    ...(traffic && { traffic: traffic.of(family) }),
    ...(judge && { judge }),
  };
}
