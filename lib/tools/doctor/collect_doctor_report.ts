import { featureEnabled } from "../../config/feature_gates.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { IP_FAMILIES, isUnspecified, parseIpAddress } from "../../net/ip_address.ts";
import type { Logger } from "../../log/logger.ts";
import { CommandError, type CommandRunner } from "../../os/command_runner.ts";
import { readLocalPorts, shareLocalPorts } from "../../os/open_files.ts";
import { OUT_OF_PORTS_CURE } from "../../os/socket_errors.ts";
import { toolsPathProblem } from "../../os/tools_path.ts";
import { defaultRouteSource } from "../../os/route_source.ts";
import { type BackendMode, MODE_TRAITS, nodePortEntries } from "../../proxy/backend.ts";
import { NODE_PORT_CURE } from "../../app/service/node_port_report.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";
import { KUBE_PROXY_RELEASE, VERSION } from "../../config/version.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import {
  byGravity,
  type DoctorMachine,
  type DoctorProgram,
  type DoctorReport,
} from "./doctor_report.ts";
import { examineApi } from "./examine_api.ts";
import { examineModes } from "./examine_modes.ts";
import { examinePolicy } from "./examine_policy.ts";
import { examineRouting, routingIntent } from "./examine_routing.ts";
import { examineRelay } from "./examine_relay.ts";

