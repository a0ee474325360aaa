/**
 * From flags and a file to one frozen configuration.
 *
 * @module
 */
import { type Cidr, tryParseCidr } from "../net/cidr.ts";
import { formatHostPort } from "../net/port.ts";
import type { KubeProxyConfiguration } from "./configuration.ts";
import { defaultControlSocket, defaultStateDirectory, type UserContext } from "./default_paths.ts";
import { type ConfigurationFile, readConfigurationFile } from "./configuration_file.ts";
import type { Flag } from "./flag.ts";
import { flagConfiguration } from "./flag_configuration.ts";
import { findFlag, FLAG_ROWS, type FlagName, type FlagValues } from "./flags.ts";
import { HEALTHZ_PORT, METRICS_PORT, tryParseListenAddress } from "./listen_address.ts";
import { parseFlagValue } from "./parse_flag_value.ts";
import { givenFlags } from "./parse_flags.ts";
import { type ModeRequest, parseModeRequest } from "./mode_request.ts";
import { validateConfiguration } from "./validate.ts";
import { validateSources } from "./validate_sources.ts";

/** What kube-proxy's configuration has no field for. Set by flags only. */
export interface RelayOptions {
  /** URL of the API server in place of the kubeconfig's. */
  readonly master?: string;
  /** Files and folders of manifests; empty = the API server is the source. */
  readonly manifests: readonly string[];
  /** Ranges of cluster IPs; empty = ask the API server. */
  readonly serviceCidrs: readonly Cidr[];
  readonly addressMode: "auto" | "each" | "anyip" | "none";
  readonly udpTimeoutMs: number;
  readonly drainTimeoutMs: number;
  readonly maxConnectionsPerService: number;
  readonly controlSocket: string;
  readonly stateDirectory: string;
  /** Start beside a live kube-proxy, and remove what it leaves behind. */
  readonly takeover: boolean;
  /** Say what cleaning up or taking over would do, and do nothing. */
  readonly dryRun: boolean;
  /** Folders that are searched for tools before the usual ones. */
  readonly toolsPath: readonly string[];
  /** Take Endpoints objects where there is no EndpointSlice. */
  readonly endpointsFallback: boolean;
  /** Count bytes and connections of each Service. */
  readonly serviceCounters: boolean;
  /** Do what needs privileges, and end. */
  readonly initOnly: boolean;
}

/** Something to be logged once the log is there: a constant sentence and its fields. */
export interface ConfigurationNotice {
  readonly level: "info" | "warn";
  readonly message: string;
  readonly fields: Readonly<Record<string, string>>;
}

