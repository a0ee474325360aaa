import { effectiveConfiguration } from "../../../config/effective_configuration.ts";
import { CommandError } from "../../../os/command_runner.ts";
import { readOpenFiles } from "../../../os/open_files.ts";
import type { ActiveCommand, CommandContext } from "./command.ts";
import { chooseFamilies } from "../../run/choose_families.ts";
import { chooseMode, commonFamilies } from "../../run/choose_mode.ts";
import type { Dependencies } from "../../dependencies.ts";
import { logConfiguration } from "../log_configuration.ts";
import { runInitOnly } from "../../run/run_init_only.ts";
import { runProxy } from "../../run/run_proxy.ts";
import { warnOfToolsPath } from "../warn_of_tools_path.ts";
import { admitStart, excludedServers, showTakeover } from "../../handover/takeover.ts";
import { versionText } from "../version.ts";
import { answerWhile } from "../../serving/waiting_servers.ts";

const FAILED = 1;

/** Serves Services. */
export const runCommand: ActiveCommand = {
  name: "run",
  summary: "serve Services (the default without a verb)",
  examples: ["kube-relay --manifests /etc/kube-relay/manifests"],
  serves: true,
  async run(dependencies, { endInOrder, ...context }) {
    const running = { ...context, signal: endInOrder() };
    try {
      return await serve(dependencies, running);
    } catch (error) {
      // Told to end while it still looked at the machine: a service manager would call 1 a failure.
      if (!isGivenUp(error, running)) throw error;
      context.logger.info("Stopped");
      return 0;
    }
  },
};

/** What a run is told, and by which signal to end. */
type RunContext = Omit<CommandContext, "endInOrder"> & { readonly signal: AbortSignal };

async function serve(
  dependencies: Dependencies,
  { flags, configuration, logger, signal }: RunContext,
): Promise<number> {
  const { relay, notices } = configuration;
  dependencies.takeStrayOutput?.(logger);
  dependencies.uncaught?.take(logger);
  if (!relay.initOnly) await admitStart({ ...dependencies, logger }, { relay, signal });
  warnOfToolsPath(dependencies, { logger, toolsPath: relay.toolsPath });
  const choose = () => chooseMode({ ...dependencies, logger }, configuration.mode, { signal });
  const waiting = { proxy: configuration.proxy, phase: "choosing the mode", signal };
  const endsSoon = relay.initOnly || relay.dryRun;
  const openFiles = endsSoon ? undefined : await readOpenFiles({ ...dependencies, logger });
  const edges = { ...dependencies, logger, ...(openFiles && { openFiles }) };
  const chosen = endsSoon ? await choose() : await answerWhile(edges, waiting, choose);
  const { mode } = chosen;
  if (relay.takeover && relay.dryRun) {
    const excludeCidrs = excludedServers(configuration.proxy);
    await showTakeover(dependencies, { mode, excludeCidrs, signal });
    return 0;
  }
  logger.info("Starting", {
    version: versionText(),
    mode,
    source: relay.manifests.length > 0 ? relay.manifests.join(",") : "API server",
  });
  for (const { level, message, fields } of notices) logger[level](message, fields);
  logConfiguration(logger, { flags, configuration });
  const families = commonFamilies(chosen, await chooseFamilies({ ...dependencies, logger }));
  const proxy = effectiveConfiguration(configuration.proxy, mode);
  const requestedMode = configuration.mode;
  const run = { ...configuration, proxy, mode, requestedMode, families, flags };
  if (relay.initOnly) {
    await runInitOnly({ ...dependencies, logger }, run);
    return 0;
  }
  try {
    await runProxy(edges, run, signal);
  } catch (error) {
    if (isGivenUp(error, { configuration, signal })) throw error;
    // Whoever reads the standard error of a process that has begun to serve reads a log.
    logger.error("Exiting after an error", { error });
    return FAILED;
  }
  logger.info("Stopped");
  return 0;
}

/** Whether the error only says so. What `--init-only` was to do has not been done then. */
function isGivenUp(
  error: unknown,
  { configuration: { relay }, signal }: Pick<RunContext, "configuration" | "signal">,
): boolean {
  if (!signal.aborted || relay.initOnly) return false;
  return error === signal.reason || (error instanceof CommandError && error.kind === "aborted");
}
