/**
 * Loads flags and a file into one frozen configuration.
 *
 * @module
 */
import { didYouMean } from "../api/nearest_name.ts";
import { formatHostPort } from "../net/port.ts";
import { BACKEND_MODES, type BackendMode } from "../proxy/backend.ts";
import type { KubeProxyConfiguration } from "./configuration.ts";
import { ConfigurationError } from "./configuration_error.ts";
import type { ConfigurationFile } from "./configuration_file.ts";
import { flagConfiguration, isDefaultBlock } from "./configuration.ts";
import type { UserContext } from "./default_paths.ts";
import { checkFeatureGates } from "./feature_gates.ts";
import { typedFlag, type VerbosityPattern } from "./flag.ts";
import { findFlag, FLAG_ROWS, type FlagValues } from "./flags.ts";
import { HEALTHZ_PORT, METRICS_PORT, tryParseListenAddress } from "./listen_address.ts";
import { givenFlags } from "./parse_flags.ts";
import { type RelayOptions, relayOptionsOf, validateSources } from "./relay_options.ts";
import { validateConfiguration } from "./validate.ts";

/**
 * The requested mode: a mode; `auto`, the best mode that the host supports; or `default`, which
 * means upstream's iptables, and `auto` if the host does not support that.
 */
export type ModeRequest = BackendMode | "auto" | "default";

/** A message to log once the logger exists: a constant sentence and its fields. */
interface ConfigurationNotice {
  readonly level: "info" | "warn";
  readonly message: string;
  readonly fields: Readonly<Record<string, string>>;
}

export type { RelayOptions } from "./relay_options.ts";

/** The explicit configuration with its defaults. Deeply frozen. */
export interface LoadedConfiguration {
  readonly proxy: KubeProxyConfiguration;
  readonly relay: RelayOptions;
  /** The requested mode; the host decides what it resolves to (`lib/app/run/choose_mode.ts`). */
  readonly mode: ModeRequest;
  readonly notices: readonly ConfigurationNotice[];
}

/** Dependencies of loading. */
export interface LoadDependencies extends UserContext {
  /** @default {readConfigurationText} */
  readonly readTextFile?: (path: string) => Promise<string>;
}

/**
 * Loads the configuration. With `--config`, the file applies and most of kube-proxy's flags do not,
 * as upstream; a notice names each ignored flag. Throws a {@linkcode ConfigurationError} with all
 * problems.
 */
export async function loadConfiguration(
  dependencies: LoadDependencies,
  { flags }: { readonly flags: FlagValues },
): Promise<LoadedConfiguration> {
  const file = flags.config === undefined ? undefined : await readFile(dependencies, flags.config);
  if (file && !file.configuration) throw new ConfigurationError(file.problems);
  const notices: ConfigurationNotice[] = (file?.warnings ?? []).map((fields) => ({
    level: "warn",
    message: "Part of the configuration file is ignored",
    fields,
  }));
  const base = file?.configuration ?? flagConfiguration();
  const proxy = completeConfiguration(overlayFlags(base, flags, notices), flags);
  notices.push(...proxyNotices(proxy));
  const problems = [...file?.problems ?? []];
  for (const { path, message } of validateConfiguration(proxy)) {
    problems.push(`${sourceOf(path, flags, file)}: ${message} (${upstreamPath(path)})`);
  }
  const modes: readonly ModeRequest[] = [...BACKEND_MODES, "auto"];
  // Modes are case-sensitive, as upstream.
  const mode = proxy.mode === "" ? "default" : modes.find((known) => known === proxy.mode);
  if (mode === undefined) {
    problems.push(
      `${
        sourceOf("mode", flags, file)
      }: Cannot run in mode '${proxy.mode}': there is no such mode, ` +
        `only ${modes.join(", ")}${didYouMean(proxy.mode, modes)}`,
    );
  }
  const relay = relayOptionsOf(dependencies, { flags, problems });
  problems.push(...validateSources(flags, proxy, relay.controlSocket));
  if (problems.length > 0 || mode === undefined) throw new ConfigurationError(problems);
  // Manifests alone are a first try, on a host that needs no preparation.
  const isTry = mode === "default" && relay.manifests.length > 0;
  if (isTry) {
    const message = "No mode is set, which with --manifests means userspace";
    const cure = "name another one, or auto for the best one, with --proxy-mode";
    notices.push({ level: "info", message, fields: { cure } });
  }
  return deepFreeze({ proxy, relay, mode: isTry ? "userspace" : mode, notices });
}

