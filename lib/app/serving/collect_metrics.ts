import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { OpenFiles } from "../../os/open_files.ts";
import type { HostSettingOutcome } from "../../proxy/host_setting.ts";
import type { FamilyProxy } from "../service/family_proxy.ts";
import type { ObjectSource } from "../run/object_source.ts";

/** Where the figures come from. */
interface MetricSources {
  readonly families: readonly FamilyProxy[];
  /** `undefined` while it is being opened. */
  readonly source: ObjectSource | undefined;
  readonly largestDelayMs: number;
  readonly hostSettings: readonly HostSettingOutcome[];
  readonly openFiles: OpenFiles;
  readonly uncaughtErrors: number;
}

/** Tells the metrics what the parts know. */
export async function collectMetrics(
  metrics: ProxyMetrics,
  { families, source, largestDelayMs, hostSettings, openFiles, uncaughtErrors }: MetricSources,
): Promise<void> {
  metrics.setOpenFiles(openFiles);
  metrics.setUncaughtErrors(uncaughtErrors);
  metrics.setLargestEventLoopDelay(largestDelayMs / 1000);
  const refused = hostSettings.filter(({ state }) => state === "refused");
  metrics.setHostSettingsRefused(refused.length);
  for (const [resource, age] of source?.ages() ?? []) metrics.setSourceAge(resource, age);
  for (const [resource, counts] of source?.repetitions() ?? []) {
    metrics.setRepetitions(resource, counts);
  }
  for (const { family, pipeline, backend } of families) {
    const { services, endpoints } = pipeline;
    // What cannot be read keeps its last figure; why is for the log of the backend's own syncs.
    const { connections, counting } = backend;
    const rules = await counting?.ruleCounters().catch(() => undefined);
    if (rules) metrics.setRuleCounters(family, rules);
    await counting?.refreshTraffic().catch(() => undefined);
    if (connections) metrics.setTraffic(family, connections.counters);
    metrics.setChanges(family, {
      servicesPending: services.pending,
      servicesTotal: services.total,
      endpointsPending: endpoints.pending,
      endpointsTotal: endpoints.total,
    });
  }
}
