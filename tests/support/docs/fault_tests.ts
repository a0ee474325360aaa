/**
 * The test or case that shows each fault of docs/faults.md, by file and name. A file of tests/config is a case
 * by itself. A name may be a template of several tests.
 *
 * @module
 */

/** The tests, by the text of the fault on the page. */
export const FAULT_TESTS: Readonly<
  Record<string, readonly (readonly [path: string, name?: string])[]>
> = {
  "an invalid address, range or port": [
    ["tests/config/invalid/many_at_once.yaml"],
  ],
  "leading zeros in an address": [
    ["lib/proxy/service_port_test.ts", "reads leading zeros as decimal"],
    ["lib/proxy/endpoint_test.ts", "reads leading zeros as decimal"],
    ["tests/config/valid/odd_but_valid.yaml"],
  ],
  "an unknown field": [
    ["tests/config/valid/unknown_fields.yaml"],
  ],
  "an unknown feature gate": [
    ["tests/config/invalid/gate_unknown.yaml"],
    ["tests/config/valid/gates_of_others.yaml"],
  ],
  "the file cannot be read": [
    ["lib/config/load_test.ts", "loadConfiguration() reports that a file cannot be read, and why"],
  ],
  "the file becomes invalid or is removed while running": [
    [
      "lib/config/configuration_watch_test.ts",
      "watchConfiguration() keeps the last good configuration while the file is wrong or gone",
    ],
  ],
  "the file is a named pipe, or becomes one": [
    [
      "tests/hostile_manifests_test.ts",
      "a named pipe next to the configuration file does not delay kube-relay",
    ],
  ],
  "`minSyncPeriod` above 1 h": [
    ["tests/config/invalid/iptables_min_sync_period_above_an_hour.yaml"],
  ],
  "an impossible interface name": [
    ["tests/config/invalid/bridge_no_interface_name.yaml"],
    ["tests/config/invalid/prefix_no_interface_name.yaml"],
  ],
  "`clusterCIDR` 0.0.0.0/0": [
    ["lib/proxy/local_traffic_test.ts", "knows nothing by a range that contains every address"],
  ],
  "an endless file, a pipe": [
    [
      "lib/config/configuration_file_test.ts",
      "readConfigurationText() reports an endless file as a problem",
    ],
    [
      "lib/app/run/configuration_reload_test.ts",
      "startConfigurationReload() reads no pipe for a second time",
    ],
  ],
  "a pipe without a writer": [
    [
      "lib/os/read_text_up_to_test.ts",
      "readTextUpTo() gives up a pipe that is silent, and leaves no thread in the kernel",
    ],
    [
      "tests/signals_test.ts",
      "the first signal ends a verb while it reads a pipe without a writer",
    ],
  ],
  "a key or password file given by mistake": [
    ["tests/secret_files_test.ts", "a key and a certificate"],
  ],
  "control characters in an argument, a file or a name": [
    [
      "lib/tools/cli/command_line_test.ts",
      "runCommandLine() lets no control character of an argument or a file reach the terminal",
    ],
  ],
  "a machine without a name, or with a name that no Node can have": [
    ["lib/app/run/start_up_node_test.ts", "nodeNameOf() throws if no name is configured"],
    ["lib/app/run/start_up_node_test.ts", "StartUp says at once that no Node can have its name"],
  ],
  "an invalid external IP": [
    [
      "lib/proxy/service_port_test.ts",
      "uses external IPs of its family, each once, and reports invalid ones",
    ],
  ],
  "an invalid source range": [
    [
      "lib/proxy/service_port_test.ts",
      "admit no client if none is valid, while upstream admits all",
    ],
  ],
  "an invalid load balancer address, or a host name": [
    [
      "lib/proxy/service_port_test.ts",
      "uses load balancer addresses of its family whose ipMode is unset or VIP",
    ],
  ],
  "an EndpointSlice without Service, name or namespace": [
    ["lib/proxy/endpoint_tracker_test.ts", "no label"],
    ["lib/proxy/endpoint_tracker_test.ts", "an empty namespace"],
  ],
  "a port of a slice without number": [
    ["lib/proxy/endpoint_test.ts", "leaves out ports without number"],
  ],
  "an endpoint without an address": [
    ["lib/proxy/endpoint_test.ts", "leaves out an endpoint without address"],
  ],
  "a slice of type FQDN or of an unknown type": [
    ["lib/proxy/endpoint_tracker_test.ts", "a slice of host names"],
    [
      "lib/proxy/endpoint_tracker_test.ts",
      "EndpointTracker serves by Endpoints next to a slice of host names, as if that were absent",
    ],
  ],
  "a field of the wrong type, an object of another kind": [
    ["lib/kube/slim_test.ts", "slimObject() never throws, whatever the object is"],
    [
      "lib/kube/api_source_test.ts",
      "ApiSource.run() keeps the former state of an object that can no longer be read (streaming lists: ${streamingLists})",
    ],
  ],
  "an invalid trigger time": [
    ["lib/proxy/endpoint_tracker_test.ts", "Fri, 02 Jan 2026 03:04:05 GMT"],
  ],
  "an endpoint outside the pod range, or in the host network": [
    ["lib/proxy/endpoint_test.ts", "accepts an address in any range, of a host network too"],
  ],
  "two Services with the same address and port": [
    [
      "lib/proxy/frontend_owners_test.ts",
      "FrontendOwners gives an address to the oldest Service, then to the first by name",
    ],
    ["tests/packet_flow/cases.ts", "external IP of two Services, its owner has no endpoints"],
  ],
  "a Service with more than 100,000 frontends, an object with more than 100,000 endpoints": [
    [
      "lib/proxy/service_port_test.ts",
      "servicePortsFromService() accepts 100,000 frontends at most: ${what}",
    ],
    [
      "lib/proxy/endpoint_test.ts",
      "endpointsFromSlice() gives 100,000 endpoints at most, and names the first port too many",
    ],
  ],
  "a Service with more than 200,000 real servers (ipvs mode)": [
    [
      "backends/ipvs/quarantine_test.ts",
      "IpvsBackend leaves out ports of a Service with more than 200,000 real servers",
    ],
  ],
  "port 0, an unknown protocol": [
    [
      "lib/proxy/service_port_test.ts",
      "servicePortsFromService() leaves out a bad port and keeps the good ones",
    ],
    ["lib/proxy/endpoint_test.ts", "leaves out a port of an unknown protocol and keeps the others"],
  ],
  "SCTP in userspace mode": [
    [
      "backends/userspace/backend_test.ts",
      "UserspaceBackend quarantines SCTP, and names the modes that support it",
    ],
  ],
  "an endpoint that is an address of a Service (userspace mode)": [
    [
      "tests/netns/loops_test.ts",
      "Services in a circle accept no connection and no datagram, and are named; others work",
    ],
  ],
  "a rule that leads an endpoint back to a Service (userspace mode)": [
    [
      "tests/netns/loops_test.ts",
      "a rule that leads an endpoint back to a Service costs a few connections, not all of them",
    ],
  ],
  "kubeconfig missing or invalid": [
    [
      "lib/kube/kubeconfig_test.ts",
      "loadKubeAuth() names what cannot be read: no file, an endless one, a --master that is no URL",
    ],
    [
      "lib/kube/kubeconfig_test.ts",
      "loadKubeAuth() names the line of a YAML error, and shows nothing of it",
    ],
    [
      "tests/netns/failed_start_test.ts",
      "a start without a kubeconfig leaves nothing on the node: ${name}",
    ],
  ],
  "no kubeconfig, and not in a pod": [
    [
      "lib/kube/kubeconfig_test.ts",
      "loadKubeAuth() finds KUBECONFIG, then the account of the pod, then --master alone",
    ],
  ],
  "API server unreachable at the start": [
    [
      "tests/health_contract_test.ts",
      "the health port answers from the first moment, and names the phase",
    ],
    [
      "lib/kube/reflector_test.ts",
      "Reflector.run() never gives up a required kind, and reports it once",
    ],
  ],
  "API server unreachable later": [
    [
      "tests/conformance/suite.ts",
      "ApiSource keeps what it knows while the server is dead, and catches up",
    ],
    [
      "tests/netns/trouble_test.ts",
      "an API server that is frozen or gone: everything known keeps working, and what is new comes",
    ],
  ],
  "a connection that became silent": [
    ["tests/conformance/suite.ts", "ApiSource replaces a connection that swallows everything"],
  ],
  "history compacted during an outage": [
    [
      "tests/conformance/suite.ts",
      "ApiSource relists without churn when its version was forgotten",
    ],
  ],
  "an endless watch line, object or list, or endless nesting": [
    [
      "lib/kube/watch_stream_test.ts",
      "decodeWatch() ends an endless line, and leaves the connection",
    ],
    [
      "lib/kube/client_test.ts",
      "KubeClient leaves an answer of ${status} that has no end after ${longest} bytes",
    ],
  ],
  "an API server that floods frames without an answer": [
    [
      "lib/kube/hostile_http2_test.ts",
      "HTTP/2 transport ends a connection that brings nothing but ${name}",
    ],
  ],
  "a rotated token": [
    [
      "tests/conformance/suite.ts",
      "ApiSource takes the new token from its file when the former one is refused",
    ],
  ],
  "a kubeconfig that names another server later": [
    [
      "lib/kube/kubeconfig_test.ts",
      "loadKubeAuth() keeps an identity whole when the kubeconfig names another server",
    ],
  ],
  "a client certificate and a key that do not belong together": [
    [
      "lib/kube/kubeconfig_test.ts",
      "loadKubeAuth() names both files of a certificate and a key that do not belong together",
    ],
  ],
  "a credential plugin that fails, or whose credentials are refused": [
    [
      "lib/kube/kubeconfig_test.ts",
      "a credential plugin waits longer each time between runs while it ${name}",
    ],
  ],
  "no right to read ServiceCIDRs or the Node": [
    [
      "lib/kube/api_source_test.ts",
      "ApiSource.run() continues without ServiceCIDRs and Node that it may not read",
    ],
    [
      "tests/conformance/outage_tests.ts",
      "ApiSource follows Node and ServiceCIDRs soon after a server that refused everything at first",
    ],
    [
      "tests/conformance/outage_tests.ts",
      "ApiSource requests what the server lacked for long again when it comes back",
    ],
  ],
  "missing Node": [
    [
      "lib/app/run/start_up_node_test.ts",
      "StartUp continues with loopback after 30 s, and adopts addresses that appear later",
    ],
    ["tests/health_contract_test.ts", "nothing is known, no Node either"],
  ],
  "a missing program of the mode": [
    [
      "lib/app/run/choose_mode_test.ts",
      "chooseMode() refuses a mode that was asked for, naming all that is missing",
    ],
    ["backends/iptables/probe_test.ts", "probeIptablesMode() reports tools that are not installed"],
  ],
  "no IPv6 on the machine": [
    ["lib/app/run/choose_mode_test.ts", "uses the addresses if sysctl is missing"],
  ],
  "a missing match or target of the kernel": [
    ["backends/iptables/probe_test.ts", "probeIptablesMode() works without optional features"],
    [
      "backends/iptables/backend_test.ts",
      "IptablesBackend serves all other Services on a kernel without '${extension}'",
    ],
    ["tests/netns/probe_test.ts", "doctor tells which tool is hidden, and what that costs"],
  ],
  "both variants of iptables, or tools of another version": [
    [
      "backends/netfilter/iptables/iptables_variant_test.ts",
      "chooseIptables() chooses the engine with the kubelet's chain, then the one with more rules",
    ],
  ],
  "iptables older than 1.6.2": [
    ["backends/iptables/probe_test.ts", "probeIptablesMode() works without optional features"],
  ],
  "nft too old, or missing": [
    [
      "backends/nftables/probe_test.ts",
      "probeNftablesMode() keeps kube-proxy's bounds for nft and the kernel",
    ],
    [
      "tests/netns/probe_test.ts",
      "an nft that is too old ends nftables mode with its version, and auto continues without it",
    ],
    [
      "lib/app/run/choose_mode_test.ts",
      "chooseMode() continues as auto with one warning when iptables cannot be had",
    ],
  ],
  "nfacct missing": [
    [
      "tests/netns/packet_counters_test.ts",
      "iptables mode (${variant}) serves everything if nfacct does not work",
    ],
    [
      "backends/iptables/base_chains_test.ts",
      "baseChains() drop invalid packets unless conntrack is liberal, and count them",
    ],
  ],
  "another program deletes the packet counters of nfacct": [
    [
      "tests/netns/packet_counters_test.ts",
      "iptables mode (${variant}) creates counters again that another program deletes",
    ],
  ],
  "a sysctl that cannot be written": [
    [
      "lib/app/run/host_settings_test.ts",
      "HostSettings continues after a refusal, and names the command for an admin",
    ],
    [
      "lib/tools/status/status_answer_test.ts",
      "statusAnswer() begins with a summary and all problems",
    ],
  ],
  "`oom_score_adj` cannot be written": [
    ["lib/app/run/start_up_test.ts", "StartUp sets the OOM score of a process that ${name}"],
    [
      "lib/app/run/start_up_test.ts",
      "StartUp is quiet for a plain user without a cluster, if the OOM score is refused",
    ],
  ],
  "the connection table cannot be read": [
    [
      "lib/app/service/conntrack_cleaner_test.ts",
      "ConntrackCleaner keeps its work until it succeeds, and warns once",
    ],
  ],
  "a health check node port is in use": [
    [
      "lib/health/service_health_server_test.ts",
      "ServiceHealthServer reports a port in use, keeps the others, and tries again at the next sync",
    ],
    [
      "lib/app/service/service_health_test.ts",
      "createServiceHealth() reports a port in use by an event on the Service, and counts it",
    ],
  ],
  "port 10256 or 10249 is in use": [
    ["tests/bind_contract_test.ts", "that is taken is tried again every 5 s"],
    ["tests/bind_contract_test.ts", "that is taken ends the process with --bind-address-hard-fail"],
  ],
  "a kube-proxy runs on the node": [
    [
      "tests/netns/takeover_test.ts",
      "takeover: next to a live kube-proxy, kube-relay does not start, and changes nothing",
    ],
    [
      "tests/netns/takeover_test.ts",
      "takeover: no connection fails while kube-relay starts and kube-proxy stops",
    ],
    [
      "lib/os/http_server_test.ts",
      "runHttpServer() answers one try after a handover, and calls the wait no error",
    ],
  ],
  "a Service port of userspace mode is in use, or an address is refused": [
    [
      "tests/netns/trouble_test.ts",
      "quarantine: a port in use and a refused address are named; other Services work",
    ],
  ],
  "a library prints a warning, or an error ends the process": [
    [
      "tests/standard_error_test.ts",
      "kube-relay turns output of libraries, and uncaught errors, into lines of its log",
    ],
  ],
  "clients or Services that could use up all open files": [
    [
      "tests/open_files_test.ts",
      "kube-relay serves other clients when clients and Services ask for all of its open files",
    ],
  ],
  "UDP clients that could use up all source ports of the node": [
    [
      "tests/netns/udp_ports_test.ts",
      "clients of one Service leave UDP source ports to others and to the node (workers: ${workers})",
    ],
    [
      "tests/udp_bounds_test.ts",
      "a flood of UDP clients of two Services leaves both to new clients (workers: ${workers})",
    ],
  ],
  "clients or endpoints that are gone while the other side reads nothing": [
    [
      "backends/userspace/engine_test.ts",
      "Relay.closeIfGone() closes the connections of the ${gone} that has reset its connection ${name}",
    ],
    [
      "backends/userspace/tcp/tcp_forwarder_test.ts",
      "TcpForwarder looks once an hour whether silent clients are gone",
    ],
  ],
  "a UDP datagram that circles between nodes whose endpoints are each other's node ports": [
    [
      "backends/userspace/udp/udp_forwarder_test.ts",
      "UdpForwarder ends the circle of a datagram through ${count} nodes",
    ],
  ],
  "a Service with more addresses than its share of listening sockets": [
    [
      "backends/userspace/service_sockets_test.ts",
      "ServiceSockets quarantines a ServicePort once for all addresses beyond its share of sockets",
    ],
  ],
  "no more files can be opened": [
    [
      "tests/open_files_test.ts",
      "kube-relay survives a time without free files, and continues as before",
    ],
  ],
  "a bug in a timer, an event or a promise": [
    [
      "lib/os/uncaught_errors_test.ts",
      "UncaughtErrors handles errors from every source, and the process continues",
    ],
  ],
  "a worker of userspace mode ends": [
    [
      "backends/userspace/workers/worker_restart_test.ts",
      "a worker that ends under load is replaced, and the others lose nothing",
    ],
  ],
  "a worker of userspace mode does not start": [
    [
      "lib/os/worker_pool_test.ts",
      "WorkerPool starts a thread again that is silent for 30 s, and continues with the others",
    ],
  ],
  "a worker of userspace mode hangs": [
    [
      "lib/os/worker_pool_test.ts",
      "WorkerPool.run() rejects when a thread hangs, and resolves when it is to end",
    ],
  ],
  "the main thread of userspace mode stands still": [
    [
      "backends/userspace/workers/worker_forwarders_test.ts",
      "workers forward while the main thread stands still, also with limits, affinity and loads",
    ],
  ],
  "the process is killed": [
    [
      "tests/netns/restart_test.ts",
      "restart: after kill -9 the addresses stay, and new connections work after a start: ${kind}",
    ],
  ],
  "endpoints change while the process is down": [
    [
      "tests/netns/endpoint_changes_test.ts",
      "endpoints of ${mode.name} are added and removed while it is dead: no connection fails",
    ],
  ],
  "a pod is removed while the process is down": [
    [
      "tests/netns/endpoint_changes_test.ts",
      "a pod that is removed while ${mode.name} is dead gets packets until the next start",
    ],
  ],
  "clients connect before the first endpoint is ready": [
    [
      "tests/netns/endpoint_changes_test.ts",
      "rollout in ${mode.name}: the first ready endpoint waits for no pod that is not ready",
    ],
  ],
  "a sync fails": [
    [
      "lib/app/service/services_test.ts",
      "ServiceFamily keeps the changes of failed syncs and retries, the first sync included",
    ],
    [
      "lib/app/service/services_test.ts",
      "ServiceFamily turns unhealthy while its syncs fail for a minute, and recovers",
    ],
    [
      "lib/engine/sync_periods_test.ts",
      "retryBackoff() doubles from 0.2 s to 10 s and adds at most a tenth",
    ],
  ],
  "the lock of iptables is held": [
    [
      "backends/netfilter/iptables/iptables_runner_test.ts",
      "IptablesRunner restores without a flush, and waits for the lock only so long",
    ],
    [
      "tests/netns/iptables_faults_test.ts",
      "iptables faults (legacy): another program holds the lock for seconds; the sync comes after it",
    ],
    [
      "backends/iptables/sequences_test.ts",
      "sequence: the lock of iptables is held when a table is checked for a flush; that is no drift and no warning",
    ],
  ],
  "a check for a rule hangs": [
    ["backends/iptables/sequences_test.ts", "sequence: ${point}: a command that ${what}${after}"],
  ],
  "a chain or jump cannot be made": [
    [
      "backends/iptables/target_property_test.ts",
      "the engine gives the rules of a rendering from nothing, whatever happened before",
    ],
  ],
  "iptables-restore refuses all or a part": [
    [
      "backends/iptables/backend_test.ts",
      "IptablesBackend quarantines refused rules, by a tool that ${how}",
    ],
    ["backends/iptables/sequences_test.ts", "sequence: ${point}: only the second table is refused"],
    [
      "backends/iptables/target_test.ts",
      "the rules: the engine ${how} refused rules while the others stay in force",
    ],
    [
      "backends/iptables/target_test.ts",
      "the rules: the engine ${how} refused rules, and blames none if the table takes none",
    ],
  ],
  "a rule in `ip nat` or `ip filter` that iptables cannot print": [
    [
      "backends/iptables/target_test.ts",
      "the rules: the engine continues in a table that the tool cannot print",
    ],
    [
      "backends/iptables/backend_test.ts",
      "IptablesBackend warns once about an unreadable table, and serves",
    ],
  ],
  "a transaction or listing of nft fails": [
    [
      "tests/support/stages/compare_tests.ts",
      "${name}: an object that the kernel refused is no difference, no repair writes it, and a start leaves it out too",
    ],
    [
      "tests/netns/nftables_test.ts",
      "rules and elements that another program changes are repaired within seconds, and counted",
    ],
  ],
  "the kernel omits elements of a listing while it resizes a map": [
    [
      "backends/netfilter/nft/nft_runner_test.ts",
      "NftRunner reads a listing that has an element twice again, but not for ever",
    ],
  ],
  "rules are compared while Services keep changing, or after a failed sync": [
    [
      "backends/netfilter/rule_plane_test.ts",
      "RulePlane does not count as drift what a sync has failed to write",
    ],
    [
      "backends/nftables/diff_test.ts",
      "a check leaves endpoints the numbers that they were given when they came",
    ],
    [
      "tests/netns/churn_test.ts",
      "churn: ${changes} random changes in ${mode.name} leave the state of a fresh start",
    ],
  ],
  "nft is killed, hangs or fails": [
    ["backends/nftables/sequences_test.ts", "sequence: ${point}: a command that ${what}${after}"],
  ],
  "another program on the node uses nft 1.1.2 or newer, and the nft here is older: it crashes": [
    [
      "tests/netns/newer_nft_test.ts",
      "a newer nft of another program: a start names the versions, the table and the remedy",
    ],
    [
      "tests/netns/newer_nft_test.ts",
      "a newer nft of another program: a running kube-relay reports it, and recovers",
    ],
    [
      "tests/netns/newer_nft_test.ts",
      "a newer nft of another program: doctor and --cleanup name the remedy",
    ],
  ],
  "the nft that stays for small writes is killed, stopped or hangs": [
    [
      "tests/netns/held_nft_test.ts",
      "a held nft that is stopped has ended before its text is applied by another",
    ],
  ],
  "the nftables tables of the proxy are deleted or flushed": [
    [
      "tests/netns/nftables_faults_test.ts",
      "nftables faults: a running kube-relay repairs damage that packets would notice",
    ],
  ],
  "a chain, rule or element of the proxy is changed, deleted or added in nftables": [
    [
      "tests/netns/diff_test.ts",
      "${mode.name}: diff names each damage, and a repair corrects nothing else",
    ],
    [
      "tests/netns/nftables_test.ts",
      "rules and elements that another program changes are repaired within seconds, and counted",
    ],
  ],
  "a base chain of the proxy gets policy drop, or another priority": [
    ["tests/support/stages/damage/nftables_damage.ts", "a base chain drops by its policy"],
    [
      "tests/support/stages/damage/nftables_damage.ts",
      "a base chain is hooked at another priority",
    ],
  ],
  "a table of the proxy's name in another layout": [
    [
      "tests/netns/rule_modes_takeover_test.ts",
      "nftables mode in place of its ${mark}: no connection fails",
    ],
  ],
  "more clients with affinity than one set can hold": [
    [
      "tests/netns/nftables_packets_test.ts",
      "70,000 other clients change nothing, and further clients are remembered",
    ],
  ],
  "the dummy device or a set of ipvs cannot be made": [
    [
      "backends/ipvs/backend_test.ts",
      "IpvsBackend reports a device or set that cannot be created, and retries",
    ],
  ],
  "a tool of ipvs refuses a line of its input": [
    [
      "backends/ipvs/quarantine_test.ts",
      "IpvsBackend puts the ServicePort of '${line}' into quarantine, and it alone",
    ],
  ],
  "a UDP client keeps one socket while its Service or endpoint is added, changed or removed": [
    [
      "tests/netns/udp_flows_test.ts",
      "${name} serves UDP clients whose sockets are older than the Service",
    ],
    [
      "tests/uml/udp_flows_test.ts",
      "ipvs mode serves UDP clients whose sockets are older than the Service",
    ],
  ],
  "`ipvsadm -C`, or `kube-ipvs0` is deleted": [
    [
      "tests/uml/ipvs_test.ts",
      "ipvs mode restores objects that other programs remove, and leaves foreign ones alone",
    ],
  ],
  "the kernel omits a virtual server from its list because another one was removed meanwhile": [
    [
      "backends/ipvs/backend_test.ts",
      "IpvsBackend reads again if the kernel left out a virtual server",
    ],
  ],
  "killed during a sync of ipvs mode": [
    [
      "tests/uml/ipvs_handover_test.ts",
      "takeover by ipvs mode from a dead kube-proxy's, restarts and kill -9: no connection fails",
    ],
  ],
  "a foreign virtual server at a Service's address and port": [
    [
      "backends/ipvs/taken_servers_test.ts",
      "IpvsBackend reports a new Service at the address of a foreign virtual server",
    ],
  ],
};
