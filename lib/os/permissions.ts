/**
 * Deno's permission flags for kube-relay: the list that `compile.sh` builds into the executable,
 * and against which `deno.json`, the systemd unit and the docs are checked.
 *
 * `deno run lib/os/permissions.ts [extra program …]` prints the flags, one a line.
 *
 * @module
 */
import { allowRunList } from "./tools.ts";

/** An environment variable that kube-relay reads. All others are hidden (`--ignore-env`). */
interface EnvironmentVariable {
  readonly name: string;
  /** The purpose, as the end of the sentence "is read to …". */
  readonly purpose: string;
}

/** Every environment variable that kube-relay reads. */
export const ENVIRONMENT: readonly EnvironmentVariable[] = [
  { name: "NODE_NAME", purpose: "know the node in a DaemonSet (spec.nodeName)" },
  { name: "KUBECONFIG", purpose: "find the kubeconfig" },
  { name: "PATH", purpose: "see whether the folders of --tools-path come first" },
  { name: "HOME", purpose: "find ~/.kube/config" },
  {
    name: "KUBE_RELAY_HOME",
    purpose: "restore HOME, which the self-extracting form hides from Deno",
  },
  { name: "KUBERNETES_SERVICE_HOST", purpose: "find the API server from inside a pod" },
  { name: "KUBERNETES_SERVICE_PORT", purpose: "find the API server from inside a pod" },
  { name: "NOTIFY_SOCKET", purpose: "notify systemd: READY=1 and STATUS=" },
  { name: "WATCHDOG_USEC", purpose: "notify systemd's watchdog in time" },
  { name: "WATCHDOG_PID", purpose: "notify systemd's watchdog only if it watches this process" },
  { name: "CREDENTIALS_DIRECTORY", purpose: "find the files of the unit's LoadCredential=" },
  { name: "CACHE_DIRECTORY", purpose: "find the unit's CacheDirectory=" },
  { name: "RUNTIME_DIRECTORY", purpose: "find the path of the control socket under systemd" },
  { name: "XDG_RUNTIME_DIR", purpose: "find the path of an unprivileged user's control socket" },
  { name: "INVOCATION_ID", purpose: "name the systemd invocation in the log" },
  { name: "JOURNAL_STREAM", purpose: "leave times out of a log that journald stamps" },
  { name: "NO_COLOR", purpose: "print without colour" },
  { name: "TERM", purpose: "know whether the terminal has colour" },
  { name: "COLUMNS", purpose: "fit tables to the terminal" },
  {
    name: "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK",
    purpose: "leave out the kernel version check of the nftables mode, as kube-proxy does",
  },
];

/** The parts of `Deno.hostname()`, `networkInterfaces()` … that are open, as `--allow-sys` names them. */
export const SYSTEM_INTERFACES: readonly string[] = [
  "hostname",
  "networkInterfaces",
  "osRelease",
  "uid",
];

/**
 * The permission flags of the executable, in a fixed order.
 *
 * Reading, writing and the network are open, because the user chooses the paths of manifests,
 * kubeconfigs and sockets. The systemd unit protects the node, not these flags; they stop a bug or
 * a malicious package from starting other programs or reading secrets from the environment. Deno
 * opens `/proc` and `/sys` only with all permissions.
 * `--ignore-env` reports unnamed variables as not set, so that a library that reads them continues
 * instead of throwing.
 *
 * @param extraPrograms further credential plugins, the `ALLOW_RUN_EXTRA` of `compile.sh`.
 */
export function permissionFlags(extraPrograms: readonly string[] = []): string[] {
  return [
    "--no-prompt",
    "--allow-net",
    "--allow-read",
    "--allow-write",
    `--allow-env=${ENVIRONMENT.map((variable) => variable.name).join(",")}`,
    "--ignore-env",
    `--allow-sys=${SYSTEM_INTERFACES.join(",")}`,
    `--allow-run=${allowRunList(extraPrograms)}`,
  ];
}

if (import.meta.main) {
  const flags = permissionFlags(Deno.args);
  await Deno.stdout.write(new TextEncoder().encode(flags.join("\n") + "\n"));
}
