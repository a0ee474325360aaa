import { routingSettingsOf } from "../../config/parse_routing.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { rangeOf } from "../../net/address_range.ts";
import { type Cidr, cidrFamilyOf, tryParseCidr } from "../../net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import { hostFileSystem } from "../../kube/manifests/manifest_files.ts";
import { CommandError } from "../../os/command_runner.ts";
import { createSysctl } from "../../os/sysctl.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { HostFinding, RoutingIntent } from "../../proxy/host_checks.ts";
import { type AddressPool, poolOf } from "../../routing/address_pool.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import { messageOf } from "../../log/message_of.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { routingAccess, routingKubeconfigOf } from "../../app/routing/routing_access.ts";
import { examinePodNetwork } from "./examine_pod_network.ts";
import { type AccessDependencies, examineAccess } from "./examine_access.ts";

interface RoutingExamination {
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
  readonly signal: AbortSignal;
  /** The mode of Services that a start would choose. */
  readonly mode?: BackendMode;
  /** Of started tools; absent if unknown. */
  readonly capabilities?: readonly string[];
}

type RoutingDependencies =
  & AccessDependencies
  & Pick<Dependencies, "network" | "random" | "routingBackends">;

/** Returns what a start does with addresses; `undefined` without `--routing`. */
export function routingIntent(
  { routing }: LoadedConfiguration["proxy"],
): RoutingIntent | undefined {
  if (!routing.enabled) return undefined;
  const { pools, defaultLoadBalancerClass, bgp } = routingSettingsOf(routing);
  return {
    assignsByDefault: pools.length > 0 && defaultLoadBalancerClass,
    ...(bgp && { bgpSocket: bgp.controlSocket }),
  };
}

/**
 * Finds obstacles that keep a start with `--routing` from assigning and announcing addresses. Returns
 * nothing without the flag. Other software is found by the checks of the host.
 */
export async function examineRouting(
  dependencies: RoutingDependencies,
  examination: RoutingExamination,
): Promise<readonly HostFinding[]> {
  const { configuration: { proxy, relay }, signal } = examination;
  if (!proxy.routing.enabled) return [];
  const settings = routingSettingsOf(proxy.routing);
  const layer2 = settings.pools.filter(({ announce }) => announce === "layer2");
  return [
    ...await examineAccess(dependencies, {
      ...{ relay, signal, needed: routingAccess(settings), id: "routing-access" },
      kubeconfig: routingKubeconfigOf(proxy),
      flag: { name: "routing-kubeconfig", value: proxy.routing.kubeconfig },
      summary:
        "No address would be assigned or announced: the API server does not let kube-relay " +
        "read Nodes and Services, or write Leases and the status of Services",
    }),
    ...await daemonFindings(dependencies, settings),
    ...settings.podNetwork === undefined ? [] : await examinePodNetwork({
      commands: dependencies.commands,
      files: hostFileSystem,
    }, { podNetwork: settings.podNetwork, families: familiesOf(dependencies.network), signal }),
    ...poolFindings(settings, { ...dependencies, ...examination }),
    ...layer2.length === 0 ? [] : await layer2Findings(dependencies, { ...examination, layer2 }),
  ];
}

/** Whether the BGP daemon answers. */
async function daemonFindings(
  dependencies: RoutingDependencies,
  { bgp }: RoutingSettings,
): Promise<readonly HostFinding[]> {
  const { routingBackends } = dependencies;
  if (!bgp || !routingBackends) return [];
  const edges = { ...dependencies, logger: SILENT_LOGGER };
  await using backend = routingBackends.bgp(edges, bgp);
  try {
    await backend.sentPrefixes();
    return [];
  } catch (error) {
    return [{
      id: "bgp-daemon",
      severity: "warning",
      summary: "Nothing would be announced by BGP: BIRD does not answer",
      evidence: [messageOf(error)],
      cure:
        "install bird2 and deploy/kube-relay-bird.service; it starts once kube-relay has written " +
        `${bgp.configFile}`,
    }];
  }
}

/** The addresses of a pool that cannot be used, or that belong to something else. */
function poolFindings(
  { pools }: RoutingSettings,
  { network, configuration: { proxy, relay } }: RoutingDependencies & RoutingExamination,
): readonly HostFinding[] {
  if (pools.length === 0) {
    return [{
      id: "routing-no-pools",
      severity: "info",
      summary: "No Service gets an address: --routing has no pools",
      evidence: ["routing.pools is empty"],
      cure:
        "name pools with --load-balancer-pools, unless only other addresses are to be announced",
    }];
  }
  const own = network.interfaceAddresses().flatMap(({ address, interfaceName }) => {
    // Modes of Services hold their addresses there.
    if (interfaceName === "lo" || interfaceName === "kube-ipvs0") return [];
    const pool = poolOf(pools, address);
    return pool ? [`pool '${pool.name}' has ${address} of ${interfaceName}`] : [];
  });
  const ranges = [
    ...relay.serviceCidrs.map((cidr) => ({ cidr, name: "range of cluster IPs" })),
    ...proxy.clusterCIDR.split(",").flatMap((text) => {
      const cidr = tryParseCidr(text.trim());
      return cidr ? [{ cidr, name: "range of pods" }] : [];
    }),
  ];
  const overlaps = pools.flatMap((pool) =>
    ranges.filter(({ cidr }) => overlapsPool(pool, cidr))
      .map(({ cidr, name }) => `pool '${pool.name}' has addresses of ${cidr}, a ${name}`)
  );
  return [
    ...finding(own, {
      id: "pool-node-address",
      severity: "info",
      summary: "A pool contains addresses of this machine",
      cure: "nothing to do for an InternalIP or ExternalIP of the Node, which is never assigned, " +
        "and for addresses that kube-relay answers for now; take others, and virtual IPs of the " +
        "control plane, out of the pool",
    }),
    ...finding(overlaps, {
      id: "pool-overlaps-range",
      severity: "warning",
      summary: "A pool overlaps a range of the cluster; traffic to such an address is misdirected",
      cure: "take the range out of routing.pools",
    }),
  ];
}

