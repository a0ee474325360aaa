/**
 * Applies changes of the configuration file while the process runs.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { rereadConfigurationText } from "../../config/configuration_file.ts";
import { watchConfiguration } from "../../config/configuration_watch.ts";
import type { Controller } from "../../engine/controller.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import type { AdjustableLogger } from "../../log/logger.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { ChangeListener } from "../change_listener.ts";
import type { Dependencies, RunConfiguration } from "../dependencies.ts";

/**
 * Watches the file of `--config`, if there is one, as a task of the program. The task fails, and the
 * program exits, if a changed field only takes effect at a start.
 */
export function startConfigurationReload(
  { clock, logger, metrics, process: { uid, env } }: Pick<Dependencies, "clock" | "process"> & {
    readonly logger: AdjustableLogger;
    readonly metrics: Pick<ProxyMetrics, "configReloaded">;
  },
  tasks: TaskGroup,
  { configuration, current, changes, controllers, services }: {
    readonly configuration: RunConfiguration;
    /** Receives the effective configuration after a change of the file. */
    readonly current: { proxy: KubeProxyConfiguration };
    readonly changes: Pick<ChangeListener, "configurationChanged">;
    /** They apply some of it themselves. */
    readonly controllers: readonly Pick<Controller, "onConfiguration">[];
    readonly services: { setConfiguration(proxy: KubeProxyConfiguration): void };
  },
): void {
  const { flags, mode, requestedMode = mode } = configuration;
  const { config } = flags;
  if (config === undefined) return;
  tasks.run("configuration file", async (signal) => {
    // Such as `--config <(…)`. A second read finds it empty, or waits.
    if (await Deno.stat(config).then(({ isFifo }) => isFifo === true, () => false)) {
      logger.info("Configuration was read from a pipe; changes are not watched", { file: config });
      return;
    }
    await watchConfiguration(
      { clock, logger, uid, env, readTextFile: rereadConfigurationText },
      {
        flags: { ...flags, config },
        current: { ...configuration, mode: requestedMode },
        mode,
        signal,
        onApplicable({ proxy }, fields) {
          current.proxy = proxy;
          changes.configurationChanged(fields);
          // Only changes: the verbosity may have been set at /debug/flags/v in the meantime.
          const { verbosity, vmodule } = proxy.logging;
          if (fields.includes("logging.verbosity")) logger.setVerbosity(verbosity);
          if (fields.includes("logging.vmodule")) logger.setVmodule(vmodule);
          for (const controller of controllers) controller.onConfiguration?.();
          if (fields.some(concernsServices)) services.setConfiguration(proxy);
        },
        onResult: (result) => metrics.configReloaded(result),
      },
    );
  });
}

/** Peers of BGP keep their addresses. */
const concernsServices = (field: string) =>
  /^routing\.bgp\.(enabled|peers)$/.test(field) ||
  !/^(logging|networkPolicy|routing)\./.test(field);
