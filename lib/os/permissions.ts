/**
 * Deno's permission flags for kube-relay: the list that `compile.sh` builds into the executable,
 * and against which `deno.json`, the systemd unit and the docs are checked.
 *
 * `deno run lib/os/permissions.ts [extra program …]` prints the flags, one a line.
 *
 * @module
 */
import { allowRunList } from "./tools.ts";

/** Every environment variable that kube-relay reads: the purpose ends the sentence "is read to …". */
const PURPOSES: Readonly<Record<string, string>> = {
  "NODE_NAME": "know the node in a DaemonSet (spec.nodeName)",
  "KUBECONFIG": "find the kubeconfig",
  "PATH": "see whether the folders of --tools-path come first",
  "HOME": "find ~/.kube/config",
  "KUBE_RELAY_HOME": "restore HOME, which the self-extracting form hides from Deno",
  "KUBE_RELAY_NAME": "know whether kubectl started the self-extracting form as its plugin",
  "KUBERNETES_SERVICE_HOST": "find the API server from inside a pod",
  "KUBERNETES_SERVICE_PORT": "find the API server from inside a pod",
  "NOTIFY_SOCKET": "notify systemd: READY=1 and STATUS=",
  "WATCHDOG_USEC": "notify systemd's watchdog in time",
  "WATCHDOG_PID": "notify systemd's watchdog only if it watches this process",
  "CREDENTIALS_DIRECTORY": "find the files of the unit's LoadCredential=",
  "CACHE_DIRECTORY": "find the unit's CacheDirectory=",
  "RUNTIME_DIRECTORY": "find the path of the control socket under systemd",
  "XDG_RUNTIME_DIR": "find the path of an unprivileged user's control socket",
  "INVOCATION_ID": "name the systemd invocation in the log",
  "JOURNAL_STREAM": "leave times out of a log that journald stamps",
  "NO_COLOR": "print without colour",
  "TERM": "know whether the terminal has colour",
  "COLUMNS": "fit tables to the terminal",
  "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK":
    "leave out the kernel version check of the nftables mode, as kube-proxy does",
};

/** The same as a list. All others are hidden (`--ignore-env`). */
export const ENVIRONMENT: readonly { readonly name: string; readonly purpose: string }[] = Object
  .entries(PURPOSES).map(([name, purpose]) => ({ name, purpose }));

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
