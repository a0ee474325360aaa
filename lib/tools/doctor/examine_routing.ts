import { routingAccess } from "../../app/routing/routing_access.ts";
import { routingSettingsOf } from "../../config/parse_routing.ts";
import { hostFileSystem, type ManifestFileSystem } from "../../kube/manifests/manifests.ts";
import { messageOf } from "../../log/message_of.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { type AddressRange, rangeOf } from "../../net/address_range.ts";
import { type Cidr, cidrFamilyOf, tryParseCidr } from "../../net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import { CommandError, type CommandRunner } from "../../os/command_runner.ts";
import { Sysctl } from "../../os/sysctl.ts";
import { findingOf, type HostFinding } from "../../proxy/host_checks.ts";
import { type AddressPool, poolOf } from "../../routing/address_pool.ts";
import { TUNNEL_PREFIX } from "../../routing/pod_network_plan.ts";
import type { PodNetworkSettings, RoutingSettings } from "../../routing/routing_settings.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import { type Edges, examineAccess } from "./examine_api.ts";

/**
 * Finds obstacles that keep a start with `--routing` from assigning and announcing addresses, and from
 * routing between pods. Returns nothing without the flag. Other software is found by the checks of the
 * host.
 */
export async function examineRouting(
  edges: Edges,
  mode: BackendMode | undefined,
  capabilities: readonly string[] | undefined,
): Promise<readonly HostFinding[]> {
  const { dependencies: { commands, network }, configuration: { proxy }, signal } = edges;
  if (!proxy.routing.enabled) return [];
  const settings = routingSettingsOf(proxy.routing);
  const { announce } = proxy.routing;
  const layer2 = [
    ...settings.pools.filter(({ announce }) => announce === "layer2"),
    ...settings.objects && announce === "layer2" ? [{ ranges: IP_FAMILIES.map(allOf) }] : [],
  ];
  const networks = network.interfaceAddresses().flatMap(({ network }) => network ?? []);
  const families = IP_FAMILIES.filter((family) =>
    networks.some((each) => cidrFamilyOf(each) === family)
  );
  return [
    ...await examineAccess(edges, {
      id: "routing-access",
      needed: routingAccess(settings),
      flag: "routing-kubeconfig",
      given: proxy.routing.kubeconfig,
      summary:
        "No address would be assigned or announced: the API server does not let kube-relay " +
        "read Nodes and Services, or write Leases and the status of Services",
    }),
    ...await daemonFindings(edges, settings),
    ...settings.podNetwork
      ? await podNetworkFindings(commands, hostFileSystem, settings.podNetwork, families, signal)
      : [],
    ...poolFindings(edges, settings),
    ...layer2.length === 0 ? [] : [
      ...await toolFindings(commands, layer2, signal),
      ...(mode === "ipvs" ? await arpFindings(edges, layer2) : []),
      ...findingOf(
        ["CAP_NET_ADMIN", "CAP_NET_RAW"].filter((name) => capabilities?.includes(name) === false)
          .map((name) => `tools are started without ${name}`),
        {
          id: "layer2-capabilities",
          severity: "warning",
          summary: "Addresses of layer 2 cannot be added to interfaces and announced",
          cure: "run kube-relay as root, or by deploy/kube-relay.service",
        },
      ),
    ],
  ];
}

/** An object that comes later may have any address. */
function allOf(family: IpFamily): AddressRange {
  return rangeOf((family === "IPv4" ? "0.0.0.0/0" : "::/0") as Cidr);
}

/** Whether the BGP daemon answers. */
async function daemonFindings(
  { dependencies }: Edges,
  { bgp }: RoutingSettings,
): Promise<readonly HostFinding[]> {
  const { routingBackends } = dependencies;
  if (!bgp || !routingBackends) return [];
  await using backend = routingBackends.bgp({ ...dependencies, logger: SILENT_LOGGER }, bgp);
  const problem = await backend.sentPrefixes().then(() => undefined, messageOf);
  return findingOf(problem === undefined ? [] : [problem], {
    id: "bgp-daemon",
    severity: "warning",
    summary: "Nothing would be announced by BGP: BIRD does not answer",
    cure:
      "install bird2 and deploy/kube-relay-bird.service; it starts once kube-relay has written " +
      `${bgp.configFile}`,
  });
}

