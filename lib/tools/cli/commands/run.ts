import { effectiveConfiguration } from "../../../config/configuration.ts";
import type { KubeAuth } from "../../../kube/kube_auth.ts";
import type { Logger } from "../../../log/logger.ts";
import { CommandError } from "../../../os/command_runner.ts";
import { readOpenFiles } from "../../../os/open_files.ts";
import { toolsPathProblem } from "../../../os/tools_path.ts";
import type { BackendTable, Dependencies, RunConfiguration } from "../../../app/dependencies.ts";
import { admitStart, excludedServers } from "../../../app/handover.ts";
import { showTakeover } from "./cleanup.ts";
import { chooseFamilies, chooseMode, commonFamilies } from "../../../app/run/choose_mode.ts";
import { admitManifests, loadConfiguredAuth } from "../../../app/run/object_source.ts";
import { HostSettings } from "../../../app/run/host_settings.ts";
import { idleBackendOptions } from "../../../app/run/plan_settings.ts";
import { runProxy } from "../../../app/run/run_proxy.ts";
import { answerWhile } from "../../../app/serving/proxy_servers.ts";
import { logConfiguration } from "../../../config/effective_flags.ts";
import { ToolsOfRun } from "../../control/run_tools.ts";
import { versionText } from "../../../config/version.ts";
import type { CommandContext } from "./command.ts";

const FAILED = 1;

/** Serves Services until a signal ends it. The default verb. */
export async function runVerb(
  dependencies: Dependencies,
  { endInOrder, ...context }: CommandContext,
): Promise<number> {
  const running = { ...context, signal: endInOrder() };
  try {
    return await serve(dependencies, running);
  } catch (error) {
    // Stopped before it served: for a service manager, status 1 would be a failure.
    if (!isStopped(error, running)) throw error;
    context.logger.info("Stopped");
    return 0;
  }
}

type RunContext = Omit<CommandContext, "endInOrder"> & { readonly signal: AbortSignal };

async function serve(
  dependencies: Dependencies,
  { flags, configuration, logger, signal }: RunContext,
): Promise<number> {
  const { relay } = configuration;
  dependencies.takeStrayOutput?.(logger);
  dependencies.uncaught?.take(logger);
  const endsSoon = relay.initOnly || relay.dryRun;
  const [openFiles] = await Promise.all([
    endsSoon ? undefined : readOpenFiles({ ...dependencies, logger }),
    relay.initOnly ? undefined : admitStart({ ...dependencies, logger }, relay, signal),
  ]);
  if (!endsSoon && relay.manifests.length > 0) await admitManifests({ logger }, relay.manifests);
  const pathProblem = toolsPathProblem(relay.toolsPath, dependencies.process.env("PATH"));
  if (pathProblem) logger.warn("The folders of --tools-path are not searched", { ...pathProblem });
  const checks = { signal, isForRun: !endsSoon };
  const choose = () =>
    Promise.all([
      chooseMode({ ...dependencies, logger }, configuration.mode, checks),
      chooseFamilies({ ...dependencies, logger }),
    ]);
  const waiting = { proxy: configuration.proxy, phase: "choosing the mode", signal };
  // Before anything asks the tools: some of their objects stay, such as empty tables of iptables.
  const readsServer = !endsSoon && relay.manifests.length === 0;
  let auth: KubeAuth | undefined;
  try {
    if (readsServer) {
      auth = await loadConfiguredAuth({ ...dependencies, logger }, configuration);
    }
  } catch (error) {
    return exitAfter(error, { configuration, logger, signal });
  }
  const edges = { ...dependencies, logger, auth, ...(openFiles && { openFiles }) };
  const [chosen, ofHost] = endsSoon ? await choose() : await answerWhile(edges, waiting, choose);
  const { mode } = chosen;
  if (relay.takeover && relay.dryRun) {
    const excludeCidrs = excludedServers(configuration.proxy);
    const networkPolicy = configuration.proxy.networkPolicy.enabled;
    await showTakeover(dependencies, { mode, networkPolicy, excludeCidrs, signal });
    return 0;
  }
  logger.info("Starting", {
    version: versionText(),
    mode,
    source: relay.manifests.length > 0 ? relay.manifests.join(",") : "API server",
  });
  for (const { level, message, fields } of configuration.notices) logger[level](message, fields);
  logConfiguration(logger, { flags, configuration });
  const families = commonFamilies(chosen, ofHost);
  const proxy = effectiveConfiguration(configuration.proxy, mode);
  const requestedMode = configuration.mode;
  const run = { ...configuration, proxy, mode, requestedMode, families, flags };
  if (relay.initOnly) {
    await runInitOnly({ ...dependencies, logger }, run);
    return 0;
  }
  try {
    await runProxy({ ...edges, createTools: (own) => new ToolsOfRun(own) }, run, signal);
  } catch (error) {
    return exitAfter(error, { configuration, logger, signal });
  }
  logger.info("Stopped");
  return 0;
}

/** The standard error of a serving process is a log. Throws the error of a run that was stopped. */
function exitAfter(error: unknown, context: Omit<RunContext, "flags">): number {
  if (isStopped(error, context)) throw error;
  context.logger.error("Exiting after an error", { error });
  return FAILED;
}

/** Whether an error only means that the run was stopped. A stopped `--init-only` has failed. */
function isStopped(
  error: unknown,
  { configuration: { relay }, signal }: Pick<RunContext, "configuration" | "signal">,
): boolean {
  if (!signal.aborted || relay.initOnly) return false;
  return error === signal.reason || (error instanceof CommandError && error.kind === "aborted");
}

/**
 * `--init-only`: applies the kernel settings that the mode needs, so that the proxy itself can run
 * with CAP_NET_ADMIN alone. Unlike upstream, it asks no API server. A refused setting is logged and is no failure,
 * because the later process continues without it.
 */
export async function runInitOnly(
  dependencies: Dependencies & { readonly logger: Logger },
  { proxy, relay, mode, families }: RunConfiguration,
): Promise<void> {
  const { logger } = dependencies;
  const createBackend = (dependencies.backends as Required<BackendTable>)[mode];
  const backends = families.map((family) =>
    createBackend(dependencies, idleBackendOptions({ proxy, relay }, family))
  );
  const settings = new HostSettings(dependencies, mode, backends, () => proxy);
  // No later step loads a module.
  await settings.apply({ isFinal: true });
  const refused = settings.outcomes.filter(({ state }) => state === "refused").length;
  logger.info("Set up the machine", { mode, settings: settings.outcomes.length, refused });
}