interface DoctorOptions {
  readonly configuration: LoadedConfiguration;
  /** The source of the configuration. */
  readonly configuredBy: string;
  /** Why the flags of the running process or of the unit are not used, one line each. */
  readonly unusedFlags: readonly string[];
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** Examines the machine. Removes everything that was added for a test. */
export async function collectDoctorReport(
  dependencies: Dependencies,
  { configuration, configuredBy, unusedFlags, logger, signal }: DoctorOptions,
): Promise<DoctorReport> {
  const { relay, mode: request } = configuration;
  const [machine, api, running] = await Promise.all([
    examineMachine(dependencies, { toolsPath: relay.toolsPath, signal }),
    examineApi(dependencies, { configuration, signal }),
    examineRelay(relay.controlSocket),
  ]);
  const leaveUserspaceAlone = running.fact.state === "not running"
    ? {}
    : { leaveUserspaceAlone: "not tested because kube-relay may be running" };
  const modes = await examineModes(dependencies, {
    ...{ request, configuration, logger, signal },
    ...leaveUserspaceAlone,
  });
  // After the modes: their test chains must not be reported as foreign.
  const { mode: runs, networkPolicy: enforces = false } = running.fact;
  const { mode: chosen } = modes.choice;
  const policy = await examinePolicy(dependencies, {
    ...{ configuration, modes: modes.modes, signal },
    ...(chosen && { mode: chosen }),
  });
  const userspace = chosen && MODE_TRAITS[chosen].forwardsItself
    ? [
      ...userspaceFindings(configuration),
      ...await examinePorts(dependencies, { configuration, signal }),
    ]
    : [];
  const { capabilities } = machine;
  const routing = await examineRouting(dependencies, {
    ...{ configuration, signal },
    ...(chosen && { mode: chosen }),
    ...(capabilities && { capabilities }),
  });
  const intent = routingIntent(configuration.proxy);
  const nodeAnnotations = api.nodeAnnotations ?? running.nodeAnnotations;
  const foreign = await dependencies.hostChecks.findings({
    signal,
    networkPolicy: configuration.proxy.networkPolicy.enabled || enforces,
    ...(runs && { mode: runs }),
    ...(intent && { routing: intent }),
    ...(nodeAnnotations && { nodeAnnotations }),
  });
  return {
    program: examineProgram(),
    machine,
    configuredBy,
    modes: modes.modes,
    choice: modes.choice,
    api: api.fact,
    relay: running.fact,
    findings: byGravity([
      ...flagFindings(unusedFlags),
      ...modes.findings,
      ...(chosen ? await examineNodePorts(dependencies, configuration, chosen) : []),
      ...toolsPathFindings(relay.toolsPath, dependencies.process.env("PATH")),
      ...foreign,
      ...api.findings,
      ...policy,
      ...routing,
      ...running.findings,
      ...userspace,
      ...(chosen && MODE_TRAITS[chosen].bindsAddresses ? externalIpFindings(configuration) : []),
    ]),
  };
}

function flagFindings(evidence: readonly string[]): readonly HostFinding[] {
  if (evidence.length === 0) return [];
  const summary =
    "The flags in use on this machine are not known; a start without flags is checked";
  const cure = "give doctor the flags of the start";
  return [{ id: "flags-in-use", severity: "warning", summary, evidence, cure }];
}

function toolsPathFindings(
  folders: readonly string[],
  path: string | undefined,
): readonly HostFinding[] {
  const problem = toolsPathProblem(folders, path);
  if (problem === undefined) return [];
  const { reason, cure } = problem;
  const summary = "The folders of --tools-path are not searched";
  return [{ id: "tools-path", severity: "warning", summary, evidence: [reason], cure }];
}

function examineProgram(): DoctorProgram {
  const { os, arch } = Deno.build;
  return {
    version: VERSION,
    kubeProxy: KUBE_PROXY_RELEASE,
    deno: Deno.version.deno,
    platform: `${os}/${arch}`,
  };
}

async function examineMachine(
  dependencies: Pick<Dependencies, "commands" | "process">,
  { toolsPath, signal }: { readonly toolsPath: readonly string[]; readonly signal: AbortSignal },
): Promise<DoctorMachine> {
  const { hostname, kernelRelease, uid } = dependencies.process;
  const capabilities = await toolCapabilities(dependencies, { signal });
  return {
    hostname,
    toolsPath,
    ...(kernelRelease !== undefined && { kernel: kernelRelease }),
    ...(uid !== undefined && { uid }),
    ...(capabilities !== undefined && { capabilities }),
  };
}

/** Returns the finding that endpoints do not see clients. */
function sourceAddressFinding(isEnforced: boolean): HostFinding {
  return {
    id: "userspace-source-address",
    severity: "info",
    summary: "In userspace mode endpoints see this node as the client",
    evidence: [
      isEnforced
        ? "only kube-relay judges relayed connections by the client; other enforcers of " +
          "NetworkPolicies see this node"
        : "NetworkPolicies that allow nodes allow every pod that comes by a Service",
      "client addresses are lost, also with externalTrafficPolicy: Local",
    ],
    cure: "use a kernel mode if policies or client addresses matter",
  };
}

const ANYIP: HostFinding = {
  id: "userspace-anyip",
  severity: "info",
  summary: "An AnyIP route makes every wildcard listener of this host answer on every ClusterIP",
  evidence: ["e.g. an sshd on 0.0.0.0:22 answers on port 22 of all Services"],
  cure: "bind such programs to the node's own address, or use --address-mode=each",
};

/** Findings for a start in userspace mode. */
function userspaceFindings(
  { relay: { addressMode }, proxy: { networkPolicy } }: Pick<
    LoadedConfiguration,
    "relay" | "proxy"
  >,
): readonly HostFinding[] {
  const source = sourceAddressFinding(networkPolicy.enabled);
  if (addressMode === "anyip") return [{ ...ANYIP, severity: "warning" }, source];
  if (addressMode !== "auto") return [source];
  const when = "--address-mode=auto takes such a route from 1,000 addresses on";
  return [{ ...ANYIP, evidence: [...ANYIP.evidence, when] }, source];
}

/** Finds fewer source ports than the limits of userspace mode promise. */
async function examinePorts(
  { commands }: Pick<Dependencies, "commands">,
  { configuration: { relay }, signal }: Pick<DoctorOptions, "configuration" | "signal">,
): Promise<readonly HostFinding[]> {
  const ports = await readLocalPorts(commands, { signal, timeoutMs: 2000 });
  signal.throwIfAborted();
  const { maxConnectionsPerService: bound } = relay;
  if (ports === undefined || shareLocalPorts(ports) >= bound) return [];
  return [{
    id: "userspace-ports",
    severity: "warning",
    summary: "This machine has fewer source ports than one Service port may have flows",
    evidence: [
      `net.ipv4.ip_local_port_range has ${ports} ports: all UDP flows together may use ` +
      `${shareLocalPorts(ports)}, and TCP connections to one endpoint ${ports}`,
      `--max-connections-per-service is ${bound}`,
    ],
    cure: `${OUT_OF_PORTS_CURE}; or lower the flag`,
  }];
}

/** Finds a host without a cluster whose node ports would be on an address that is not known. */
async function examineNodePorts(
  { commands }: Pick<Dependencies, "commands">,
  { relay, proxy }: LoadedConfiguration,
  mode: BackendMode,
): Promise<readonly HostFinding[]> {
  const isPrimary = nodePortEntries(proxy.nodePortAddresses, mode).includes("primary");
  const isNamed = !isUnspecified(parseIpAddress(proxy.bindAddress));
  if (relay.manifests.length === 0 || !isPrimary || isNamed) return [];
  const found = await Promise.all(
    IP_FAMILIES.map((family) => defaultRouteSource(commands, family)),
  );
  if (found.some((address) => address !== undefined)) return [];
  return [{
    id: "node-ports",
    severity: "warning",
    summary: "The primary address of this host, which serves node ports, is not known",
    evidence: ["there is no default route, and only a Node in the manifests could name it"],
    cure: NODE_PORT_CURE,
  }];
}

/** Findings for a start in a mode that makes Service addresses local. */
function externalIpFindings({ relay, proxy }: LoadedConfiguration): readonly HostFinding[] {
  const isLimited = relay.externalIpRanges.length > 0;
  if (isLimited || !featureEnabled(proxy, "AllowServiceExternalIPs")) return [];
  return [{
    id: "external-ips",
    severity: "info",
    summary: "Users who may create Services can cut this node off from other hosts",
    evidence: [
      "in this mode an external IP becomes an address of the node; only those of the API server, " +
      "Nodes, resolvers and configured BGP peers are withheld",
    ],
    cure: "limit external IPs with --external-ip-ranges, or turn them off",
  }];
}

/** The capabilities that kube-relay's tools have use for, by their number in `linux/capability.h`. */
const NUMBERS: Readonly<Record<string, bigint>> = {
  CAP_NET_BIND_SERVICE: 10n,
  CAP_NET_ADMIN: 12n,
  CAP_NET_RAW: 13n,
  CAP_SYS_MODULE: 16n,
  CAP_SYS_ADMIN: 21n,
  CAP_SYS_RESOURCE: 24n,
};

/**
 * Returns the capabilities of {@linkcode NUMBERS} that a started tool has; undefined if they cannot
 * be determined. `cat` reads its own file: the rights of tools count (those of root, or the ambient
 * ones of a unit), and Deno itself may not open the file.
 */
export async function toolCapabilities(
  { commands }: { readonly commands: CommandRunner },
  options: { readonly signal?: AbortSignal } = {},
): Promise<readonly string[] | undefined> {
  let text: string;
  try {
    text =
      (await commands.run("cat", ["/proc/self/status"], { ...options, timeoutMs: 2000 })).stdout;
  } catch (error) {
    if (error instanceof CommandError && error.kind !== "aborted") return undefined;
    throw error;
  }
  const [, mask] = /^CapEff:\s*([0-9a-f]{1,16})$/m.exec(text) ?? [];
  if (mask === undefined) return undefined;
  const bits = BigInt(`0x${mask}`);
  return Object.keys(NUMBERS).filter((name) => (bits >> NUMBERS[name]!) & 1n);
}
