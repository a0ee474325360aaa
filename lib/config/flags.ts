/**
 * The one table of command line flags. Parsing, validation, `--help` and docs/flags.md are made from
 * it: to add a flag, add a row to its group (and, when it sets a new field, that field).
 *
 * The names are kube-proxy's (1.36, and older ones that manifests still use) and kube-relay's own. Those of
 * NetworkPolicy and of routing are not kube-proxy's. Of kube-router, names and aliases are used where the
 * meaning is the same; docs/bgp.md has the table.
 *
 * @module
 */
import { BACKEND_MODES } from "../proxy/backend.ts";
import type { Flag, FlagGroup, FlagType, FlagValue } from "./flag.ts";
import { NETWORK_POLICY_CHOICES, NETWORK_POLICY_LIMITS } from "./network_policy.ts";
import { DEFAULT_CNI_CONFIG, ROUTING_CHOICES, ROUTING_LIMITS } from "./routing.ts";

/** A row before it has its name and group. Without `withConfig` it is that of the group, or `used`. */
type Row<Type extends FlagType> = Omit<Flag, "name" | "group" | "type" | "withConfig"> & {
  readonly type: Type;
  readonly withConfig?: Flag["withConfig"];
};

type Others = Omit<Row<FlagType>, "type" | "field" | "help">;

/** Flags of a type: the placeholder of the value, the field of the file, and then the help. */
function flagOf<const Type extends FlagType>(type: Type) {
  return (value?: string, field?: string, others: Others = {}) => (help: string): Row<Type> => ({
    type,
    help,
    ...(value !== undefined && { value }),
    ...(field !== undefined && { field }),
    ...(type === "boolean" && field === undefined && { default: "false" }),
    ...others,
  });
}

const text = flagOf("text");
const list = flagOf("list");
const integer = flagOf("integer");
const number = flagOf("number");
const gates = flagOf("gates");
const vmodule = flagOf("vmodule");
const boolean = (field?: string, others?: Others) => flagOf("boolean")(undefined, field, others);
const duration = (field?: string, others?: Others) => flagOf("duration")(undefined, field, others);

const INT32 = { minimum: 0, maximum: 2 ** 31 - 1 };
const PORT = { minimum: 0, maximum: 65535 };

/** The flags of a group. `withConfig` is for those with a field of the file. */
function group<Rows extends Readonly<Record<string, Row<FlagType>>>>(
  group: FlagGroup,
  withConfig: Flag["withConfig"],
  rows: Rows,
): { readonly [Name in keyof Rows & string]: Rows[Name] & Flag } {
  const entries = Object.entries(rows).map(([name, row]) => [
    name,
    { name, group, withConfig: row.field === undefined ? "used" : withConfig, ...row },
  ]);
  return Object.fromEntries(entries);
}

/** A flag without effect, with its replacement or the reason why none is needed. */
function retired<const Type extends FlagType>(type: Type, help: string): Row<Type> {
  return { type, help, retired: true };
}

const KLOG_FILES = "the log goes to standard error only; let the supervisor store it";
const KLOG_FORM = "has no effect; see --logging-format for how a line looks";
const WINDOWS = "of Windows only, has no effect";
const LINKED_IN = "of a library that kube-proxy was built with, never had an effect";

