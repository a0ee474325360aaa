/**
 * Takes up what changes in the configuration file while the proxy runs.
 *
 * @module
 */
import { watchConfiguration } from "../../config/configuration_watch.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { Controller } from "../../controller/controller.ts";
import { rereadConfigurationText } from "../../config/read_configuration_text.ts";
import type { AdjustableLogger } from "../../log/logger.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { ChangeLog } from "../changes/change_log.ts";
import type { Dependencies } from "../dependencies.ts";
import type { FamilyProxy } from "../service/family_proxy.ts";
import type { LivePlanSettings } from "./live_plan_settings.ts";
import { planSettingsOf } from "./plan_settings.ts";
import type { RunConfiguration } from "./run_configuration.ts";
import type { StartUp } from "./start_up.ts";
import type { TaskGroup } from "../../controller/task_group.ts";

/** What runs, and what of it can be changed. */
interface ConfigurationReloadOptions {
  readonly configuration: RunConfiguration;
  /** Gets what is in force from a change of the file on. */
  readonly current: { proxy: KubeProxyConfiguration };
  readonly nodeName: string;
  readonly settings: LivePlanSettings;
  readonly families: readonly Pick<FamilyProxy, "onSettings">[];
  /** What holds the configuration against the node. */
  readonly startUp: Pick<StartUp, "onConfiguration">;
  readonly changes?: Pick<ChangeLog, "configurationChanged">;
  /** Controllers that take up some of it themselves. */
  readonly controllers?: readonly Pick<Controller, "onConfiguration">[];
}

/** What is needed to read the file again. */
interface ConfigurationReloadDependencies extends Pick<Dependencies, "clock" | "process"> {
  readonly logger: AdjustableLogger;
  readonly metrics: Pick<ProxyMetrics, "configReloaded">;
}

/** What is in force now. */
export interface CurrentConfiguration {
  readonly proxy: KubeProxyConfiguration;
}

/**
 * Watches the file of `--config`, where there is one, as a task of the program. The task fails, and
 * the program ends, when the file changes in what only a start takes up.
 */
export function startConfigurationReload(
  dependencies: ConfigurationReloadDependencies,
  tasks: TaskGroup,
  options: ConfigurationReloadOptions,
): void {
  const { configuration, current, nodeName, settings, families, startUp, changes } = options;
  const { flags, mode, requestedMode = mode } = configuration;
  const { config } = flags;
  if (config === undefined) return;
  const { clock, logger, metrics, process: { uid, env } } = dependencies;
  tasks.run("configuration file", async (signal) => {
    if (await isPipe(config)) {
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
          changes?.configurationChanged(fields);
          takeUpLogging(logger, proxy, fields);
          for (const controller of options.controllers ?? []) controller.onConfiguration?.();
          if (fields.every((field) => isOfLogging(field) || isOfNetworkPolicy(field))) return;
          settings.replace(planSettingsOf(proxy, { nodeName, mode }));
          for (const family of families) family.onSettings(settings);
          startUp.onConfiguration(proxy);
        },
        onResult: (result) => metrics.configReloaded(result),
      },
    );
  });
}

const isOfLogging = (field: string) => field.startsWith("logging.");
const isOfNetworkPolicy = (field: string) => field.startsWith("networkPolicy.");

/** As of `--config <(…)`. Read once more it is empty, or keeps its reader waiting. */
async function isPipe(path: string): Promise<boolean> {
  try {
    return (await Deno.stat(path)).isFifo === true;
  } catch {
    return false;
  }
}

/** Only what has changed: the verbosity may have been set at /debug/flags/v meanwhile. */
function takeUpLogging(
  logger: AdjustableLogger,
  { logging: { verbosity, vmodule } }: KubeProxyConfiguration,
  fields: readonly string[],
): void {
  if (fields.includes("logging.verbosity")) logger.setVerbosity(verbosity);
  if (fields.includes("logging.vmodule")) logger.setVmodule(vmodule);
}
