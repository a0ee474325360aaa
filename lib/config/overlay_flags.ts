/**
 * Applies flags to a configuration with the precedence of kube-proxy (its `--config` rules).
 *
 * @module
 */
import type { KubeProxyConfiguration } from "./configuration.ts";
import { type Flag, typedFlag, type VerbosityPattern } from "./flag.ts";
import { findFlag, type FlagName, type FlagValues } from "./flags.ts";
import { givenFlags } from "./parse_flags.ts";

/** A message to log once the logger exists: a constant sentence and its fields. */
export interface ConfigurationNotice {
  readonly level: "info" | "warn";
  readonly message: string;
  readonly fields: Readonly<Record<string, string>>;
}

/** The flags, and whether `--config` is among them. */
interface OverlayOptions {
  readonly flags: FlagValues;
  readonly hasFile: boolean;
  /** Receives notices of flags that are ignored, deprecated or without effect. */
  readonly notices: ConfigurationNotice[];
}

/** Returns the configuration with the flags that apply. With a file, most of them do not. */
export function overlayFlags(
  base: KubeProxyConfiguration,
  { flags, hasFile, notices }: OverlayOptions,
): KubeProxyConfiguration {
  const configuration = structuredClone(base);
  for (const name of givenFlags(flags)) {
    const flag = findFlag(name)!;
    const ignored = hasFile && flag.withConfig === "ignored";
    const notice = noticeOf(flag, ignored);
    if (notice) notices.push(notice);
    if (!ignored) setFields(configuration, flag, flags[name]);
  }
  return configuration;
}

function noticeOf(flag: Flag, ignored: boolean): ConfigurationNotice | undefined {
  const { field, deprecated, retired, help } = flag;
  const typed = typedFlag(flag);
  if (ignored) {
    const message = "Flag is ignored, since --config is given; set its field in the file";
    return { level: "warn", message, fields: { flag: typed, ...(field && { field }) } };
  }
  if (retired) {
    return { level: "warn", message: "Flag has no effect", fields: { flag: typed, reason: help } };
  }
  if (deprecated === undefined) return undefined;
  const message = "Flag is deprecated";
  return { level: "warn", message, fields: { flag: typed, reason: deprecated } };
}

/** Fields that an empty flag does not change, as with upstream's types of flags. */
const EMPTY_IS_ABSENT = /^(bindAddress|healthzBindAddress|metricsBindAddress|detectLocalMode)$/;

function setFields(
  configuration: KubeProxyConfiguration,
  { field, alsoField, withConfig }: Flag,
  value: FlagValues[FlagName],
): void {
  if (field === undefined || value === "" && EMPTY_IS_ABSENT.test(field)) return;
  if (withConfig === "merged") {
    // The first pattern that matches wins, so flags come first.
    const merged = [...value as readonly VerbosityPattern[], ...configuration.logging.vmodule];
    setField(configuration, { path: field.split("."), value: merged });
    return;
  }
  for (const path of alsoField === undefined ? [field] : [field, alsoField]) {
    setField(configuration, { path: path.split("."), value });
  }
}

function setField(
  target: object,
  { path, value }: { readonly path: readonly string[]; readonly value: unknown },
): void {
  const [name, ...rest] = path;
  const fields = target as Record<string, unknown>;
  if (rest.length === 0) fields[name!] = value;
  else setField(fields[name!] as object, { path: rest, value });
}