async function readFile(
  { readTextFile }: LoadDependencies,
  path: string,
): Promise<ConfigurationFile> {
  // The reader of YAML is loaded only for a file.
  const file = await import("./configuration_file.ts");
  readTextFile ??= file.readConfigurationText;
  return await file.readConfigurationFile({ readTextFile }, path);
}

/** Returns the configuration with the flags that apply. With a file, most of them do not. */
function overlayFlags(
  base: KubeProxyConfiguration,
  flags: FlagValues,
  notices: ConfigurationNotice[],
): KubeProxyConfiguration {
  const configuration = structuredClone(base);
  for (const name of givenFlags(flags)) {
    const flag = findFlag(name)!;
    const { field, alsoField, deprecated, retired, help, withConfig } = flag;
    const isIgnored = flags.config !== undefined && withConfig === "ignored";
    const warn = (message: string, fields: ConfigurationNotice["fields"]) =>
      notices.push({ level: "warn", message, fields: { flag: typedFlag(flag), ...fields } });
    if (isIgnored) {
      const message = "Flag is ignored, since --config is given; set its field in the file";
      warn(message, { ...(field && { field }) });
      continue;
    }
    if (retired) warn("Flag has no effect", { reason: help });
    else if (deprecated !== undefined) warn("Flag is deprecated", { reason: deprecated });
    const value = flags[name];
    if (field === undefined || value === "" && EMPTY_IS_ABSENT.test(field)) continue;
    // The first pattern that matches wins, so flags come first.
    const merged = withConfig === "merged"
      ? [...value as readonly VerbosityPattern[], ...configuration.logging.vmodule]
      : value;
    for (const path of [field, ...(alsoField === undefined ? [] : [alsoField])]) {
      setField(configuration, path.split("."), merged);
    }
  }
  return configuration;
}

/** Fields that an empty flag does not change, as with upstream's types of flags. */
const EMPTY_IS_ABSENT = /^(bindAddress|healthzBindAddress|metricsBindAddress|detectLocalMode)$/;

function setField(target: object, [name, ...rest]: readonly string[], value: unknown): void {
  const fields = target as Record<string, unknown>;
  if (rest.length === 0) fields[name!] = value;
  else setField(fields[name!] as object, rest, value);
}

/** The blocks that are off by default, and how their notices name them. */
const EXTENSIONS = [
  { block: "networkPolicy", flag: "--network-policy", what: "NetworkPolicy" },
  { block: "routing", flag: "--routing", what: "routing" },
] as const;

/** Returns notices of settings that are accepted and have no effect. */
function proxyNotices(configuration: KubeProxyConfiguration): ConfigurationNotice[] {
  const { featureGates, portRange } = configuration;
  const notices: ConfigurationNotice[] = checkFeatureGates(featureGates).ignored
    .map(({ name, message: reason }) => ({
      level: "warn",
      message: "Feature gate has no effect",
      fields: { gate: name, reason },
    }));
  if (portRange !== "") {
    const reason = "it belonged to kube-proxy's old userspace mode; remove it";
    const fields = { field: "portRange", reason };
    notices.push({ level: "warn", message: "Configuration field has no effect", fields });
  }
  for (const { block, flag, what } of EXTENSIONS) {
    if (configuration[block].enabled || isDefaultBlock(configuration, block)) continue;
    const reason = `it is off; add ${flag} or set ${block}.enabled`;
    notices.push({
      level: "warn",
      message: `Settings of ${what} have no effect`,
      fields: { reason },
    });
  }
  return notices;
}