function overlapsPool({ ranges }: AddressPool, cidr: Cidr): boolean {
  const [family, { first, last }] = [cidrFamilyOf(cidr), rangeOf(cidr)];
  return ranges.some((range) =>
    range.family === family && range.first <= last && first <= range.last
  );
}

/** With the pools that layer 2 announces. */
interface Layer2Examination extends RoutingExamination {
  readonly layer2: readonly AddressPool[];
}

async function layer2Findings(
  dependencies: RoutingDependencies,
  examination: Layer2Examination,
): Promise<readonly HostFinding[]> {
  const { capabilities } = examination;
  const lacking = ["CAP_NET_ADMIN", "CAP_NET_RAW"].filter((name) =>
    capabilities?.includes(name) === false
  );
  return [
    ...await toolFindings(dependencies, examination),
    ...await arpFindings(dependencies, examination),
    ...finding(lacking.map((name) => `tools are started without ${name}`), {
      id: "layer2-capabilities",
      severity: "warning",
      summary: "Addresses of layer 2 cannot be added to interfaces and announced",
      cure: "run kube-relay as root, or by deploy/kube-relay.service",
    }),
  ];
}

/** The tools that announce a move; without them the address still answers ARP. */
const TOOLS = [
  { family: "IPv4", tool: "arping", debianPackage: "iputils-arping", of: "gratuitous ARP" },
  { family: "IPv6", tool: "ndisc6", debianPackage: "ndisc6", of: "neighbour solicitations" },
] as const;

async function toolFindings(
  { commands }: RoutingDependencies,
  { layer2, signal }: Layer2Examination,
): Promise<readonly HostFinding[]> {
  const missing: string[] = [];
  const packages: string[] = [];
  for (const { family, tool, debianPackage, of } of TOOLS) {
    if (!layer2.some(({ ranges }) => ranges.some((range) => range.family === family))) continue;
    try {
      await commands.run(tool, ["-V"], { signal, timeoutMs: 2_000 });
    } catch (error) {
      if (!(error instanceof CommandError) || error.kind === "aborted") throw error;
      missing.push(`${tool}, which sends ${of}: ${error.message}`);
      packages.push(debianPackage);
    }
  }
  return finding(missing, {
    id: "layer2-tools",
    severity: "warning",
    summary:
      "A tool is missing that announces a move of an address; neighbours notice a failover " +
      "only by their own time-outs",
    cure: `install ${packages.join(" and ")}`,
  });
}

/** In ipvs mode all addresses are on a device of each node; userspace mode leaves those of layer 2 alone. */
async function arpFindings(
  { commands, network }: RoutingDependencies,
  { mode, layer2, configuration: { proxy: { ipvs, routing } } }: Layer2Examination,
): Promise<readonly HostFinding[]> {
  if (mode !== "ipvs" || ipvs.strictARP) return [];
  const { interfaces } = routing.layer2;
  const devices = interfaces.length > 0 ? interfaces : linksOf(layer2, network);
  // `sysctl` takes a dot in the name of an interface for a slash, and a slash for a dot.
  const names = ["all", ...devices].map((name) =>
    `net.ipv4.conf.${name.replaceAll(".", "/")}.arp_ignore`
  );
  const { values } = await createSysctl(commands).read(names);
  const [all, ...own] = names.map((name) => Number(values.get(name) ?? 0));
  // The kernel uses the larger value.
  const answering = devices.filter((_, index) => Math.max(all!, own[index]!) === 0);
  if (answering.length === 0) return [];
  return [{
    id: "layer2-arp",
    severity: "warning",
    summary: "In ipvs mode every node has the Service addresses, and answers ARP for all of them",
    evidence: answering.map((name) => `net.ipv4.conf.${name}.arp_ignore is 0`),
    cure: "start with --ipvs-strict-arp",
  }];
}

/** The interfaces whose network has addresses of a pool. */
function linksOf(
  layer2: readonly AddressPool[],
  network: RoutingDependencies["network"],
): readonly string[] {
  const links = network.interfaceAddresses().filter(({ network }) =>
    network !== undefined && layer2.some((pool) => overlapsPool(pool, network))
  );
  return [...new Set(links.map(({ interfaceName }) => interfaceName))];
}

/** The families that the machine has networks of. */
function familiesOf(network: RoutingDependencies["network"]): readonly IpFamily[] {
  const families = new Set(
    network.interfaceAddresses().flatMap(({ network }) => network ? [cidrFamilyOf(network)] : []),
  );
  return IP_FAMILIES.filter((family) => families.has(family));
}

function finding(
  evidence: readonly string[],
  rest: Omit<HostFinding, "evidence">,
): readonly HostFinding[] {
  return evidence.length === 0 ? [] : [{ ...rest, evidence }];
}
