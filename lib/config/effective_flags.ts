import { formatDuration } from "../api/duration.ts";
import { valueAt } from "./configuration.ts";
import type { Flag } from "./flag.ts";
import { FLAG_ROWS, type FlagValues } from "./flags.ts";
import type { LoadedConfiguration } from "./load.ts";
import type { Logger } from "../log/logger.ts";
import { isSecretName, REDACTED } from "../log/redact.ts";

interface EffectiveConfiguration {
  /** The flags on the command line. */
  readonly flags: FlagValues;
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
}

/** All flags with their effective values, which a file or a default may have set. Secrets are redacted. */
function* effectiveFlags(
  effective: EffectiveConfiguration,
): Generator<readonly [name: string, value: unknown], void, void> {
  for (const flag of FLAG_ROWS) {
    if (flag.retired) continue;
    yield [flag.name, isSecretName(flag.name) ? REDACTED : valueOf(flag, effective)];
  }
}

/** All flags with their effective values as text, lists separated by commas. */
export function effectiveFlagTexts(
  effective: EffectiveConfiguration,
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    [...effectiveFlags(effective)].map(([name, value]) => [name, textOf(value)]),
  );
}

function valueOf(
  { name, type, field, default: fallback = "" }: Flag,
  { flags, configuration }: EffectiveConfiguration,
): unknown {
  const given: Readonly<Record<string, unknown>> = flags;
  const value = field === undefined ? given[name] ?? fallback : valueAt(configuration.proxy, field);
  return type === "duration" && typeof value === "number" ? formatDuration(value) : value;
}

function textOf(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (Array.isArray(value)) return value.map(textOf).join(",");
  if (typeof value !== "object") return String(value);
  const { filePattern, verbosity, ...gates } = {
    filePattern: undefined,
    verbosity: undefined,
    ...value,
  };
  if (filePattern !== undefined) return `${filePattern}=${verbosity}`;
  return Object.entries(gates).map(([name, each]) => `${name}=${each}`).join(",");
}

/** Logs each flag and each field of the configuration at `-v 1`. One line for all would be cut. */
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