/** Everything that was said, and what was not filled in. Deeply frozen. */
export interface LoadedConfiguration {
  readonly proxy: KubeProxyConfiguration;
  readonly relay: RelayOptions;
  /** What was asked for; what it comes to depends on the host (`lib/app/choose_mode.ts`). */
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
export interface LoadOptions {
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
  const notices: ConfigurationNotice[] = [];
  const file = flags.config === undefined
    ? undefined
    : await readConfigurationFile(dependencies, flags.config);
  if (file?.configuration === undefined && file) throw new ConfigurationError(file.problems);
  for (const warning of file?.warnings ?? []) {
    notices.push({
      level: "warn",
      message: "Configuration file has a field that is ignored",
      fields: warning,
    });
  }
  const overlaid = overlayFlags(file?.configuration ?? flagConfiguration(), {
    flags,
    file,
    notices,
  });
  const proxy = complete(overlaid);
  const problems = [...file?.problems ?? []];
  for (const { path, message } of validateConfiguration(proxy)) {
    problems.push(`${sourceOf(path, { flags, file })}: ${message}`);
  }
  const mode = parseModeRequest(proxy.mode);
  if ("problem" in mode) problems.push(`${sourceOf("mode", { flags, file })}: ${mode.problem}`);
  const relay = relayOptions(dependencies, { flags, problems });
  const { kubeconfig } = proxy.clientConnection;
  const { controlSocket } = relay;
  problems.push(...validateSources(flags, { kubeconfig, controlSocket }));
  if (problems.length > 0 || "problem" in mode) throw new ConfigurationError(problems);
  return deepFreeze({ proxy, relay, mode: modeOf(mode.mode, relay), notices });
}

/** Who gives manifests and nothing else wants to see it work, on a host of which nothing is asked. */
function modeOf(request: ModeRequest, { manifests }: RelayOptions): ModeRequest {
  return request === "default" && manifests.length > 0 ? "userspace" : request;
}

interface Sources {
  readonly flags: FlagValues;
  readonly file: ConfigurationFile | undefined;
}

function overlayFlags(
  base: KubeProxyConfiguration,
  { flags, file, notices }: Sources & { notices: ConfigurationNotice[] },
): KubeProxyConfiguration {
  const configuration = structuredClone(base);
  for (const name of givenFlags(flags)) {
    const { field, withConfig, deprecated } = findFlag(name)!;
    if (file && withConfig === "ignored") {
      const message = "Flag is ignored, since --config is given; set its field in the file";
      notices.push({
        level: "warn",
        message,
        fields: { flag: `--${name}`, ...(field && { field }) },
      });
      continue;
    }
    if (deprecated) {
      const message = "Flag is deprecated";
      notices.push({ level: "warn", message, fields: { flag: `--${name}`, reason: deprecated } });
    }
    // kube-proxy takes an empty address for one that was not given.
    if (field !== undefined && !(flags[name] === "" && /BindAddress$|^bindAddress$/.test(field))) {
      setField(configuration, { path: field.split("."), value: flags[name] });
    }
  }
  return configuration;
}

function setField(
  target: object,
  { path, value }: { path: readonly string[]; value: unknown },
): void {
  const [name, ...rest] = path;
  const fields = target as Record<string, unknown>;
  if (rest.length === 0) fields[name!] = value;
  else setField(fields[name!] as object, { path: rest, value });
}

/** The defaults that depend on other fields, and the spellings that stand for one value. */
function complete(configuration: KubeProxyConfiguration): KubeProxyConfiguration {
  const { bindAddress, healthzBindAddress, metricsBindAddress, hostnameOverride } = configuration;
  const [any, loopback] = bindAddress.includes(":") ? ["::", "::1"] : ["0.0.0.0", "127.0.0.1"];
  const withPort = (text: string, port: number): string => {
    const address = tryParseListenAddress(text, port);
    return address ? formatHostPort(address.hostname, address.port) : text;
  };
  return {
    ...configuration,
    // Blanks alone stay what they are: the validation names them.
    hostnameOverride: hostnameOverride.trim().toLowerCase() || hostnameOverride,
    healthzBindAddress: withPort(healthzBindAddress || any, HEALTHZ_PORT),
    metricsBindAddress: withPort(metricsBindAddress || loopback, METRICS_PORT),
  };
}

/** Where a field's value was said: flag, or file with line and column. */
function sourceOf(path: string, { flags, file }: Sources): string {
  const steps = path.split(".").map((step) => /^\d+$/.test(step) ? Number(step) : step);
  const field = steps.filter((step) => typeof step === "string").join(".");
  const flag = FLAG_ROWS.find((row) => row.field === field && flags[row.name] !== undefined);
  if (flag && (!file || flag.withConfig !== "ignored")) return `--${flag.name}`;
  return file ? file.describe(steps) : path;
}

function relayOptions(
  dependencies: UserContext,
  { flags, problems }: { flags: FlagValues; problems: string[] },
): RelayOptions {
  const serviceCidrs: Cidr[] = [];
  for (const text of flags["service-cidr"] ?? []) {
    const cidr = tryParseCidr(text);
    if (cidr) serviceCidrs.push(cidr);
    else problems.push(`--service-cidr: Expected CIDRs such as 10.96.0.0/12, found '${text}'`);
  }
  const { master } = flags;
  if (master !== undefined && !/^https?:\/\/\S+$/.test(master)) {
    problems.push(`--master: Expected a URL such as https://10.0.0.1:6443, found '${master}'`);
  }
  const path = (name: "control-socket" | "state-dir", otherwise: typeof defaultControlSocket) => {
    try {
      return flags[name] || otherwise(dependencies);
    } catch (error) {
      problems.push(`--${name}: ${(error as Error).message}`);
      return "";
    }
  };
  return {
    ...(master !== undefined && { master }),
    manifests: flags.manifests ?? [],
    serviceCidrs,
    addressMode: flagOrDefault(flags, "address-mode") as RelayOptions["addressMode"],
    udpTimeoutMs: flagOrDefault(flags, "udp-timeout") as number,
    drainTimeoutMs: flagOrDefault(flags, "drain-timeout") as number,
    maxConnectionsPerService: flagOrDefault(flags, "max-connections-per-service") as number,
    controlSocket: path("control-socket", defaultControlSocket),
    stateDirectory: path("state-dir", defaultStateDirectory),
    takeover: flags.takeover ?? false,
    dryRun: flags["dry-run"] ?? false,
    toolsPath: flags["tools-path"] ?? [],
    endpointsFallback: flags["endpoints-fallback"] ?? false,
    serviceCounters: flags["service-counters"] ?? false,
    initOnly: flags["init-only"] ?? false,
  };
}

/** A flag's value, or the default of its row, read as if it had been typed. */
function flagOrDefault(flags: FlagValues, name: FlagName): unknown {
  if (flags[name] !== undefined) return flags[name];
  const row: Flag = findFlag(name)!;
  const result = parseFlagValue(row, row.default ?? "");
  if ("problem" in result) throw new TypeError(`Flag table is wrong: ${result.problem}`);
  return result.value;
}

function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null) {
    for (const inner of Object.values(value)) deepFreeze(inner);
    Object.freeze(value);
  }
  return value;
}
