import { formatDuration } from "../../config/duration.ts";
import type { Flag } from "../../config/flag.ts";
import { FLAG_ROWS, type FlagValues } from "../../config/flags.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { isSecretName, REDACTED } from "../../log/redact.ts";

/** Where values come from. */
export interface EffectiveConfiguration {
  /** Flags as they were given. */
  readonly flags: FlagValues;
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
}

/**
 * Every flag that has an effect, with the value that counts: also a flag that was not given has one,
 * and a file may have replaced one that was. Secrets are taken out.
 */
export function* effectiveFlags(
  effective: EffectiveConfiguration,
): Generator<readonly [name: string, value: unknown], void, void> {
  for (const flag of FLAG_ROWS) {
    if (flag.retired) continue;
    yield [flag.name, isSecretName(flag.name) ? REDACTED : valueOf(flag, effective)];
  }
}

/** The same as text, lists with commas between. */
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