/** Returns where a field was set: the flag, or the file with line and column. */
function sourceOf(
  path: string,
  flags: FlagValues,
  file: ConfigurationFile | undefined,
): string {
  const steps = path.split(".").map((step) => /^\d+$/.test(step) ? Number(step) : step);
  const field = steps.filter((step) => typeof step === "string").join(".");
  const flag = FLAG_ROWS.find((row) =>
    flags[row.name] !== undefined &&
    [row.field, row.alsoField].some((own) => own && `${field}.`.startsWith(`${own}.`))
  );
  if (flag && (!file || flag.withConfig !== "ignored")) return typedFlag(flag);
  return file ? file.describe(steps) : path;
}

function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null) {
    for (const inner of Object.values(value)) deepFreeze(inner);
    Object.freeze(value);
  }
  return value;
}

/**
 * Fills in defaults that depend on other fields, and replaces alternative spellings. kube-proxy reads its
 * two port flags only if flags alone configure a run. A port of 0 turns the server off; upstream does so
 * for health, and for metrics exits with an error about the empty address.
 */
function completeConfiguration(
  configuration: KubeProxyConfiguration,
  flags: FlagValues,
): KubeProxyConfiguration {
  const { bindAddress, healthzBindAddress, metricsBindAddress, hostnameOverride } = configuration;
  const [any, loopback] = bindAddress.includes(":") ? ["::", "::1"] : ["0.0.0.0", "127.0.0.1"];
  const isByFlags = flags.config === undefined && flags["write-config-to"] === undefined;
  const healthz = isByFlags ? flags["healthz-port"] : undefined;
  const metrics = isByFlags ? flags["metrics-port"] : undefined;
  return {
    ...configuration,
    // A value of blanks alone stays as it is, so that validation reports it.
    hostnameOverride: hostnameOverride.trim().toLowerCase() || hostnameOverride,
    healthzBindAddress: withPort(healthzBindAddress || any, healthz ?? HEALTHZ_PORT),
    metricsBindAddress: withPort(metricsBindAddress || loopback, metrics ?? METRICS_PORT),
  };
}

function withPort(text: string, port: number): string {
  if (port === 0) return "";
  const address = tryParseListenAddress(text, port);
  return address ? formatHostPort(address.hostname, address.port) : text;
}

/** Upstream's messages name blocks by their Go types. */
const BLOCKS: Readonly<Record<string, string>> = {
  iptables: "KubeProxyIPTablesConfiguration",
  ipvs: "KubeProxyIPVSConfiguration",
  nftables: "KubeProxyNFTablesConfiguration",
  conntrack: "KubeProxyConntrackConfiguration",
};

/** Go writes abbreviations in capitals. */
const ABBREVIATIONS = /^(tcp|udp|oom)(?=[A-Z])/;

/**
 * Returns the path in upstream's messages, so that users can search for them:
 * `KubeProxyConfiguration.KubeProxyIPTablesConfiguration.MasqueradeBit` for
 * `iptables.masqueradeBit`.
 */
export function upstreamPath(path: string): string {
  // Maps, blocks of other components and the extensions keep the names of the file.
  if (/^(featureGates|logging|networkPolicy|routing)\b/.test(path)) {
    return `KubeProxyConfiguration.${path}`;
  }
  const steps = path.split(".").map((step, index) => {
    if (/^\d+$/.test(step)) return `[${step}]`;
    const block = index === 0 ? BLOCKS[step] : undefined;
    return `.${block ?? goName(step)}`;
  });
  return `KubeProxyConfiguration${steps.join("")}`;
}

function goName(name: string): string {
  const spelt = name.replace(ABBREVIATIONS, (letters) => letters.toUpperCase());
  return spelt.charAt(0).toUpperCase() + spelt.slice(1);
}
