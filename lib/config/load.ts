/**
 * From flags and a file to one frozen configuration.
 *
 * @module
 */
import { formatHostPort } from "../net/port.ts";
import type { KubeProxyConfiguration } from "./configuration.ts";
import { type ConfigurationFile, readConfigurationFile } from "./configuration_file.ts";
import type { UserContext } from "./default_paths.ts";
import { checkFeatureGates } from "./feature_gates.ts";
import { typedFlag } from "./flag.ts";
import { flagConfiguration } from "./flag_configuration.ts";
import { FLAG_ROWS, type FlagValues } from "./flags.ts";
import { HEALTHZ_PORT, METRICS_PORT, tryParseListenAddress } from "./listen_address.ts";
import { type ModeRequest, parseModeRequest } from "./mode_request.ts";
import type { ConfigurationNotice } from "./notice.ts";
import { isDefaultNetworkPolicy } from "./configuration_schema.ts";
import { overlayFlags } from "./overlay_flags.ts";
import { type RelayOptions, relayOptionsOf } from "./relay_options.ts";
import { upstreamPath } from "./upstream_path.ts";
import { validateConfiguration } from "./validate.ts";
import { validateSources } from "./validate_sources.ts";

export type { ConfigurationNotice } from "./notice.ts";
export type { RelayOptions } from "./relay_options.ts";

/** Everything that was said, and what was not filled in. Deeply frozen. */
export interface LoadedConfiguration {
  readonly proxy: KubeProxyConfiguration;
  readonly relay: RelayOptions;
  /** What was asked for; what it comes to depends on the host (`lib/app/run/choose_mode.ts`). */
  readonly mode: ModeRequest;
  readonly notices: readonly ConfigurationNotice[];
}

/** The configuration is wrong. The message has one line for each problem. */
export class ConfigurationError extends Error {
  override name = "ConfigurationError";
  constructor(readonly problems: readonly string[]) {
    super(problems.join("\n"));
  }
}

/** What loading needs of the machine. */
export interface LoadDependencies extends UserContext {
  readonly readTextFile: (path: string) => Promise<string>;
}

/** What is to be loaded. */
interface LoadOptions {
  readonly flags: FlagValues;
}

/**
 * Loads the configuration. With `--config` the file counts and most of kube-proxy's flags do not, as
 * upstream has it; each one that is ignored is named in a notice. Throws a
 * {@linkcode ConfigurationError} with all problems.
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
  problems.push(...validateSources(flags, { kubeconfig, policyKubeconfig, controlSocket }));
  if (problems.length > 0 || "problem" in mode) throw new ConfigurationError(problems);
  return deepFreeze({ proxy, relay, mode: modeOf(mode.mode, relay), notices });
}

function fileNotices(file: ConfigurationFile | undefined): ConfigurationNotice[] {
  const message = "Configuration file has something that is ignored";
  return (file?.warnings ?? []).map((fields) => ({ level: "warn", message, fields }));
}

/** What is accepted and has no effect, wherever it was said. */
function proxyNotices(
  { featureGates, portRange, networkPolicy }: KubeProxyConfiguration,
): ConfigurationNotice[] {
  const notices: ConfigurationNotice[] = checkFeatureGates(featureGates).ignored
    .map(({ name, message: reason }) => ({
      level: "warn",
      message: "Feature gate has no effect",
      fields: { gate: name, reason },
    }));
  if (portRange !== "") {
    const reason = "it belonged to kube-proxy's old userspace mode; take it out";
    const fields = { field: "portRange", reason };
    notices.push({ level: "warn", message: "Configuration field has no effect", fields });
  }
  if (!networkPolicy.enabled && !isDefaultNetworkPolicy(networkPolicy)) {
    const reason = "it is off; add --network-policy or set networkPolicy.enabled";
    const message = "Settings of NetworkPolicy have no effect";
    notices.push({ level: "warn", message, fields: { reason } });
  }
  return notices;
}

/** kube-proxy reads its two port flags only where the configuration is made of flags, to run with. */
function serverPorts(flags: FlagValues) {
  if (flags.config !== undefined || flags["write-config-to"] !== undefined) return {};
  return { healthz: flags["healthz-port"], metrics: flags["metrics-port"] };
}

/** Who gives manifests and nothing else wants to see it work, on a host of which nothing is asked. */
function modeOf(request: ModeRequest, { manifests }: RelayOptions): ModeRequest {
  return request === "default" && manifests.length > 0 ? "userspace" : request;
}

interface Sources {
  readonly flags: FlagValues;
  readonly file: ConfigurationFile | undefined;
}

/** Where a field's value was said: flag, or file with line and column. */
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

/** The ports of kube-proxy's two deprecated flags; `undefined` where they were not given. */
interface ServerPorts {
  readonly healthz?: number | undefined;
  readonly metrics?: number | undefined;
}

/**
 * The defaults that depend on other fields, and the spellings that stand for one value. A port of 0
 * leaves the server without an address, which turns it off; upstream does so for health, and for
 * metrics ends with an error about the empty address.
 */
function completeConfiguration(
  configuration: KubeProxyConfiguration,
  { healthz, metrics }: ServerPorts,
): KubeProxyConfiguration {
  const { bindAddress, healthzBindAddress, metricsBindAddress, hostnameOverride } = configuration;
  const [any, loopback] = bindAddress.includes(":") ? ["::", "::1"] : ["0.0.0.0", "127.0.0.1"];
  return {
    ...configuration,
    // Blanks alone stay what they are: the validation names them.
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
