import { BACKEND_MODES } from "../../proxy/backend.ts";
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
    help: `${BACKEND_MODES.join(", ")}, or auto for the best one that the host supports. ` +
      "Empty means iptables, or auto on a host without support for it; with --manifests it " +
      "means userspace. kube-relay never replaces a mode that you name",
    withConfig: "ignored",
  },
  {
    name: "iptables-sync-period",
    type: "duration",
    group: "Proxying",
    field: "iptables.syncPeriod",
    alsoField: "nftables.syncPeriod",
    help: "base of the health time-out, in every mode but ipvs: /healthz fails when a change has " +
      "waited for twice as long",
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
    help: "masquerade all traffic to cluster IPs",
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
    help: "bit of the packet mark that requests masquerade, in modes iptables and ipvs; nftables " +
      "mode has a field in the file and no flag",
    withConfig: "ignored",
  },
  {
    name: "iptables-localhost-nodeports",
    type: "boolean",
    group: "Proxying",
    field: "iptables.localhostNodePorts",
    help: "also serve node ports on 127.0.0.1, in iptables mode",
    withConfig: "ignored",
  },
  {
    name: "udp-timeout",
    type: "duration",
    group: "Proxying",
    minimum: 1,
    default: "1m",
    help: "idle time after which a UDP flow is forgotten in userspace mode. kube-proxy's old " +
      "userspace mode had this flag with a default of 250ms",
    withConfig: "used",
  },
  {
    name: "drain-timeout",
    type: "duration",
    group: "Proxying",
    minimum: 0,
    default: "10s",
    help: "time for which open connections may continue after SIGTERM",
    withConfig: "used",
  },
  {
    name: "userspace-workers",
    type: "text",
    group: "Proxying",
    value: "N",
    choices: ["auto"],
    pattern: /^([1-9]|[12]\d|3[0-2])$/,
    patternHelp: "a whole number from 1 to 32",
    default: "1",
    help:
      "threads that forward connections in userspace mode, from 1 to 32; auto means one for each " +
      "core, but 4 at most",
    withConfig: "used",
  },
  {
    name: "unix-socket-folders",
    type: "list",
    group: "Proxying",
    value: "DIR[,DIR]",
    help: "folders whose Unix sockets may be endpoints, in userspace mode with --manifests; a " +
      "Service names them by the annotation kube-relay.io/unix-sockets",
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
    help: "most open TCP connections and UDP flows of one Service port; at the limit, those idle " +
      "for 5 minutes are closed first",
    withConfig: "used",
  },
  {
    name: "service-counters",
    type: "boolean",
    group: "Proxying",
    default: "false",
    help:
      "count the traffic of each Service (modes userspace and nftables); the number of metric " +
      "series then grows with the cluster",
    withConfig: "used",
  },
  {
    name: "tools-path",
    type: "list",
    group: "Proxying",
    value: "DIR",
    help:
      "folders that are searched for iptables, nft, ipset and the other tools before the usual " +
      "ones, for hosts such as k3s that ship their own; works only in the self-extracting " +
      "executable, for any other form set the PATH",
    withConfig: "used",
  },
] as const satisfies readonly Flag[];
