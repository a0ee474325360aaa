import type { FlagValues } from "./flags.ts";

/** Longest path of a Unix socket in bytes: unix(7) has 108, with the zero at the end. */
const LONGEST_SOCKET_PATH = 107;

/** The values to check besides the flags. */
interface SourcesAndSocket {
  /** The kubeconfig of the flag or the file; empty = none. */
  readonly kubeconfig: string;
  /** The kubeconfig of `--policy-kubeconfig`; empty = none. */
  readonly policyKubeconfig: string;
  /** The kubeconfig of `--routing-kubeconfig`; empty = none. */
  readonly routingKubeconfig: string;
  readonly controlSocket: string;
}

/** Returns the problems of kube-relay's own flags in combination, each with its flag. */
export function validateSources(
  flags: FlagValues,
  { kubeconfig, policyKubeconfig, routingKubeconfig, controlSocket }: SourcesAndSocket,
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
  const other = master === undefined ? kubeconfig && `kubeconfig '${kubeconfig}'` : "--master";
  if (manifests && other) taken("manifests", "objects", "manifests", other);
  if (manifests && policyKubeconfig !== "") {
    taken("policy-kubeconfig", "policies", `'${policyKubeconfig}'`);
  }
  if (manifests && routingKubeconfig !== "") {
    taken("routing-kubeconfig", "Nodes and addresses", `'${routingKubeconfig}'`);
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
