/**
 * The verb that is meant when none is given: serve Services until a signal comes.
 *
 * @module
 */
import type { ActiveCommand } from "./command.ts";
import { chooseMode } from "../choose_mode.ts";
import { logConfiguration } from "../log_configuration.ts";
import { runProxy } from "../run_proxy.ts";
import { versionText } from "../version.ts";

/** Serves Services. */
export const runCommand: ActiveCommand = {
  name: "run",
  summary: "serve Services (what is done when no verb is given)",
  async run(dependencies, { flags, configuration, logger, signal }) {
    const { relay, notices } = configuration;
    const mode = await chooseMode({ ...dependencies, logger }, configuration.mode);
    logger.info("Starting", {
      version: versionText(),
      mode,
      source: relay.manifests.length > 0 ? relay.manifests.join(",") : "API server",
    });
    for (const { level, message, fields } of notices) logger[level](message, fields);
    logConfiguration(logger, { flags, configuration });
    await runProxy({ ...dependencies, logger }, { ...configuration, mode, flags }, signal);
    logger.info("Stopped");
    return 0;
  },
};
