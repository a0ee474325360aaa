/**
 * What `doctor` knows of a machine: the modes that work, the API server, a running kube-relay, and what
 * hinders them. Everything that is added for a test is removed again.
 *
 * @module
 */
import {
  CLUSTER_POLICY_ACCESS,
  findPolicyTool,
  POLICY_ACCESS,
} from "../../app/policy/policy_settings.ts";
import {
  AUTO_ORDER,
  chooseVerdict,
  evaluateMode,
  ModeError,
  type ModeVerdict,
} from "../../app/run/choose_mode.ts";
import { BRIDGE_SETTINGS } from "../../app/run/host_settings.ts";
import { probeDataProcess } from "../../app/run/relay_workers.ts";
import { idleBackendOptions } from "../../app/run/plan_settings.ts";
import { NODE_PORT_CURE } from "../../app/service/service_status.ts";
import { featureEnabled } from "../../config/feature_gates.ts";
import type { ModeRequest } from "../../config/load.ts";
import { routingSettingsOf } from "../../config/parse_routing.ts";
import { KUBE_PROXY_RELEASE, VERSION } from "../../config/version.ts";
import { messageOf } from "../../log/message_of.ts";
import { IP_FAMILIES, type IpFamily, isUnspecified, parseIpAddress } from "../../net/ip_address.ts";
import { CommandError } from "../../os/command_runner.ts";
import { readLocalPorts, shareLocalPorts } from "../../os/open_files.ts";
import { defaultRouteSource } from "../../os/route_source.ts";
import { OUT_OF_PORTS_CURE } from "../../os/socket_errors.ts";
import { Sysctl } from "../../os/sysctl.ts";
import { toolsPathProblem } from "../../os/tools_path.ts";
import {
  BACKEND_MODES,
  type BackendMode,
  MODE_TRAITS,
  nodePortEntries,
} from "../../proxy/backend.ts";
import { bySeverity, findingOf, type HostFinding } from "../../proxy/host_checks.ts";
import type { ProbeResult } from "../../proxy/service_mode.ts";
import { askControl, ControlError } from "../control/control_client.ts";
import { statusProblems } from "../status/status_answer.ts";
import type { StatusReport } from "../status/status_report.ts";
import {
  type CollectedLine,
  collectingLogger,
  type DoctorApi,
  type Edges,
  examineAccess,
  examineApi,
  type Fact,
} from "./examine_api.ts";
import { examineRouting } from "./examine_routing.ts";

export interface DoctorMode {
  readonly mode: BackendMode;
  readonly inRelease: boolean;
  /** IP families in which the mode works here. */
  readonly families: readonly IpFamily[];
  readonly features: readonly ProbeResult[];
  /** The reason why nothing was tried. */
  readonly notTried?: string;
}

export interface DoctorReport {
  readonly program: {
    readonly version: string;
    /** The compatible release of kube-proxy. */
    readonly kubeProxy: string;
    readonly deno: string;
    readonly platform: string;
  };
  /** The machine and the rights on it. */
  readonly machine: {
    readonly hostname: string;
    /** Folders of `--tools-path`. */
    readonly toolsPath: readonly string[];
    readonly kernel?: string;
    readonly uid?: number;
    /** Capabilities of started tools; absent if unknown. */
    readonly capabilities?: readonly string[];
  };
  /** The source of the checked configuration, e.g. `the running process`. */
  readonly configuredBy: string;
  readonly modes: readonly DoctorMode[];
  /** The mode that a start would choose now. */
  readonly choice: {
    readonly request: ModeRequest;
    /** Absent if a start would fail. */
    readonly mode?: BackendMode;
    /** One line each. */
    readonly reasons: readonly string[];
  };
  readonly api: DoctorApi;
  /** The running kube-relay. */
  readonly relay: {
    readonly state: "running" | "not running" | "unknown";
    readonly detail: string;
    readonly mode?: BackendMode;
    /** Present if it enforces NetworkPolicies. */
    readonly networkPolicy?: true;
  };
  /** The most severe first. */
  readonly findings: readonly HostFinding[];
}

