/**
 * The one table of command line flags. Parsing, validation, `--help` and docs/flags.md are made from
 * it: to add a flag, add a row (and, when it sets a new field, that field).
 *
 * The names are kube-proxy's as far as they mean something in a mode that this build has, and ours.
 *
 * @module
 */
import type { Flag, FlagValue } from "./flag.ts";

/** Every flag. */
export const FLAGS = [
  {
    name: "config",
    type: "text",
    group: "Cluster",
    value: "FILE",
    help:
      "configuration file (KubeProxyConfiguration, YAML or JSON); most other flags of kube-proxy " +
      "are ignored when it is given",
    withConfig: "used",
  },
  {
    name: "kubeconfig",
    type: "text",
    group: "Cluster",
    value: "FILE",
    field: "clientConnection.kubeconfig",
    help:
      "kubeconfig that says where the API server is and who we are; without it the pod's service " +
      "account is used",
    withConfig: "ignored",
  },
  {
    name: "master",
    type: "text",
    group: "Cluster",
    value: "URL",
    help: "URL of the API server, in place of the one in the kubeconfig",
    withConfig: "used",
  },
  {
    name: "manifests",
    type: "list",
    group: "Cluster",
    value: "PATH",
    help: "file or folder of YAML manifests to take Services and endpoints from, watched; may be " +
      "given more than once. No API server is asked then, and none may be given",
    withConfig: "used",
  },
  {
    name: "hostname-override",
    type: "text",
    group: "Node and addresses",
    value: "NAME",
    field: "hostnameOverride",
    help: "name of this node, where it is not the name of the machine",
    withConfig: "wins",
  },
  {
    name: "bind-address",
    type: "text",
    group: "Node and addresses",
    value: "IP",
    field: "bindAddress",
    help: "the node's own address where the Node object has none; nothing is bound to it",
    withConfig: "ignored",
  },
  {
    name: "nodeport-addresses",
    type: "list",
    group: "Node and addresses",
    value: "CIDRS",
    field: "nodePortAddresses",
    help: "ranges of node addresses that serve node ports, or the word primary; empty means all",
    withConfig: "ignored",
  },
  {
    name: "cluster-cidr",
    type: "text",
    group: "Node and addresses",
    value: "CIDR[,CIDR]",
    field: "clusterCIDR",
    help:
      "range of pod addresses, one for each IP family; tells a pod's traffic from other traffic",
    withConfig: "ignored",
  },
  {
    name: "detect-local-mode",
    type: "text",
    group: "Node and addresses",
    value: "MODE",
    choices: ["ClusterCIDR", "NodeCIDR"],
    field: "detectLocalMode",
    help: "how a pod's traffic is told from other traffic",
    withConfig: "ignored",
  },
  {
    name: "service-cidr",
    type: "list",
    group: "Node and addresses",
    value: "CIDRS",
    help:
      "ranges that cluster IPs are taken from, where the API server does not tell (before 1.33, " +
      "or with --manifests)",
    withConfig: "used",
  },
  {
    name: "address-mode",
    type: "text",
    group: "Node and addresses",
    value: "MODE",
    choices: ["auto", "each", "anyip", "none"],
    default: "auto",
    help:
      "how Service addresses become local: one address each on lo, an AnyIP route for the service " +
      "ranges, not at all (node ports and stand-ins on loopback only), or the first that works",
    withConfig: "used",
  },
  {
    name: "proxy-mode",
    aliases: ["mode"],
    type: "text",
    group: "Proxying",
    value: "MODE",
    field: "mode",
    help:
      "how Services are brought about; this release has userspace, which is also what an empty " +
      "mode means. A mode that does not exist is an error, never another one",
    withConfig: "ignored",
  },
  {
    name: "iptables-sync-period",
    type: "duration",
    group: "Proxying",
    field: "iptables.syncPeriod",
    help:
      "base of the health time-out, in every mode but ipvs: a change that waits for twice as long " +
      "makes /healthz fail",
    withConfig: "ignored",
  },
  {
    name: "iptables-min-sync-period",
    type: "duration",
    group: "Proxying",
    field: "iptables.minSyncPeriod",
    help: "shortest time from the end of one sync to the next, in every mode but ipvs",
    withConfig: "ignored",
  },
  {
    name: "udp-timeout",
    type: "duration",
    group: "Proxying",
    minimum: 1,
    default: "1m",
    help:
      "time of silence after which a UDP flow is forgotten (kube-proxy's old userspace mode had " +
      "250ms)",
    withConfig: "used",
  },
  {
    name: "drain-timeout",
    type: "duration",
    group: "Proxying",
    minimum: 0,
    default: "10s",
    help: "longest time that open connections are given after SIGTERM",
    withConfig: "used",
  },
  {
    name: "max-connections-per-service",
    type: "integer",
    group: "Proxying",
    value: "N",
    minimum: 1,
    maximum: 1_000_000,
    default: "10000",
    help: "TCP connections and UDP flows that one Service port may have open; at the bound those " +
      "silent for 5 minutes go first",
    withConfig: "used",
  },
  {
    name: "healthz-bind-address",
    type: "text",
    group: "Health and metrics",
    value: "IP[:PORT]",
    field: "healthzBindAddress",
    help: "where /healthz and /livez are served",
    withConfig: "ignored",
  },
  {
    name: "metrics-bind-address",
    type: "text",
    group: "Health and metrics",
    value: "IP[:PORT]",
    field: "metricsBindAddress",
    help: "where /metrics is served",
    withConfig: "ignored",
  },
  {
    name: "bind-address-hard-fail",
    type: "boolean",
    group: "Health and metrics",
    field: "bindAddressHardFail",
    help: "exit when one of these two addresses cannot be had, in place of trying again every 5 s",
    withConfig: "ignored",
  },
  {
    name: "v",
    type: "integer",
    group: "Logging",
    value: "N",
    minimum: 0,
    maximum: 2 ** 31 - 1,
    field: "logging.verbosity",
    help:
      "how much is logged: 0 what an operator wants to know, 2 each sync, 4 and more for debugging",
    withConfig: "wins",
  },
  {
    name: "logging-format",
    type: "text",
    group: "Logging",
    value: "FORMAT",
    choices: ["text", "json"],
    field: "logging.format",
    help: "how a line of the log looks",
    withConfig: "wins",
  },
  {
    name: "control-socket",
    type: "text",
    group: "Control",
    value: "PATH",
    help:
      "Unix socket that status and other verbs ask; by default /run/kube-relay/control.sock for " +
      "root and a place of the user's own for others",
    withConfig: "used",
  },
  {
    name: "state-dir",
    type: "text",
    group: "Control",
    value: "DIR",
    help:
      "folder that remembers what was added to the machine, for --cleanup and the next start; by " +
      "default the folder of the control socket's default, which a boot clears",
    withConfig: "used",
  },
  {
    name: "json",
    type: "boolean",
    group: "Output",
    default: "false",
    help: "print JSON for programs in place of tables for people",
    verbs: ["status"],
    withConfig: "used",
  },
  {
    name: "filter",
    type: "text",
    group: "Output",
    value: "TEXT",
    help: "only Services whose namespace/name begins with this, or has it as a whole word",
    verbs: ["status"],
    withConfig: "used",
  },
  {
    name: "cleanup",
    type: "boolean",
    group: "Commands",
    default: "false",
    help: "remove everything that any earlier run added to the machine, and exit",
    withConfig: "used",
  },
  {
    name: "version",
    type: "text",
    group: "Commands",
    implied: "true",
    choices: ["true", "false", "raw"],
    default: "false",
    help: "print the version and exit; raw prints more of it",
    withConfig: "used",
  },
  {
    name: "help",
    aliases: ["h"],
    type: "boolean",
    group: "Commands",
    default: "false",
    help: "print this help and exit",
    withConfig: "used",
  },
] as const satisfies readonly Flag[];

/** Name of a flag of the table. */
export type FlagName = typeof FLAGS[number]["name"];

/** The values of the flags that were given. */
export type FlagValues = {
  readonly [Row in typeof FLAGS[number] as Row["name"]]?: FlagValue<Row["type"]>;
};

/** The table again, with every column on each row. */
export const FLAG_ROWS: readonly (Flag & { readonly name: FlagName })[] = FLAGS;

/** The row of a name or an alias. `_` and `-` are the same, as in kube-proxy. */
export function findFlag(name: string): typeof FLAG_ROWS[number] | undefined {
  const wanted = name.replaceAll("_", "-");
  return FLAG_ROWS.find((flag) => flag.name === wanted || flag.aliases?.includes(wanted));
}
