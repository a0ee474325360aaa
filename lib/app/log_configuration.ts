/**
 * What the process runs with, for the log at `-v 1`: every flag, and every field of the configuration.
 *
 * @module
 */
import { formatDuration } from "../config/duration.ts";
import type { Flag } from "../config/flag.ts";
import { FLAG_ROWS, type FlagValues } from "../config/flags.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { Logger } from "../log/logger.ts";
import { isSecretName, REDACTED } from "../log/redact.ts";

/** What is told. */
export interface EffectiveConfiguration {
  /** Flags as they were given. */
  readonly flags: FlagValues;
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
}

/**
 * Logs one line for each flag, with the value that counts: also a flag that was not given has one,
 * and a file may have replaced one that was. Then one line for each field of the configuration, since
 * not all have flags. One line for all would be cut.
 */
export function logConfiguration(logger: Logger, effective: EffectiveConfiguration): void {
  if (!logger.enabled(1)) return;
  for (const flag of FLAG_ROWS) {
    if (flag.retired) continue;
    const value = isSecretName(flag.name) ? REDACTED : valueOf(flag, effective);
    logger.verbose(1, "Flag", { flag: flag.name, value });
  }
  const { proxy, relay } = effective.configuration;
  for (const [field, value] of [...Object.entries(proxy), ...Object.entries(relay)]) {
    if (!isSecretName(field)) logger.verbose(1, "Configuration", { field, value });
  }
}

function valueOf(
  { name, type, field, default: fallback = "" }: Flag,
  { flags, configuration }: EffectiveConfiguration,
): unknown {
  const given: Readonly<Record<string, unknown>> = flags;
  const value = field === undefined
    ? given[name] ?? fallback
    : field.split(".").reduce<unknown>(fieldOf, configuration.proxy);
  return type === "duration" && typeof value === "number" ? formatDuration(value) : value;
}

function fieldOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null
    ? Object.entries(value).find(([key]) => key === name)?.[1]
    : undefined;
}