const FLAGS = {
  ...group("Cluster", "ignored", {
    config: text("FILE", undefined, { emptyIsAbsent: true })(
      "configuration file (KubeProxyConfiguration, YAML or JSON); with it, most other flags of kube-proxy are ignored",
    ),
    kubeconfig: text("FILE", "clientConnection.kubeconfig")(
      "kubeconfig with the address of the API server and the credentials; without it the service account of the pod is used",
    ),
    master: text("URL", undefined, { emptyIsAbsent: true })(
      "URL of the API server; overrides the kubeconfig",
    ),
    "kube-api-content-type": text("TYPE", "clientConnection.contentType")(
      "content type of the objects that the API server sends: application/vnd.kubernetes.protobuf, or application/json, which costs more",
    ),
    "kube-api-qps": number("N", "clientConnection.qps")(
      "most requests per second to the API server; accepted without effect, since kube-relay sends only a few lists, watches and events",
    ),
    "kube-api-burst": integer("N", "clientConnection.burst", INT32)(
      "most requests at once above --kube-api-qps; accepted without effect",
    ),
    "config-sync-period": duration("configSyncPeriod")(
      "interval at which all known objects are processed again; accepted without effect",
    ),
    "feature-gates": gates("NAME=BOOLEAN", "featureGates")(
      "feature gates of Kubernetes; docs/flags.md lists those that have an effect",
    ),
    manifests: list("PATH")(
      "file or folder of YAML or JSON manifests with Services and endpoints, watched for changes; repeatable. Replaces " +
        "the API server: excludes --kubeconfig and --master",
    ),
    "endpoints-fallback": boolean()(
      "use Endpoints objects for Services without an EndpointSlice, and if the API server has no EndpointSlices",
    ),
  }),

  ...group("Node and addresses", "ignored", {
    "hostname-override": text("NAME", "hostnameOverride", { withConfig: "wins" })(
      "name of this node, if it differs from the name of the machine",
    ),
    "bind-address": text("IP", "bindAddress")(
      "the node's own address, if the Node object has none; no socket is bound to it",
    ),
    "nodeport-addresses": list("CIDRS", "nodePortAddresses")(
      "ranges of node addresses that serve node ports, or the words primary, localhost and all; empty means all, and primary in nftables mode",
    ),
    "cluster-cidr": text("CIDR[,CIDR]", "clusterCIDR")(
      "range of pod addresses, one for each IP family; traffic from it is traffic of pods",
    ),
    "detect-local-mode": text(undefined, "detectLocalMode", {
      choices: ["", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"],
    })(
      "how traffic of pods is recognized",
    ),
    "pod-bridge-interface": text("NAME", "detectLocal.bridgeInterface")(
      "bridge of the pods, for --detect-local-mode BridgeInterface",
    ),
    "pod-interface-name-prefix": text("PREFIX", "detectLocal.interfaceNamePrefix")(
      "prefix of the names of the pods' interfaces, for --detect-local-mode InterfaceNamePrefix",
    ),
    "service-cidr": list("CIDRS")(
      "ranges of cluster IPs, if the API server does not provide them (before 1.33, or with --manifests); mode iptables then needs fewer rules",
    ),
    "external-ip-ranges": list("CIDRS")(
      "ranges that the external IPs of Services must be in; others are refused, in every mode. Without it a Service may " +
        "have any external IP (kube-router: --service-external-ip-range)",
    ),
    "address-mode": text("MODE", undefined, {
      choices: ["auto", "each", "anyip", "none"],
      default: "auto",
    })(
      "how Service addresses become local: one address each on lo, an AnyIP route for the service ranges, not at all " +
        "(only node ports and stand-ins on loopback), or the first of these that works",
    ),
  }),

  ...group("Proxying", "ignored", {
    "proxy-mode": text("MODE", "mode", { aliases: ["mode"] })(
      `${
        BACKEND_MODES.join(", ")
      }, or auto for the best one that works here. Empty means iptables, ` +
        "or auto where that fails; with --manifests userspace. A named mode is never replaced",
    ),
    "iptables-sync-period": duration("iptables.syncPeriod", { alsoField: "nftables.syncPeriod" })(
      "base of the health time-out, in every mode but ipvs: /healthz fails when a change has waited for twice as long",
    ),
    "iptables-min-sync-period": duration("iptables.minSyncPeriod", {
      alsoField: "nftables.minSyncPeriod",
    })(
      "shortest time from the end of one sync to the next, in every mode but ipvs",
    ),
    "masquerade-all": boolean("iptables.masqueradeAll", { alsoField: "nftables.masqueradeAll" })(
      "masquerade all traffic to cluster IPs",
    ),
    "iptables-masquerade-bit": integer("BIT", "iptables.masqueradeBit", {
      minimum: 0,
      maximum: 31,
    })(
      "bit of the packet mark that requests masquerade, in modes iptables and ipvs; nftables mode has a field in the file and no flag",
    ),
    "iptables-localhost-nodeports": boolean("iptables.localhostNodePorts")(
      "also serve node ports on 127.0.0.1, in iptables mode",
    ),
    "udp-timeout": duration(undefined, { minimum: 1, default: "1m" })(
      "idle time after which a UDP flow is forgotten in userspace mode. kube-proxy's old userspace mode had this flag with a default of 250ms",
    ),
    "drain-timeout": duration(undefined, { minimum: 0, default: "10s" })(
      "time for which open connections may continue after SIGTERM",
    ),
    "userspace-workers": text("N", undefined, {
      choices: ["auto"],
      pattern: /^([1-9]|[12]\d|3[0-2])$/,
      patternHelp: "a whole number from 1 to 32",
      default: "1",
    })(
      "threads that forward connections in userspace mode, from 1 to 32; auto means one for each core, but 4 at most",
    ),
    "userspace-engine": text("ENGINE", undefined, {
      choices: ["auto", "deno", "syscalls"],
      default: "deno",
    })(
      "how userspace mode forwards: deno = in this process; syscalls = in --userspace-workers processes of its own, which keep " +
        "connections over restarts; auto = syscalls where the machine permits it",
    ),
    "unix-socket-folders": list("DIR[,DIR]")(
      "folders whose Unix sockets may be endpoints, in userspace mode with --manifests; a Service names them by the annotation kube-relay.io/unix-sockets",
    ),
    "max-connections-per-service": integer("N", undefined, {
      minimum: 1,
      maximum: 1_000_000,
      default: "10000",
    })(
      "most open TCP connections and UDP flows of one Service port; at the limit, those idle for 5 minutes are closed first",
    ),
    "service-counters": boolean()(
      "count the traffic of each Service (modes userspace and nftables); the number of metric series then grows with the cluster",
    ),
    "tools-path": list("DIR")(
      "folders that are searched for iptables, nft, ipset and the other tools before the usual ones, as on k3s; works only " +
        "in the self-extracting executable, for any other form set the PATH",
    ),
  }),

  ...group("IPVS", "ignored", {
    "ipvs-sync-period": duration("ipvs.syncPeriod")(
      "like --iptables-sync-period, in ipvs mode",
    ),
    "ipvs-min-sync-period": duration("ipvs.minSyncPeriod")(
      "like --iptables-min-sync-period, in ipvs mode",
    ),
    "ipvs-scheduler": text("NAME", "ipvs.scheduler")(
      "how a virtual server chooses among endpoints; empty means rr",
    ),
    "ipvs-exclude-cidrs": list("CIDRS", "ipvs.excludeCIDRs")(
      "ranges whose virtual servers kube-relay does not touch",
    ),
    "ipvs-strict-arp": boolean("ipvs.strictARP")(
      "answer ARP only for addresses of the interface that is asked (arp_ignore=1 and arp_announce=2 for each interface with an IPv4 address)",
    ),
    "ipvs-tcp-timeout": duration("ipvs.tcpTimeout", { minimum: 0 })(
      "time-out of idle TCP connections; 0s keeps the kernel's value",
    ),
    "ipvs-tcpfin-timeout": duration("ipvs.tcpFinTimeout", { minimum: 0 })(
      "time-out of TCP connections after a FIN; 0s keeps the kernel's value",
    ),
    "ipvs-udp-timeout": duration("ipvs.udpTimeout", { minimum: 0 })(
      "time-out of idle UDP flows; 0s keeps the kernel's value",
    ),
    "ipvs-drain-timeout": duration(undefined, { minimum: 0, default: "15m" })(
      "longest time for which TCP connections to a removed endpoint may continue; 0s means no limit",
    ),
  }),

  ...group("Kernel", "ignored", {
    "oom-score-adj": integer("N", "oomScoreAdj", { minimum: -1000, maximum: 1000 })(
      "oom_score_adj of the process",
    ),
    "conntrack-max-per-core": integer("N", "conntrack.maxPerCore", INT32)(
      "tracked connections for each CPU; 0 keeps the kernel's value and ignores --conntrack-min",
    ),
    "conntrack-min": integer("N", "conntrack.min", INT32)(
      "least number of tracked connections, whatever the number of CPUs",
    ),
    "conntrack-tcp-timeout-established": duration("conntrack.tcpEstablishedTimeout", {
      minimum: 0,
    })(
      "time-out of idle TCP connections; 0s keeps the kernel's value",
    ),
    "conntrack-tcp-timeout-close-wait": duration("conntrack.tcpCloseWaitTimeout", { minimum: 0 })(
      "time-out of TCP connections in CLOSE_WAIT; 0s keeps the kernel's value",
    ),
    "conntrack-tcp-be-liberal": boolean("conntrack.tcpBeLiberal")(
      "treat packets outside the TCP window as valid",
    ),
    "conntrack-udp-timeout": duration("conntrack.udpTimeout", { minimum: 0 })(
      "time-out of UDP flows without an answer; 0s keeps the kernel's value",
    ),
    "conntrack-udp-timeout-stream": duration("conntrack.udpStreamTimeout", { minimum: 0 })(
      "time-out of UDP flows with answers; 0s keeps the kernel's value",
    ),
  }),

  ...group("Network policy", "wins", {
    "network-policy": boolean("networkPolicy.enabled")(
      "enforce NetworkPolicies for the pods of this node",
    ),
    "network-policy-mode": text("MODE", "networkPolicy.mode", {
      choices: NETWORK_POLICY_CHOICES.mode,
    })(
      "nftables, iptables, or auto for the first of these that the host supports; works together with every " +
        "--proxy-mode. kube-relay never replaces a mode that you name",
    ),
    "network-policy-start": text("WORD", "networkPolicy.start", {
      choices: NETWORK_POLICY_CHOICES.start,
    })(
      "traffic of a pod of this node before its rules are written: open lets everything through, closed lets only traffic from its node through",
    ),
    "network-policy-deny": text("WORD", "networkPolicy.deny", {
      choices: NETWORK_POLICY_CHOICES.deny,
    })(
      "answer to denied traffic: reject sends a TCP reset or an ICMP error, drop sends nothing",
    ),
    "network-policy-log": integer("N", "networkPolicy.logPerMinute", {
      minimum: 0,
      maximum: NETWORK_POLICY_LIMITS.logPerMinute,
    })(
      "log at most this many denied packets of each pod per minute, with the name of the pod, through NFLOG; 0 logs none",
    ),
    "network-policy-log-group": integer("GROUP", "networkPolicy.logGroup", {
      minimum: 0,
      maximum: NETWORK_POLICY_LIMITS.logGroup,
    })(
      "NFLOG group of --network-policy-log, for ulogd or 'tcpdump -i nflog:GROUP'",
    ),
    "network-policy-cut-connections": boolean("networkPolicy.cutConnections")(
      "end open connections that the policies no longer allow",
    ),
    "network-policy-min-sync-period": duration("networkPolicy.minSyncPeriod")(
      "shortest time from the end of one sync of policies to the next; two changes after a quiet time do not wait",
    ),
    "policy-kubeconfig": text("FILE", "networkPolicy.kubeconfig")(
      "kubeconfig whose identity may list and watch pods, namespaces and networkpolicies; the default is the connection that is used for Services",
    ),
  }),

  ...group("Routing", "wins", {
    routing: boolean("routing.enabled")(
      "assign addresses to Services of type LoadBalancer, and announce them",
    ),
    "routing-kubeconfig": text("FILE", "routing.kubeconfig")(
      "kubeconfig whose identity may write Leases and the status of Services; the default is the connection that is used for Services",
    ),
    "load-balancer-pools": list("[NAME=]RANGE", "routing.pools", {
      aliases: ["loadbalancer-ip-range"],
    })(
      "addresses for Services of type LoadBalancer: CIDRs, and ranges such as 192.0.2.10-192.0.2.20; those without a " +
        "name are pool default. Selectors need --config",
    ),
    "routing-objects": boolean("routing.objects")(
      "also read pools and BGP peers from the objects LoadBalancerPool and BgpPeer of the cluster",
    ),
    "load-balancer-classes": list("CLASSES", "routing.loadBalancerClasses", {
      aliases: ["load-balancer-class"],
    })(
      "the spec.loadBalancerClass of Services that get addresses, such as metallb.io/metallb; the default is " +
        "kube-relay.io/load-balancer",
    ),
    "load-balancer-default-class": boolean("routing.defaultLoadBalancerClass", {
      aliases: ["loadbalancer-default-class"],
    })(
      "assign addresses to Services without a spec.loadBalancerClass too",
    ),
    "load-balancer-announce": text("METHOD", "routing.announce", {
      choices: ROUTING_CHOICES.announce,
    })(
      "how the addresses become reachable: layer2 answers ARP and NDP on one node, bgp announces routes, none leaves it to the network",
    ),
    "arp-interfaces": list("NAMES", "routing.layer2.interfaces")(
      "interfaces that may have addresses of layer2; the default is the one with a network that contains the address",
    ),
    "pod-routes": boolean("routing.podNetwork.routes")(
      "write routes to the pods of other nodes in the same subnet, for clusters whose network plugin writes none",
    ),
    overlay: text("WHICH", "routing.podNetwork.overlay", {
      choices: ROUTING_CHOICES.overlay,
      implied: "cross-subnet",
    })(
      "reach the pods of nodes in other subnets (cross-subnet), or of all nodes (always), through IP-in-IP tunnels; implies --pod-routes",
    ),
    "cni-config": text("FILE", "routing.podNetwork.cniConfig", { implied: DEFAULT_CNI_CONFIG })(
      "write the CNI configuration of a bridge with the node's pod ranges to this file; " +
        `without a value, to ${DEFAULT_CNI_CONFIG}`,
    ),
    "pod-masquerade": boolean("routing.podNetwork.masquerade", { aliases: ["enable-pod-egress"] })(
      "give traffic of pods that leaves the cluster the address of the node; only together with --pod-routes, --overlay or --cni-config",
    ),
    bgp: boolean("routing.bgp.enabled")(
      "announce routes by the BIRD whose --bgp-control-socket and --bgp-config-file are given",
    ),
    "bgp-local-as": integer("AS", "routing.bgp.localAs", {
      aliases: ["cluster-asn"],
      minimum: ROUTING_LIMITS.as.from,
      maximum: ROUTING_LIMITS.as.to,
    })(
      "AS number of the node; 0 takes that of the Node's annotation, or else 64512",
    ),
    "bgp-router-id": text("ID", "routing.bgp.routerId", { aliases: ["router-id"] })(
      "router ID as an IPv4 address; the default is the node's IPv4 address, or a hash of its name",
    ),
    "bgp-mesh": boolean("routing.bgp.mesh", { aliases: ["nodes-full-mesh"] })(
      "sessions with all nodes of the same AS, which exchange the ranges of their pods",
    ),
    "bgp-peers": list("AS@ADDRESS[:PORT]", "routing.bgp.peers")(
      "routers that learn the announced prefixes; passwords, BFD and more need --config",
    ),
    "advertise-loadbalancer-ip": boolean("routing.bgp.advertise.loadBalancerIps")(
      "announce load balancer addresses of pools with bgp",
    ),
    "advertise-external-ip": boolean("routing.bgp.advertise.externalIps")(
      "announce the external IPs in --bgp-external-ip-ranges",
    ),
    "advertise-cluster-ip": boolean("routing.bgp.advertise.clusterIps")(
      "announce cluster IPs one by one",
    ),
    "advertise-service-ranges": boolean("routing.bgp.advertise.serviceRanges")(
      "announce the whole ranges of cluster IPs",
    ),
    "advertise-pod-cidr": boolean("routing.bgp.advertise.podCidrs")(
      "announce the ranges of the node's pods to external peers too",
    ),
    "bgp-external-ip-ranges": list("CIDRS", "routing.bgp.externalIpRanges")(
      "external IPs outside of these ranges are never announced",
    ),
    "bgp-control-socket": text("PATH", "routing.bgp.controlSocket")(
      "control socket of the BIRD that kube-relay configures",
    ),
    "bgp-config-file": text("PATH", "routing.bgp.configFile")(
      "the whole configuration of that BIRD, which kube-relay writes",
    ),
  }),

  ...group("Health and metrics", "ignored", {
    "healthz-bind-address": text("IP[:PORT]", "healthzBindAddress")(
      "address of /healthz and /livez",
    ),
    "healthz-port": integer("PORT", undefined, {
      ...PORT,
      default: "10256",
      withConfig: "ignored",
      deprecated: "use --healthz-bind-address",
    })(
      "port of /healthz if --healthz-bind-address has none; 0 turns the server off",
    ),
    "metrics-bind-address": text("IP[:PORT]", "metricsBindAddress")(
      "address of /metrics",
    ),
    "metrics-port": integer("PORT", undefined, {
      ...PORT,
      default: "10249",
      withConfig: "ignored",
      deprecated: "use --metrics-bind-address",
    })(
      "port of /metrics if --metrics-bind-address has none; 0 turns the server off",
    ),
    "bind-address-hard-fail": boolean("bindAddressHardFail")(
      "exit if one of these two addresses cannot be bound, instead of trying again every 5 s",
    ),
    profiling: boolean("enableProfiling")(
      "serve /debug/flags/v on the metrics port; there is no /debug/pprof",
    ),
    "status-page": boolean()(
      "serve a page for browsers on this machine at / of the metrics port: Services, syncs, changes",
    ),
    "show-hidden-metrics-for-version": text("VERSION", "showHiddenMetricsForVersion")(
      "show metrics that were hidden since this release; only the previous minor release is valid",
    ),
  }),

  ...group("Logging", "wins", {
    v: integer("N", "logging.verbosity", INT32)(
      "verbosity of the log: 0 for operators, 2 adds each sync, 4 and more for debugging",
    ),
    vmodule: vmodule("PATTERN=N", "logging.vmodule", { withConfig: "merged" })(
      "verbosity of single components (such as reflector, sync_loop, manifests, conntrack_cleaner) as PATTERN=N; " +
        "patterns of the file apply after these. Only with text logs",
    ),
    "logging-format": text("FORMAT", "logging.format", { choices: ["text", "json"] })(
      "format of the log",
    ),
    "log-flush-frequency": duration("logging.flushFrequency")(
      "longest time for which log lines are buffered; accepted without effect, each line is written at once",
    ),
    "log-text-split-stream": boolean("logging.options.text.splitStream")(
      "errors to standard error and the rest to standard output, with text logs; accepted without effect, and only with feature gate LoggingAlphaOptions",
    ),
    "log-text-info-buffer-size": text("QUANTITY", "logging.options.text.infoBufferSize")(
      "bytes buffered with --log-text-split-stream; accepted without effect, and only with feature gate LoggingAlphaOptions",
    ),
    "log-json-split-stream": boolean("logging.options.json.splitStream")(
      "errors to standard error and the rest to standard output, with json logs; accepted without effect, and only with feature gate LoggingAlphaOptions",
    ),
    "log-json-info-buffer-size": text("QUANTITY", "logging.options.json.infoBufferSize")(
      "bytes buffered with --log-json-split-stream; accepted without effect, and only with feature gate LoggingAlphaOptions",
    ),
  }),

  ...group("Control", "used", {
    "control-socket": text("PATH")(
      "Unix socket for status and other verbs; the default is /run/kube-relay/control.sock for root and a private folder for other users",
    ),
    "state-dir": text("DIR")(
      "folder for the record of additions to the machine, which --cleanup and the next start read; the default is the " +
        "default folder of the control socket, which is cleared at boot",
    ),
  }),

  ...group("Output", "used", {
    json: boolean(undefined, { verbs: ["status", "doctor", "check", "explain", "trace", "diff"] })(
      "print JSON for programs instead of text",
    ),
    changes: boolean(undefined, { verbs: ["status"] })(
      "show the last changes: the object, the effect, and the duration",
    ),
    last: integer("N", undefined, { minimum: 1, default: "20", verbs: ["status"] })(
      "with --changes: most changes to show, the newest ones",
    ),
    verbose: boolean(undefined, { verbs: ["doctor"] })(
      "print the machine and every tested feature, too",
    ),
    watch: boolean(undefined, { verbs: ["status"] })(
      "show the state on the whole terminal and update it until q is pressed",
    ),
    wait: duration(undefined, { minimum: 1, default: "30s", verbs: ["trace"] })(
      "longest time to wait for a packet from another sender",
    ),
    all: boolean(undefined, { verbs: ["status"] })(
      "list all Services and problems, however many there are",
    ),
    cluster: boolean(undefined, { verbs: ["status"] })(
      "show the state of every node of the cluster, asked through the API server",
    ),
    context: text("NAME", undefined, { verbs: ["status"] })(
      "with --cluster, the context of the kubeconfig; the default is its current one",
    ),
    problems: boolean(undefined, { verbs: ["status"] })("list only the problems, and all of them"),
    check: boolean(undefined, { verbs: ["status"] })(
      "exit with status 1 if anything is wrong, for monitoring",
    ),
    filter: text("TEXT", undefined, { verbs: ["status"] })(
      "only Services whose namespace/name begins with this text or contains it as a whole word",
    ),
    from: text("FILE", undefined, { verbs: ["render", "explain", "status", "diff"] })(
      "use the state in this file, written by 'kube-relay dump FILE', on any machine",
    ),
    policies: text("NAMESPACE", undefined, { verbs: ["explain"] })(
      "print which pods reach each other in this namespace, and which others reach them, by NetworkPolicies",
    ),
    sni: text("NAME", undefined, { verbs: ["explain"] })(
      "the server name that the client asks for by TLS, where Services share an address by it",
    ),
    repair: boolean(undefined, { verbs: ["diff"] })(
      "have the running process repair the differences from its plan",
    ),
    service: text("NAMESPACE/NAME", undefined, { verbs: ["render", "diff"] })(
      "only objects of this Service, and the rules that lead to them",
    ),
    // The pattern: as Kubernetes' objects have them.
    family: text(undefined, undefined, {
      choices: ["ipv4", "ipv6"],
      pattern: /^IPv[46]$/,
      verbs: ["render", "diff"],
    })(
      "only this IP family; the default is both, one after the other",
    ),
  }),

  ...group("Commands", "used", {
    cleanup: boolean()(
      "remove everything that any earlier run added to the machine, and exit",
    ),
    "init-only": boolean()(
      "do the privileged setup once, and exit; later runs need only CAP_NET_ADMIN",
    ),
    "write-config-to": text("FILE", undefined, { emptyIsAbsent: true, verbs: ["write-config"] })(
      "write the effective configuration to this file, and exit",
    ),
    takeover: boolean()(
      "start although a kube-proxy runs on this node, and remove its leftovers",
    ),
    "dry-run": boolean()(
      "with --cleanup or --takeover: print the actions, and do nothing",
    ),
    version: text(undefined, undefined, {
      choices: ["true", "false", "raw"],
      pattern: /^v\d+\.\d+\.\d+/,
      patternHelp: "a version such as v1.36.0",
      default: "false",
      implied: "true",
    })(
      "print the version and exit; raw prints more details. A version such as v1.36.0 is accepted without effect",
    ),
    help: boolean(undefined, { aliases: ["h"] })(
      "print this help and exit",
    ),
  }),

  // Manifests of older or other kube-proxies still use these. Nothing reads them. kube-relay logs them,
  // so that such a manifest keeps working; upstream refuses to start with them. Booleans take no value as
  // the next argument, all others do.
  ...group("Retired", "used", {
    "cleanup-iptables": retired("boolean", "has no effect; use --cleanup"),
    "cleanup-ipvs": retired("boolean", "has no effect; use --cleanup"),
    "proxy-port-range": retired(
      "text",
      "of kube-proxy's old userspace mode, which bound such ports; has no effect",
    ),
    "conntrack-max": retired(
      "text",
      "has no effect; use --conntrack-max-per-core and --conntrack-min",
    ),
    "resource-container": retired(
      "text",
      "has no effect; the supervisor chooses the control group",
    ),
    "azure-container-registry-config": retired("text", LINKED_IN),
    "google-json-key": retired("text", LINKED_IN),
    "boot-id-file": retired("text", LINKED_IN),
    "machine-id-file": retired("text", LINKED_IN),
    logtostderr: retired("boolean", KLOG_FILES),
    alsologtostderr: retired("boolean", KLOG_FILES),
    "log-dir": retired("text", KLOG_FILES),
    "log-file": retired("text", KLOG_FILES),
    "log-file-max-size": retired("text", KLOG_FILES),
    "log-backtrace-at": retired("text", "has no effect"),
    "skip-headers": retired("boolean", KLOG_FORM),
    "skip-log-headers": retired("boolean", KLOG_FILES),
    stderrthreshold: retired("text", KLOG_FILES),
    "add-dir-header": retired("boolean", KLOG_FORM),
    "one-output": retired("boolean", KLOG_FILES),
    "windows-service": retired("boolean", WINDOWS),
    "network-name": retired("text", WINDOWS),
    "source-vip": retired("text", WINDOWS),
    "enable-dsr": retired("boolean", WINDOWS),
    "root-hnsendpoint-name": retired("text", WINDOWS),
    "forward-healthcheck-vip": retired("boolean", WINDOWS),
  }),
};

/** Name of a flag in the table. */
export type FlagName = keyof typeof FLAGS;

/** The values of the flags that were given. */
export type FlagValues = {
  readonly [Name in FlagName]?: FlagValue<typeof FLAGS[Name]["type"]>;
};

/** The rows of the table. */
export const FLAG_ROWS = Object.values(FLAGS) as readonly (Flag & { readonly name: FlagName })[];

/** Returns the row of a name or an alias. `_` and `-` are equal, as in kube-proxy. */
export function findFlag(name: string): typeof FLAG_ROWS[number] | undefined {
  const wanted = name.replaceAll("_", "-");
  return FLAG_ROWS.find((flag) => flag.name === wanted || flag.aliases?.includes(wanted));
}
