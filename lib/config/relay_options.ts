import { type Cidr, tryParseCidr } from "../net/cidr.ts";
import { defaultControlSocket, defaultStateDirectory, type UserContext } from "./default_paths.ts";
import type { Flag } from "./flag.ts";
import { findFlag, type FlagName, type FlagValues } from "./flags.ts";
import { parseFlagValue } from "./parse_flag_value.ts";

/** The options without a field in kube-proxy's configuration. Only flags set them. */
export interface RelayOptions {
  /** URL of the API server, overriding the kubeconfig's. */
  readonly master?: string;
  /** Files and folders of manifests; empty = the API server is the source. */
  readonly manifests: readonly string[];
  /** Ranges of cluster IPs; empty = ask the API server. */
  readonly serviceCidrs: readonly Cidr[];
  /** Ranges that external IPs must be in; empty = any. */
  readonly externalIpRanges: readonly Cidr[];
  readonly addressMode: "auto" | "each" | "anyip" | "none";
  readonly udpTimeoutMs: number;
  /** Threads that forward in mode userspace; `auto` = by the number of cores. */
  readonly userspaceWorkers: "auto" | number;
  readonly drainTimeoutMs: number;
  readonly maxConnectionsPerService: number;
  /** Folders whose Unix sockets may be endpoints; empty = none. Only with manifests. */
  readonly unixSocketFolders: readonly string[];
  /** For the connections of a removed endpoint, in mode ipvs; 0 = unlimited. */
  readonly ipvsDrainTimeoutMs: number;
  readonly controlSocket: string;
  readonly stateDirectory: string;
  /** Start next to a running kube-proxy, and remove its leftovers. */
  readonly takeover: boolean;
  /** Print what cleanup or takeover would do, and change nothing. */
  readonly dryRun: boolean;
  /** Folders that are searched for tools before the usual ones. */
  readonly toolsPath: readonly string[];
  /** Use Endpoints objects where no EndpointSlice exists. */
  readonly endpointsFallback: boolean;
  /** Count bytes and connections of each Service. */
  readonly serviceCounters: boolean;
  /** Serve the status page on the metrics port. */
  readonly statusPage: boolean;
  /** Do what needs privileges, and exit. */
  readonly initOnly: boolean;
}

/** Reads the options from flags. Adds each invalid value to `problems`. */
export function relayOptionsOf(
  dependencies: UserContext,
  { flags, problems }: { readonly flags: FlagValues; readonly problems: string[] },
): RelayOptions {
  const cidrsOf = (name: "service-cidr" | "external-ip-ranges", example: string) =>
    (flags[name] ?? []).flatMap((text) => {
      const cidr = tryParseCidr(text);
      if (!cidr) problems.push(`--${name}: Expected CIDRs such as ${example}, found '${text}'`);
      return cidr ?? [];
    });
  const { master } = flags;
  // Whether HOST:PORT means http or https depends on the kubeconfig.
  if (master !== undefined && !/^(https?:\/\/\S+|[^/\s]+\/?)$/.test(master)) {
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
    serviceCidrs: cidrsOf("service-cidr", "10.96.0.0/12"),
    externalIpRanges: cidrsOf("external-ip-ranges", "203.0.113.0/24"),
    addressMode: flagOrDefault(flags, "address-mode") as RelayOptions["addressMode"],
    udpTimeoutMs: flagOrDefault(flags, "udp-timeout") as number,
    userspaceWorkers: workersOf(flagOrDefault(flags, "userspace-workers") as string),
    drainTimeoutMs: flagOrDefault(flags, "drain-timeout") as number,
    ipvsDrainTimeoutMs: flagOrDefault(flags, "ipvs-drain-timeout") as number,
    maxConnectionsPerService: flagOrDefault(flags, "max-connections-per-service") as number,
    unixSocketFolders: flags["unix-socket-folders"] ?? [],
    controlSocket: path("control-socket", defaultControlSocket),
    stateDirectory: path("state-dir", defaultStateDirectory),
    takeover: flags.takeover ?? false,
    dryRun: flags["dry-run"] ?? false,
    toolsPath: flags["tools-path"] ?? [],
    endpointsFallback: flags["endpoints-fallback"] ?? false,
    serviceCounters: flags["service-counters"] ?? false,
    statusPage: flags["status-page"] ?? false,
    initOnly: flags["init-only"] ?? false,
  };
}

function workersOf(text: string): RelayOptions["userspaceWorkers"] {
  return text === "auto" ? text : Number(text);
}

/** A flag's value, or the default of its row, parsed as if it had been typed. */
function flagOrDefault(flags: FlagValues, name: FlagName): unknown {
  if (flags[name] !== undefined) return flags[name];
  const row: Flag = findFlag(name)!;
  const result = parseFlagValue(row, row.default ?? "");
  if ("problem" in result) throw new TypeError(`Flag table is wrong: ${result.problem}`);
  return result.value;
}
