/**
 * Flags about how Services are brought about.
 *
 * @module
 */
import type { Flag } from "../flag.ts";

/** Rows of the table in `flags.ts`. */
export const PROXYING_FLAGS = [
  {
    name: "proxy-mode",
    aliases: ["mode"],
    type: "text",
    group: "Proxying",
    value: "MODE",
    field: "mode",
    help:
      "how Services are brought about: iptables, ipvs, nftables, userspace, or auto for the best one " +
      "that the host can do. Empty means iptables, and auto on a host that cannot do that; with " +
      "--manifests it means userspace. A mode that was named is taken or refused, never replaced",
    withConfig: "ignored",
  },
  {
    name: "iptables-sync-period",
    type: "duration",
    group: "Proxying",
    field: "iptables.syncPeriod",
    alsoField: "nftables.syncPeriod",
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
    alsoField: "nftables.minSyncPeriod",
    help: "shortest time from the end of one sync to the next, in every mode but ipvs",
    withConfig: "ignored",
  },
  {
    name: "masquerade-all",
    type: "boolean",
    group: "Proxying",
    field: "iptables.masqueradeAll",
    alsoField: "nftables.masqueradeAll",
    help: "let all traffic to cluster IPs come from the address of the node",
    withConfig: "ignored",
  },
  {
    name: "iptables-masquerade-bit",
    type: "integer",
    group: "Proxying",
    value: "BIT",
    minimum: 0,
    maximum: 31,
    field: "iptables.masqueradeBit",
    help:
      "bit of the packet mark that asks for masquerading, in modes iptables and ipvs; for nftables " +
      "there is a field of the file, and no flag",
    withConfig: "ignored",
  },
  {
    name: "iptables-localhost-nodeports",
    type: "boolean",
    group: "Proxying",
    field: "iptables.localhostNodePorts",
    help: "serve node ports on 127.0.0.1 too, in mode iptables",
    withConfig: "ignored",
  },
  {
    name: "udp-timeout",
    type: "duration",
    group: "Proxying",
    minimum: 1,
    default: "1m",
    help:
      "time of silence after which a UDP flow is forgotten in userspace mode. A flag of this name of " +
      "kube-proxy's old userspace mode meant the same, and had 250ms",
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
    name: "service-counters",
    type: "boolean",
    group: "Proxying",
    default: "false",
    help:
      "count what goes through each Service (modes userspace and nftables); the number of metrics " +
      "grows with the cluster then",
    withConfig: "used",
  },
  {
    name: "tools-path",
    type: "list",
    group: "Proxying",
    value: "DIR",
    help:
      "folders that are searched for iptables, nft, ipset and the other tools before the usual " +
      "ones, for hosts such as those of k3s that carry their own; only the self-extracting " +
      "executable can do that itself, any other form has to be started with them in its PATH",
    withConfig: "used",
  },
] as const satisfies readonly Flag[];
