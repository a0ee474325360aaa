import type { Logger } from "../../log/logger.ts";
import { isSecretName } from "../../log/redact.ts";
import { type EffectiveConfiguration, effectiveFlags } from "./effective_flags.ts";

/**
 * Logs one line for each flag, with the value that counts. Then one line for each field of the configuration, since
 * not all have flags. One line for all would be cut.
 */
export function logConfiguration(logger: Logger, effective: EffectiveConfiguration): void {
  if (!logger.enabled(1)) return;
  for (const [flag, value] of effectiveFlags(effective)) {
    logger.verbose(1, "Flag", { flag, value });
  }
  const { proxy, relay } = effective.configuration;
  for (const [field, value] of [...Object.entries(proxy), ...Object.entries(relay)]) {
    if (!isSecretName(field)) logger.verbose(1, "Configuration", { field, value });
  }
}
