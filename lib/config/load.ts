/**
 * Loads flags and a file into one frozen configuration.
 *
 * @module
 */
import { formatHostPort } from "../net/port.ts";
import type { KubeProxyConfiguration } from "./configuration.ts";
import { type ConfigurationFile, readConfigurationFile } from "./configuration_file.ts";
import { flagConfiguration, isDefaultBlock } from "./configuration.ts";
import type { UserContext } from "./default_paths.ts";
import { checkFeatureGates } from "./feature_gates.ts";
import { typedFlag } from "./flag.ts";
import { FLAG_ROWS, type FlagValues } from "./flags.ts";
import { HEALTHZ_PORT, METRICS_PORT, tryParseListenAddress } from "./listen_address.ts";
import { type ModeRequest, parseModeRequest } from "./mode_request.ts";
import { type ConfigurationNotice, overlayFlags } from "./overlay_flags.ts";
import { type RelayOptions, relayOptionsOf } from "./relay_options.ts";
import { validateConfiguration } from "./validate.ts";
import { validateSources } from "./validate_sources.ts";

export type { ConfigurationNotice } from "./overlay_flags.ts";
export type { RelayOptions } from "./relay_options.ts";

/** The explicit configuration with its defaults. Deeply frozen. */
export interface LoadedConfiguration {
  readonly proxy: KubeProxyConfiguration;
  readonly relay: RelayOptions;
  /** The requested mode; the host decides what it resolves to (`lib/app/run/choose_mode.ts`). */
  readonly mode: ModeRequest;
  readonly notices: readonly ConfigurationNotice[];
}

/** An invalid configuration. The message has one line for each problem. */
export class ConfigurationError extends Error {
  override name = "ConfigurationError";
  constructor(readonly problems: readonly string[]) {
    super(problems.join("\n"));
  }
}

/** Dependencies of loading. */
export interface LoadDependencies extends UserContext {
  readonly readTextFile: (path: string) => Promise<string>;
}

/** The command line. */
interface LoadOptions {
  readonly flags: FlagValues;
}

/**
 * Loads the configuration. With `--config`, the file applies and most of kube-proxy's flags do not,
 * as upstream; a notice names each ignored flag. Throws a {@linkcode ConfigurationError} with all
 * problems.
 */
export async function loadConfiguration(
  dependencies: LoadDependencies,
  { flags }: LoadOptions,
): Promise<LoadedConfiguration> {
  const file = flags.config === undefined
    ? undefined
    : await readConfigurationFile(dependencies, flags.config);
  if (file?.configuration === undefined && file) throw new ConfigurationError(file.problems);
  const notices = fileNotices(file);
  const base = file?.configuration ?? flagConfiguration();
  const overlaid = overlayFlags(base, { flags, hasFile: file !== undefined, notices });
  const proxy = completeConfiguration(overlaid, serverPorts(flags));
  notices.push(...proxyNotices(proxy));
  const problems = [...file?.problems ?? []];
  for (const { path, message } of validateConfiguration(proxy)) {
    const upstream = upstreamPath(path);
    problems.push(`${sourceOf(path, { flags, file })}: ${message} (${upstream})`);
  }
  const mode = parseModeRequest(proxy.mode);
  if ("problem" in mode) problems.push(`${sourceOf("mode", { flags, file })}: ${mode.problem}`);
  const relay = relayOptionsOf(dependencies, { flags, problems });
  const { kubeconfig } = proxy.clientConnection;
  const { controlSocket } = relay;
  const policyKubeconfig = proxy.networkPolicy.kubeconfig;
  problems.push(...validateSources(flags, {
    kubeconfig,
    policyKubeconfig,
    routingKubeconfig: proxy.routing.kubeconfig,
    controlSocket,
  }));
  if (problems.length > 0 || "problem" in mode) throw new ConfigurationError(problems);
  return deepFreeze({ proxy, relay, mode: modeOf(mode.mode, relay), notices });
}

function fileNotices(file: ConfigurationFile | undefined): ConfigurationNotice[] {
  const message = "Part of the configuration file is ignored";
  return (file?.warnings ?? []).map((fields) => ({ level: "warn", message, fields }));
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

/** kube-proxy reads its two port flags only if flags alone configure a run. */
function serverPorts(flags: FlagValues) {
  if (flags.config !== undefined || flags["write-config-to"] !== undefined) return {};
  return { healthz: flags["healthz-port"], metrics: flags["metrics-port"] };
}

/** Manifests alone are a first try, on a host that needs no preparation. */
function modeOf(request: ModeRequest, { manifests }: RelayOptions): ModeRequest {
  return request === "default" && manifests.length > 0 ? "userspace" : request;
}

interface Sources {
  readonly flags: FlagValues;
  readonly file: ConfigurationFile | undefined;
}

/** Returns where a field was set: the flag, or the file with line and column. */
function sourceOf(path: string, { flags, file }: Sources): string {
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

/** The ports of kube-proxy's two deprecated flags; `undefined` if absent. */
interface ServerPorts {
  readonly healthz?: number | undefined;
  readonly metrics?: number | undefined;
}

/**
 * Fills in defaults that depend on other fields, and replaces alternative spellings. A port of 0
 * turns the server off; upstream does so for health, and for metrics exits with an error about the
 * empty address.
 */
function completeConfiguration(
  configuration: KubeProxyConfiguration,
  { healthz, metrics }: ServerPorts,
): KubeProxyConfiguration {
  const { bindAddress, healthzBindAddress, metricsBindAddress, hostnameOverride } = configuration;
  const [any, loopback] = bindAddress.includes(":") ? ["::", "::1"] : ["0.0.0.0", "127.0.0.1"];
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
