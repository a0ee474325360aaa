import { type Cidr, tryParseCidr } from "../net/cidr.ts";
import type { KubeProxyConfiguration } from "./configuration.ts";
import { defaultControlSocket, defaultStateDirectory, type UserContext } from "./default_paths.ts";
import type { Flag } from "./flag.ts";
import { findFlag, type FlagName, type FlagValues } from "./flags.ts";
import { parseFlagValue } from "./parse_flags.ts";

/** The options that are the value of a flag, or its default. */
const FLAGS = {
  manifests: "manifests",
  udpTimeoutMs: "udp-timeout",
  drainTimeoutMs: "drain-timeout",
  ipvsDrainTimeoutMs: "ipvs-drain-timeout",
  maxConnectionsPerService: "max-connections-per-service",
  unixSocketFolders: "unix-socket-folders",
  takeover: "takeover",
  dryRun: "dry-run",
  toolsPath: "tools-path",
  endpointsFallback: "endpoints-fallback",
  serviceCounters: "service-counters",
  statusPage: "status-page",
  initOnly: "init-only",
} as const satisfies Readonly<Record<string, FlagName>>;

type FlagOptions = {
  readonly [Name in keyof typeof FLAGS]: NonNullable<FlagValues[typeof FLAGS[Name]]>;
};

/**
 * The options without a field in kube-proxy's configuration. Only flags set them, whose table says what
 * they mean.
 */
export interface RelayOptions extends FlagOptions {
  /** URL of the API server, overriding the kubeconfig's. */
  readonly master?: string;
  /** Ranges of cluster IPs; empty = ask the API server. */
  readonly serviceCidrs: readonly Cidr[];
  /** Ranges that external IPs must be in; empty = any. */
  readonly externalIpRanges: readonly Cidr[];
  readonly addressMode: "auto" | "each" | "anyip" | "none";
  /** Threads that forward in mode userspace; `auto` = by the number of cores. */
  readonly userspaceWorkers: "auto" | number;
  /** What carries connections in mode userspace; `auto` = system calls where they can be used. */
  readonly userspaceEngine: "auto" | "deno" | "syscalls";
  readonly controlSocket: string;
  readonly stateDirectory: string;
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
  const plain = Object.entries(FLAGS).map(([option, name]) => [option, flagOrDefault(flags, name)]);
  const workers = flagOrDefault(flags, "userspace-workers") as string;
  return {
    ...Object.fromEntries(plain) as FlagOptions,
    ...(master !== undefined && { master }),
    serviceCidrs: cidrsOf("service-cidr", "10.96.0.0/12"),
    externalIpRanges: cidrsOf("external-ip-ranges", "203.0.113.0/24"),
    addressMode: flagOrDefault(flags, "address-mode") as RelayOptions["addressMode"],
    userspaceEngine: flagOrDefault(
      flags,
      "userspace-engine",
    ) as RelayOptions["userspaceEngine"],
    userspaceWorkers: workers === "auto" ? workers : Number(workers),
    controlSocket: path("control-socket", defaultControlSocket),
    stateDirectory: path("state-dir", defaultStateDirectory),
  };
}

/** A flag's value, or the default of its row, parsed as if it had been typed. */
function flagOrDefault(flags: FlagValues, name: FlagName): unknown {
  if (flags[name] !== undefined) return flags[name];
  const row: Flag = findFlag(name)!;
  const result = parseFlagValue(row, row.default ?? "");
  if ("problem" in result) throw new TypeError(`Flag table is wrong: ${result.problem}`);
  return result.value;
}

/** Longest path of a Unix socket in bytes: unix(7) has 108, with the zero at the end. */
const LONGEST_SOCKET_PATH = 107;

/** Returns the problems of kube-relay's own flags in combination, each with its flag. */
export function validateSources(
  flags: FlagValues,
  { clientConnection, networkPolicy, routing }: Pick<
    KubeProxyConfiguration,
    "clientConnection" | "networkPolicy" | "routing"
  >,
  controlSocket: string,
): readonly string[] {
  const { manifests, master, from } = flags;
  const problems: string[] = [];
  if (from === "") problems.push("--from: Expected the path of a dump, found nothing");
  else if (from !== undefined) problems.push(...conflicts(flags, IN_DUMP));
  if (manifests?.length === 0) {
    problems.push("--manifests: Expected the path of a file or folder, found nothing");
  }
  const taken = (flag: string, what: string, from: string, other = "manifests") =>
    problems.push(
      `--${flag}: Cannot take ${what} from ${from} and from ${other} at once; give one of them`,
    );
  const other = master === undefined
    ? clientConnection.kubeconfig && `kubeconfig '${clientConnection.kubeconfig}'`
    : "--master";
  if (manifests && other) taken("manifests", "objects", "manifests", other);
  for (
    const [flag, what, { kubeconfig }] of [
      ["policy-kubeconfig", "policies", networkPolicy],
      ["routing-kubeconfig", "Nodes and addresses", routing],
    ] as const
  ) {
    if (manifests && kubeconfig !== "") taken(flag, what, `'${kubeconfig}'`);
  }
  const { "unix-socket-folders": folders = [] } = flags;
  // In a cluster, each author of a Service could reach the sockets of the node.
  if (folders.length > 0 && manifests === undefined) {
    problems.push(
      "--unix-socket-folders: Cannot use Unix sockets for Services of an API server; give --manifests",
    );
  }
  for (const folder of folders.filter((each) => !each.startsWith("/"))) {
    problems.push(`--unix-socket-folders: Expected absolute paths, found '${folder}'`);
  }
  const { length } = new TextEncoder().encode(controlSocket);
  if (length > LONGEST_SOCKET_PATH) {
    problems.push(
      `--control-socket: Expected a path of at most ${LONGEST_SOCKET_PATH} bytes, ` +
        `found '${controlSocket}' with ${length}: Unix sockets have no room for more`,
    );
  }
  return problems;
}

/** Flags that `--from` excludes, because a dump contains their values. */
const IN_DUMP = ["config", "proxy-mode", "hostname-override", "service-cidr"] as const;
/** Flags for objects that `--from` excludes, except for `diff`, which compares both. */
const OBJECTS_IN_DUMP = ["manifests", "kubeconfig", "master"] as const;

/** Returns the problems of flags that name objects from more than one source, one line each. */
export function objectSourceConflicts(flags: FlagValues): readonly string[] {
  return flags.from === undefined ? [] : conflicts(flags, OBJECTS_IN_DUMP);
}

function conflicts(
  flags: FlagValues,
  names: readonly (typeof IN_DUMP[number] | typeof OBJECTS_IN_DUMP[number])[],
): readonly string[] {
  return names.filter((name) => flags[name] !== undefined).map((name) =>
    `--from: Cannot take this from a dump and from --${name} at once; give one of them`
  );
}