/** Interfaces on which modes of Services hold their addresses. */
const OF_SERVICES: readonly string[] = ["lo", "kube-ipvs0"];

/** The addresses of a pool that cannot be used, or that belong to something else. */
function poolFindings(
  { dependencies: { network }, configuration: { proxy, relay } }: Edges,
  { pools, objects }: RoutingSettings,
): readonly HostFinding[] {
  const own = network.interfaceAddresses().flatMap(({ address, interfaceName }) => {
    if (OF_SERVICES.includes(interfaceName)) return [];
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
    ...findingOf(pools.length === 0 && !objects ? ["routing.pools is empty"] : [], {
      id: "routing-no-pools",
      severity: "info",
      summary: "No Service gets an address: --routing has no pools",
      cure: "name pools with --load-balancer-pools, or read them from the cluster with " +
        "--routing-objects, unless only other addresses are to be announced",
    }),
    ...findingOf(own, {
      id: "pool-node-address",
      severity: "info",
      summary: "A pool contains addresses of this machine",
      cure: "nothing to do for an InternalIP or ExternalIP of the Node, which is never assigned, " +
        "and for addresses that kube-relay answers for now; take others, and virtual IPs of the " +
        "control plane, out of the pool",
    }),
    ...findingOf(overlaps, {
      id: "pool-overlaps-range",
      severity: "warning",
      summary: "A pool overlaps a range of the cluster; traffic to such an address is misdirected",
      cure: "take the range out of routing.pools",
    }),
  ];
}

function overlapsPool({ ranges }: Pick<AddressPool, "ranges">, cidr: Cidr): boolean {
  const [family, { first, last }] = [cidrFamilyOf(cidr), rangeOf(cidr)];
  return ranges.some((range) =>
    range.family === family && range.first <= last && first <= range.last
  );
}

/** The tools that announce a move; without them the address still answers ARP. */
const TOOLS = [
  { family: "IPv4", tool: "arping", debianPackage: "iputils-arping", of: "gratuitous ARP" },
  { family: "IPv6", tool: "ndisc6", debianPackage: "ndisc6", of: "neighbour solicitations" },
] as const;

async function toolFindings(
  commands: CommandRunner,
  layer2: readonly Pick<AddressPool, "ranges">[],
  signal: AbortSignal,
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
  return findingOf(missing, {
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
  { dependencies, configuration: { proxy: { ipvs, routing } } }: Edges,
  layer2: readonly Pick<AddressPool, "ranges">[],
): Promise<readonly HostFinding[]> {
  if (ipvs.strictARP) return [];
  const { interfaces } = routing.layer2;
  // Else the interfaces whose network has addresses of a pool.
  const linked = dependencies.network.interfaceAddresses().filter(({ interfaceName, network }) =>
    network !== undefined && !OF_SERVICES.includes(interfaceName) &&
    layer2.some((pool) => overlapsPool(pool, network))
  );
  const devices = interfaces.length > 0
    ? interfaces
    : [...new Set(linked.map(({ interfaceName }) => interfaceName))];
  // `sysctl` takes a dot in the name of an interface for a slash, and a slash for a dot.
  const names = ["all", ...devices].map((name) =>
    `net.ipv4.conf.${name.replaceAll(".", "/")}.arp_ignore`
  );
  const { values } = await new Sysctl(dependencies.commands).read(names);
  const [all = 0, ...own] = names.map((name) => Number(values.get(name) ?? 0));
  // The kernel uses the larger value.
  const answering = devices.filter((_, index) => Math.max(all, own[index]!) === 0);
  return findingOf(answering.map((name) => `net.ipv4.conf.${name}.arp_ignore is 0`), {
    id: "layer2-arp",
    severity: "warning",
    summary: "In ipvs mode every node has the Service addresses, and answers ARP for all of them",
    cure: "start with --ipvs-strict-arp",
  });
}

/** Where container runtimes look for plugins, unless they are configured otherwise. */
const PLUGIN_FOLDER = "/opt/cni/bin";
/** Container runtimes read these, in the order of their names. */
const CNI_FILE = /\.(conf|conflist|json)$/;

const TUNNELS = {
  IPv4: { kind: "ipip", ends: ["127.0.0.1", "127.0.0.2"], module: "ipip" },
  IPv6: { kind: "ip6tnl", ends: ["fd00::1", "fd00::2"], module: "ip6_tunnel" },
} as const;

/** Finds obstacles that keep a start from routing between pods. */
export async function podNetworkFindings(
  commands: CommandRunner,
  files: Pick<ManifestFileSystem, "list">,
  { overlay, cniConfig, portMappings }: PodNetworkSettings,
  families: readonly IpFamily[],
  signal: AbortSignal,
): Promise<readonly HostFinding[]> {
  const tunnels: string[] = [];
  const modules: string[] = [];
  // Makes a tunnel and removes it again: only the kernel knows whether it can load the module.
  for (const family of overlay === "off" ? [] : families) {
    const { kind, ends: [local, remote], module } = TUNNELS[family];
    const device = `${TUNNEL_PREFIX}probe${family.at(-1)}`;
    const args = ["link", "add", device, "type", kind, "local", local, "remote", remote];
    const { code, stderr } = await commands.run("ip", args, { signal });
    if (code === 0) await commands.run("ip", ["link", "del", device], { signal });
    // Missing rights are another finding.
    else if (/Unknown device type|not supported/.test(stderr)) {
      tunnels.push(`ip link add type ${kind}: ${stderr.trim()}`);
      modules.push(module);
    }
  }
  const names = families.map((family) =>
    family === "IPv4" ? "net.ipv4.ip_forward" : "net.ipv6.conf.all.forwarding"
  );
  const { values } = await new Sysctl(commands).read(names);
  const listed = async (folder: string) => await files.list(folder).catch(() => undefined) ?? [];
  const at = cniConfig?.lastIndexOf("/") ?? -1;
  const folder = cniConfig?.slice(0, at) || "/";
  const file = cniConfig?.slice(at + 1) ?? "";
  const plugins = cniConfig === undefined ? [] : await listed(PLUGIN_FOLDER);
  const needed = ["bridge", "host-local", ...portMappings ? ["portmap"] : []];
  const missing = cniConfig === undefined ? [] : needed.filter((name) => !plugins.includes(name));
  const before = cniConfig === undefined
    ? []
    : (await listed(folder)).filter((name) => CNI_FILE.test(name) && name < file);
  const severity = "warning";
  return [
    ...findingOf(tunnels, {
      id: "pod-tunnels",
      severity,
      summary: "The kernel cannot make the tunnels of --overlay",
      cure: `install a kernel with ${modules.join(" and ")}, and load the modules at boot`,
    }),
    ...findingOf(
      names.filter((name) => values.get(name) === "0").map((name) => `${name} is 0`),
      {
        id: "pod-forwarding",
        severity,
        summary: "The kernel forwards no packets between pods and other nodes",
        cure:
          "set the settings to 1 in /etc/sysctl.d; the CNI plugin bridge does so with the first pod",
      },
    ),
    ...findingOf(missing.map((name) => `${PLUGIN_FOLDER}/${name} does not exist`), {
      id: "cni-plugins",
      severity,
      summary: "Pods cannot start: plugins of the CNI configuration are missing",
      cure: "install the CNI plugins (Debian package containernetworking-plugins, in " +
        "/usr/lib/cni), or point the container runtime to their folder",
    }),
    ...findingOf(before.map((name) => `${folder}/${name}`), {
      id: "cni-other",
      severity,
      summary: "Another CNI configuration comes first, so container runtimes use it",
      cure: `remove it with its software, or name a file that comes first, instead of ${file}`,
    }),
  ];
}
