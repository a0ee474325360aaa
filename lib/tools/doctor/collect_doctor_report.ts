import type { Dependencies } from "../../app/dependencies.ts";
import { NODE_PORT_CURE } from "../../app/service/service_status.ts";
import { featureEnabled } from "../../config/feature_gates.ts";
import { routingSettingsOf } from "../../config/parse_routing.ts";
import { KUBE_PROXY_RELEASE, VERSION } from "../../config/version.ts";
import { IP_FAMILIES, isUnspecified, parseIpAddress } from "../../net/ip_address.ts";
import { CommandError } from "../../os/command_runner.ts";
import { readLocalPorts, shareLocalPorts } from "../../os/open_files.ts";
import { defaultRouteSource } from "../../os/route_source.ts";
import { OUT_OF_PORTS_CURE } from "../../os/socket_errors.ts";
import { toolsPathProblem } from "../../os/tools_path.ts";
import { MODE_TRAITS, nodePortEntries } from "../../proxy/backend.ts";
import { bySeverity, findingOf, type HostFinding } from "../../proxy/host_checks.ts";
import type { DoctorReport, Edges, Examination, Examined } from "./doctor_report.ts";
import { examineApi } from "./examine_api.ts";
import { examineModes } from "./examine_modes.ts";
import { examinePolicy } from "./examine_policy.ts";
import { examineRelay } from "./examine_relay.ts";
import { examineRouting } from "./examine_routing.ts";

/** What a machine is examined for once its modes are known, one after the other. */
const EXAMINATIONS: readonly Examination[] = [
  examineNodePorts,
  examineToolsPath,
  findForeignSoftware,
  examinePolicy,
  examineRouting,
  examineUserspace,
  examineExternalIps,
];

/**
 * Examines the machine. Removes everything that was added for a test. `configuredBy` is the source of the
 * configuration; `unusedFlags` says why the flags of the running process or of the unit are not used.
 */
export async function collectDoctorReport(
  edges: Edges,
  configuredBy: string,
  unusedFlags: readonly string[],
): Promise<DoctorReport> {
  const [machine, api, relay] = await Promise.all([
    examineMachine(edges),
    examineApi(edges),
    examineRelay(edges.configuration.relay.controlSocket),
  ]);
  const modes = await examineModes(edges, relay.fact.state !== "not running");
  const examined: Examined = {
    ...edges,
    machine,
    modes: modes.modes,
    mode: modes.fact.mode,
    relay: relay.fact,
    nodeAnnotations: api.nodeAnnotations ?? relay.nodeAnnotations,
  };
  const findings = [
    ...findingOf(unusedFlags, {
      id: "flags-in-use",
      severity: "warning",
      summary: "The flags in use on this machine are not known; a start without flags is checked",
      cure: "give doctor the flags of the start",
    }),
    ...modes.findings,
    ...api.findings,
    ...relay.findings,
  ];
  for (const examine of EXAMINATIONS) findings.push(...await examine(examined));
  return {
    program: {
      version: VERSION,
      kubeProxy: KUBE_PROXY_RELEASE,
      deno: Deno.version.deno,
      platform: `${Deno.build.os}/${Deno.build.arch}`,
    },
    machine,
    configuredBy,
    modes: modes.modes,
    choice: modes.fact,
    api: api.fact,
    relay: relay.fact,
    findings: bySeverity(findings),
  };
}

async function examineMachine(
  { dependencies, configuration: { relay }, signal }: Edges,
): Promise<DoctorReport["machine"]> {
  const { hostname, kernelRelease, uid } = dependencies.process;
  const capabilities = await toolCapabilities(dependencies, signal);
  return {
    hostname,
    toolsPath: relay.toolsPath,
    ...(kernelRelease !== undefined && { kernel: kernelRelease }),
    ...(uid !== undefined && { uid }),
    ...(capabilities !== undefined && { capabilities }),
  };
}

/** The capabilities that kube-relay's tools have use for, by their number in `linux/capability.h`. */
const CAPABILITIES = [
  ["CAP_NET_BIND_SERVICE", 10n],
  ["CAP_NET_ADMIN", 12n],
  ["CAP_NET_RAW", 13n],
  ["CAP_SYS_MODULE", 16n],
  ["CAP_SYS_ADMIN", 21n],
  ["CAP_SYS_RESOURCE", 24n],
] as const;

/**
 * Returns which of {@linkcode CAPABILITIES} a started tool has; undefined if they cannot be determined.
 * `cat` reads its own file: the rights of tools count (those of root, or the ambient ones of a unit), and
 * Deno itself may not open the file.
 */
async function toolCapabilities(
  { commands }: Pick<Dependencies, "commands">,
  signal: AbortSignal,
): Promise<readonly string[] | undefined> {
  try {
    const options = { signal, timeoutMs: 2000 };
    const { stdout } = await commands.run("cat", ["/proc/self/status"], options);
    const [, mask] = /^CapEff:\s*([0-9a-f]{1,16})$/m.exec(stdout) ?? [];
    if (mask === undefined) return undefined;
    const bits = BigInt(`0x${mask}`);
    return CAPABILITIES.filter(([, number]) => (bits >> number) & 1n).map(([name]) => name);
  } catch (error) {
    if (error instanceof CommandError && error.kind !== "aborted") return undefined;
    throw error;
  }
}