/** Whether something prevents kube-relay from working here. */
export function isBlocked({ findings }: Pick<DoctorReport, "findings">): boolean {
  return findings.some(({ severity }) => severity === "blocking");
}

/** What later examinations know from the earlier ones; `mode`: that a start would choose. */
interface Examined extends Edges, Pick<DoctorReport, "modes"> {
  readonly mode: BackendMode | undefined;
}

/**
 * Examines the machine. `configuredBy` is the source of the configuration; `unusedFlags` says why the flags
 * of the running process or of the unit are not used.
 */
export async function collectDoctorReport(
  edges: Edges,
  configuredBy: string,
  unusedFlags: readonly string[],
): Promise<DoctorReport> {
  const { dependencies: { process, hostChecks }, configuration: { proxy, relay }, signal } = edges;
  const { hostname, kernelRelease, uid } = process;
  const [capabilities, api, running] = await Promise.all([
    toolCapabilities(edges),
    examineApi(edges),
    examineRelay(relay.controlSocket),
  ]);
  const machine = {
    hostname,
    toolsPath: relay.toolsPath,
    ...(kernelRelease !== undefined && { kernel: kernelRelease }),
    ...(uid !== undefined && { uid }),
    ...(capabilities !== undefined && { capabilities }),
  };
  const { modes, fact: choice, ...ofModes } = await examineModes(
    edges,
    running.fact.state !== "not running",
  );
  const nodeAnnotations = api.nodeAnnotations ?? running.nodeAnnotations;
  const { mode } = choice;
  const examined = { ...edges, modes, mode };
  const { pools, objects, defaultLoadBalancerClass, bgp } = routingSettingsOf(proxy.routing);
  const pathProblem = toolsPathProblem(relay.toolsPath, process.env("PATH"));
  const findings = [
    ...findingOf(unusedFlags, {
      id: "flags-in-use",
      severity: "warning",
      summary: "The flags in use on this machine are not known; a start without flags is checked",
      cure: "give doctor the flags of the start",
    }),
    ...[ofModes, api, running].flatMap((each) => each.findings),
    ...await examineNodePorts(examined),
    ...findingOf(pathProblem ? [pathProblem.reason] : [], {
      id: "tools-path",
      severity: "warning",
      summary: "The folders of --tools-path are not searched",
      cure: pathProblem?.cure,
    }),
    // Comes after the modes: their test chains must not be reported as foreign.
    ...await hostChecks.findings({
      signal,
      takeover: relay.takeover,
      networkPolicy: proxy.networkPolicy.enabled || running.fact.networkPolicy === true,
      ...(running.fact.mode && { mode: running.fact.mode }),
      ...(proxy.routing.enabled && {
        routing: {
          assignsByDefault: (pools.length > 0 || objects) && defaultLoadBalancerClass,
          ...(bgp && { bgpSocket: bgp.controlSocket }),
        },
      }),
      ...(nodeAnnotations && { nodeAnnotations }),
    }),
    ...await examinePolicy(examined),
    ...await examineRouting(edges, mode, capabilities),
    ...await examineUserspace(examined),
    ...examineExternalIps(examined),
  ];
  return {
    program: {
      version: VERSION,
      kubeProxy: KUBE_PROXY_RELEASE,
      deno: Deno.version.deno,
      platform: `${Deno.build.os}/${Deno.build.arch}`,
    },
    machine,
    configuredBy,
    modes,
    choice,
    api: api.fact,
    relay: running.fact,
    findings: bySeverity(findings),
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
  { dependencies: { commands }, signal }: Edges,
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

/** All modes; the kernel's that `auto` tries come first. */
const ALL_MODES: readonly BackendMode[] = [
  ...new Set([
    ...AUTO_ORDER.filter((mode) => !MODE_TRAITS[mode].forwardsItself),
    ...BACKEND_MODES,
  ]),
];

/**
 * Tests one mode after the other: two that write the same kind of rules would interfere. Userspace mode
 * is not tested while kube-relay may be running.
 */
async function examineModes(
  { dependencies, configuration, logger, signal }: Edges,
  mayRun: boolean,
): Promise<Fact<DoctorReport["choice"]> & Pick<DoctorReport, "modes">> {
  const { mode: request } = configuration;
  const verdicts = new Map<BackendMode, ModeVerdict>();
  const modes: DoctorMode[] = [];
  for (const mode of ALL_MODES) {
    const verdict = await evaluateMode(dependencies, mode, { always: true, signal });
    verdicts.set(mode, verdict);
    const { results, support: { families } } = verdict;
    const createBackend = dependencies.backends[mode];
    const known = { mode, inRelease: createBackend !== undefined, families };
    if (!createBackend || !MODE_TRAITS[mode].forwardsItself) {
      modes.push({ ...known, features: results });
    } else if (mayRun) {
      const notTried = "not tested because kube-relay may be running";
      modes.push({ ...known, features: results, notTried });
    } else {
      // Its backend tests how addresses become local; of these features only a given engine is required.
      const features: ProbeResult[] = [];
      for (const family of IP_FAMILIES) {
        const options = idleBackendOptions(configuration, family);
        await using backend = createBackend({ ...dependencies, logger }, options);
        features.push(...(await backend.probe()).map((result) => ({ ...result, family })));
      }
      const { userspaceEngine } = configuration.relay;
      if (userspaceEngine !== "deno") {
        const probed = await probeDataProcess(dependencies);
        features.push({ ...probed, required: userspaceEngine === "syscalls" });
      }
      modes.push({ ...known, features });
    }
  }
  const lines: CollectedLine[] = [];
  const evaluate = (mode: BackendMode) => Promise.resolve(verdicts.get(mode)!);
  try {
    const { mode } = await chooseVerdict(collectingLogger(lines), request, evaluate);
    const reasons = lines.filter(({ fields }) => fields.reason !== undefined)
      .map(({ fields }) => `${fields.mode ?? "iptables"}: ${fields.reason}`);
    const refused = modes.find((each) => each.mode === mode)!.features
      .filter(({ available, required }) =>
        !available && required && MODE_TRAITS[mode].forwardsItself
      )
      .map(({ detail }) => `Cannot use --userspace-engine=syscalls: ${detail}`);
    const findings = findingOf(refused, {
      id: "no-mode",
      severity: "blocking",
      summary: "kube-relay would not start with the given engine",
      cure: "permit processes to load libc and to map memory, or use --userspace-engine=auto",
    });
    return { modes, fact: { request, mode, reasons }, findings };
  } catch (error) {
    if (!(error instanceof ModeError)) throw error;
    const findings = findingOf([error.message], {
      id: "no-mode",
      severity: "blocking",
      summary: "kube-relay would not start in the given mode",
      cure: "install the missing parts, or use --proxy-mode=auto",
    });
    return { modes, fact: { request, reasons: [error.message] }, findings };
  }
}

/** Asks the running kube-relay over the control socket. Never rejects. */
async function examineRelay(controlSocket: string): Promise<Fact<DoctorReport["relay"]>> {
  try {
    const status = await askControl(controlSocket, "/status", { brief: "" });
    const { version, pid, phase, families, controllers = [] } = status;
    const mode = families[0]?.mode;
    const modes = [...new Set(families.map(({ mode }) => mode))].join(", ");
    const isEnforcing = controllers.some(({ controller }) => controller === "network-policy");
    return {
      fact: {
        state: "running",
        detail: `v${version}, process ${pid}, ${phase}, mode ${modes}`,
        ...(mode !== undefined && { mode }),
        ...(isEnforcing && { networkPolicy: true }),
      },
      findings: relayFindings(status),
      nodeAnnotations: status.node.annotations,
    };
  } catch (error) {
    const isAbsent = error instanceof ControlError && error.kind === "not-running";
    const fact = isAbsent
      ? { state: "not running", detail: `no program listens at ${controlSocket}` } as const
      : { state: "unknown", detail: messageOf(error) } as const;
    return { fact, findings: [] };
  }
}

/** The findings for the kinds of problems that a status reports; those of single Services are no finding. */
const RELAY_FINDINGS = [
  ["kernel", "relay-settings", "Settings of this machine were refused"],
  ["sync", "relay-syncs-fail", "Syncs of the running kube-relay fail"],
  [
    "quarantine",
    "relay-quarantine",
    "Parts of the running kube-relay are in quarantine; the others work",
  ],
  ["source", "relay-sources", "Sources of the running kube-relay have problems"],
] as const;

/** Lines of evidence that one of them shows. */
const MOST_EVIDENCE = 10;

function relayFindings(status: StatusReport): readonly HostFinding[] {
  const time = (at: number) => new Date(at).toISOString();
  const kinds = Map.groupBy(statusProblems(status, { time }), ({ cells: [kind = ""] }) => kind);
  return RELAY_FINDINGS.flatMap(([kind, id, summary]) => {
    const lines = (kinds.get(kind) ?? []).map(({ cells: [, text], detail = [] }) =>
      [text, detail.join(" ")].filter((part) => part !== "").join("; ")
    );
    const more = lines.length - MOST_EVIDENCE;
    return findingOf([
      ...lines.slice(0, MOST_EVIDENCE),
      ...(more > 0 ? [`and ${more} more: kube-relay status has them all`] : []),
    ], { id, severity: "warning", summary });
  });
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

/**
 * Finds obstacles that keep a start with `--network-policy` from enforcing all policies. Returns
 * nothing without the flag.
 */
async function examinePolicy(examined: Examined): Promise<readonly HostFinding[]> {
  const { configuration: { proxy }, dependencies: { commands }, mode, modes, signal } = examined;
  const { networkPolicy } = proxy;
  if (!networkPolicy.enabled) return [];
  // The results of the probes of all modes: no probe runs twice.
  const probeMode = (wanted: BackendMode) =>
    Promise.resolve(modes.find(({ mode }) => mode === wanted)?.features ?? []);
  const { tool, refusal } = await findPolicyTool({ probeMode }, networkPolicy.mode);
  const names = BRIDGE_SETTINGS.map(({ name }) => name);
  const { values, problems } = await new Sysctl(commands).read(names);
  signal.throwIfAborted();
  const bridge = BRIDGE_SETTINGS.flatMap(({ name, value }) => {
    const problem = problems.get(name);
    if (problem) return [`${name}: ${problem.reason}`];
    const found = values.get(name);
    return found === value ? [] : [`${name} is ${found}, not ${value}; a start sets it`];
  });
  const ofAccess = { flag: "policy-kubeconfig", given: networkPolicy.kubeconfig };
  const access = [
    ...await examineAccess(examined, {
      ...ofAccess,
      id: "policy-access",
      needed: POLICY_ACCESS,
      summary:
        "NetworkPolicies would not be enforced: the API server does not let kube-relay read " +
        "pods, namespaces or NetworkPolicies",
    }),
  ];
  if (access.length === 0) {
    access.push(
      ...await examineAccess(examined, {
        ...ofAccess,
        id: "cluster-policy-access",
        needed: CLUSTER_POLICY_ACCESS,
        summary: "ClusterNetworkPolicies would not be enforced, if the cluster has any: the API " +
          "server does not let kube-relay read them or nodes",
      }),
    );
  }
  return [
    ...findingOf(refusal === undefined ? [] : [`${tool}: ${refusal}`], {
      id: "policy-tool",
      severity: "warning",
      summary: mode && MODE_TRAITS[mode].forwardsItself
        ? "NetworkPolicies would not cover direct pod-to-pod traffic: this machine lacks a " +
          "working tool; kube-relay judges what it relays"
        : "NetworkPolicies would not be enforced: this machine lacks a working tool",
      cure: networkPolicy.mode === "auto"
        ? "install the missing parts"
        : "install the missing parts, or use --network-policy-mode=auto",
    }),
    ...findingOf(bridge, {
      id: "bridge-netfilter",
      severity: problems.size > 0 ? "warning" : "info",
      summary: "NetworkPolicies do not cover traffic between pods on one bridge of this node",
      cure: `modprobe br_netfilter && sysctl -w ${names.map((name) => `${name}=1`).join(" ")}; ` +
        "pods that are routed, without a bridge, do not need it",
    }),
    ...access,
  ];
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