/** Finds a host without a cluster whose node ports would be on an address that is not known. */
async function examineNodePorts(
  { dependencies: { commands }, configuration: { relay, proxy }, mode }: Examined,
): Promise<readonly HostFinding[]> {
  const isPrimary = mode && nodePortEntries(proxy.nodePortAddresses, mode).includes("primary");
  const isNamed = !isUnspecified(parseIpAddress(proxy.bindAddress));
  if (relay.manifests.length === 0 || !isPrimary || isNamed) return [];
  const found = await Promise.all(
    IP_FAMILIES.map((family) => defaultRouteSource(commands, family)),
  );
  if (found.some((address) => address !== undefined)) return [];
  return findingOf(["there is no default route, and only a Node in the manifests could name it"], {
    id: "node-ports",
    severity: "warning",
    summary: "The primary address of this host, which serves node ports, is not known",
    cure: NODE_PORT_CURE,
  });
}

function examineToolsPath(
  { dependencies: { process }, configuration: { relay } }: Examined,
): readonly HostFinding[] {
  const problem = toolsPathProblem(relay.toolsPath, process.env("PATH"));
  return findingOf(problem ? [problem.reason] : [], {
    id: "tools-path",
    severity: "warning",
    summary: "The folders of --tools-path are not searched",
    cure: problem?.cure,
  });
}

/** Comes after the modes: their test chains must not be reported as foreign. */
async function findForeignSoftware(
  { dependencies, configuration: { proxy }, relay, nodeAnnotations, signal }: Examined,
): Promise<readonly HostFinding[]> {
  const { networkPolicy, routing } = proxy;
  const { pools, defaultLoadBalancerClass, bgp } = routingSettingsOf(routing);
  return await dependencies.hostChecks.findings({
    signal,
    networkPolicy: networkPolicy.enabled || relay.networkPolicy === true,
    ...(relay.mode && { mode: relay.mode }),
    ...(routing.enabled && {
      routing: {
        assignsByDefault: pools.length > 0 && defaultLoadBalancerClass,
        ...(bgp && { bgpSocket: bgp.controlSocket }),
      },
    }),
    ...(nodeAnnotations && { nodeAnnotations }),
  });
}

/** Findings for a start in userspace mode. */
async function examineUserspace(
  { dependencies: { commands }, configuration: { relay, proxy }, mode, signal }: Examined,
): Promise<readonly HostFinding[]> {
  if (!mode || !MODE_TRAITS[mode].forwardsItself) return [];
  const { addressMode, maxConnectionsPerService: bound } = relay;
  const anyIp = [
    "e.g. an sshd on 0.0.0.0:22 answers on port 22 of all Services",
    ...(addressMode === "auto"
      ? ["--address-mode=auto takes such a route from 1,000 addresses on"]
      : []),
  ];
  const ports = await readLocalPorts(commands, { signal, timeoutMs: 2000 });
  signal.throwIfAborted();
  const hasPorts = ports === undefined || shareLocalPorts(ports) >= bound;
  return [
    ...findingOf(addressMode === "anyip" || addressMode === "auto" ? anyIp : [], {
      id: "userspace-anyip",
      severity: addressMode === "anyip" ? "warning" : "info",
      summary:
        "An AnyIP route makes every wildcard listener of this host answer on every ClusterIP",
      cure: "bind such programs to the node's own address, or use --address-mode=each",
    }),
    ...findingOf([
      proxy.networkPolicy.enabled
        ? "only kube-relay judges relayed connections by the client; other enforcers of " +
          "NetworkPolicies see this node"
        : "NetworkPolicies that allow nodes allow every pod that comes by a Service",
      "client addresses are lost, also with externalTrafficPolicy: Local",
    ], {
      id: "userspace-source-address",
      severity: "info",
      summary: "In userspace mode endpoints see this node as the client",
      cure: "use a kernel mode if policies or client addresses matter",
    }),
    // Fewer than the limits of the mode promise.
    ...findingOf(
      hasPorts ? [] : [
        `net.ipv4.ip_local_port_range has ${ports} ports: all UDP flows together may use ` +
        `${shareLocalPorts(ports)}, and TCP connections to one endpoint ${ports}`,
        `--max-connections-per-service is ${bound}`,
      ],
      {
        id: "userspace-ports",
        severity: "warning",
        summary: "This machine has fewer source ports than one Service port may have flows",
        cure: `${OUT_OF_PORTS_CURE}; or lower the flag`,
      },
    ),
  ];
}

/** Findings for a start in a mode that makes Service addresses local. */
function examineExternalIps(
  { configuration: { relay, proxy }, mode }: Examined,
): readonly HostFinding[] {
  const isLimited = relay.externalIpRanges.length > 0;
  const binds = mode !== undefined && MODE_TRAITS[mode].bindsAddresses;
  if (!binds || isLimited || !featureEnabled(proxy, "AllowServiceExternalIPs")) return [];
  return findingOf([
    "in this mode an external IP becomes an address of the node; only those of the API server, " +
    "Nodes, resolvers and configured BGP peers are withheld",
  ], {
    id: "external-ips",
    severity: "info",
    summary: "Users who may create Services can cut this node off from other hosts",
    cure: "limit external IPs with --external-ip-ranges, or turn them off",
  });
}
