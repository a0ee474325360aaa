/**
 * Removes what kube-proxy, or another enforcer of NetworkPolicies, left in the kernel.
 *
 * @module
 */
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import type { Cidr } from "../../../lib/net/cidr.ts";
import { type IpFamily, ipFamilyOf } from "../../../lib/net/ip_address.ts";
import type { Network } from "../../../lib/os/network.ts";
import type {
  KubeProxyRemovalOptions,
  PolicyRemovalOptions,
} from "../../../lib/proxy/host_checks.ts";
import { findDummyDevices, IPVS_DEVICE } from "../../iproute/dummy_devices.ts";
import { inSteps } from "../in_steps.ts";
import { readSets } from "../ipset/ipset_runner.ts";
import type { SavedSet } from "../ipset/ipset_text.ts";
import { removeCounters } from "../packet_counters.ts";
import { readProcFile } from "../probe/try_tool.ts";
import {
  describeServer,
  IP_VS_FILE,
  isOwnServer,
  notedServers,
  readVirtualServers,
  type SeenServer,
} from "../virtual_servers.ts";
import { findOwnState, type HostEdges } from "./host_contents.ts";
import { isKubeProxySet, KUBE_ROUTER_POLICIES, OWNERS } from "./owners.ts";
import { removeChains } from "./remove_chains.ts";
import { RemovalRun } from "./removal_run.ts";

export interface RemovalEdges extends HostEdges {
  readonly network: Network;
}

/**
 * Removes the rules of iptables and ipvs mode from all four rule sets, their packet counters, the
 * tables of nftables mode, and the sets, virtual servers and device of ipvs mode. The order follows
 * references. Continues after failures; missing objects and tools are no failure. The kubelet's
 * chains (`KUBE-FIREWALL`, `KUBE-KUBELET-CANARY`, `KUBE-IPTABLES-HINT`) and foreign objects stay: so do
 * virtual servers of other programs, where upstream's `--cleanup` flushes them all. A running kube-proxy
 * writes its rules again. The objects of the running mode stay.
 */
export async function removeKubeProxy(
  edges: RemovalEdges,
  { mode, excludeCidrs = [], ...options }: KubeProxyRemovalOptions,
): Promise<CleanupReport> {
  const own = await findOwnState(edges, mode, options.signal);
  const run = new RemovalRun(edges, options);
  const { chain: label, nftTable } = OWNERS["kube-proxy"];
  await removeChains(edges, run, {
    whose: "kube-proxy's",
    isLeftover: (table, chain, world) =>
      label(table, chain) !== undefined && !own.usesChain(world, table, chain),
  });
  const counter = mode === "iptables" ? undefined : await removeCounters(edges, run);
  if (counter !== undefined) run.keep(`${counter}: a rule of another program refers to it`);
  await run.removeTables("kube-proxy's tables", nftTable);
  if (mode === "ipvs") return run.report();
  // Read before the removal: sets and device identify the owner of virtual servers.
  const { servers } = await findOwnServers(edges, run, excludeCidrs);
  await run.removeSets(isKubeProxySet);
  await removeServers(edges, run, servers);
  await removeIpvsDevice(edges, run);
  return run.report();
}

/**
 * Removes the chains of kube-router's network policy controller, in k3s too, its tables of nftables, and
 * then the sets that the chains referred to. Call it while other rules enforce the policies: in between
 * nothing of kube-router's does. A controller that still runs writes its rules again.
 */
export async function removeKubeRouterPolicies(
  edges: HostEdges,
  options: PolicyRemovalOptions,
): Promise<CleanupReport> {
  const { chain: label, nftTable, set } = KUBE_ROUTER_POLICIES;
  const run = new RemovalRun(edges, options);
  await removeChains(edges, run, {
    whose: "kube-router's policy",
    isLeftover: (table, chain) => label(table, chain) !== undefined,
  });
  await run.removeTables("kube-router's policy tables", nftTable);
  await run.removeSets(set);
  return run.report();
}

/** Longest list of virtual servers that a report spells out. */
const MAX_NAMED_SERVERS = 20;

/**
 * Finds the virtual servers of kube-proxy and mode ipvs, of one family or both. The module ip_vs is not
 * loaded for it: without it there are none. `unread`: why the sets that identify most owners were not read.
 */
export async function findOwnServers(
  { commands, network, clock }: RemovalEdges,
  run: RemovalRun,
  excludeCidrs: readonly Cidr[],
  family?: IpFamily,
): Promise<{ readonly servers: readonly SeenServer[]; readonly unread?: string }> {
  const table = run.take("virtual servers", await readProcFile(commands, IP_VS_FILE, run.signal));
  const all = (await inSteps({ clock }, readVirtualServers(table ?? "")))
    .filter(({ address }) => family === undefined || ipFamilyOf(address) === family);
  if (all.length === 0) return { servers: [] };
  // The second has addresses that mode ipvs served node ports on, and that the node may have lost.
  const isWanted = (name: string) => isKubeProxySet(name) || NODE_PORT_IPS.test(name);
  const seen = await readSets({ clock, commands }, { isWanted, ...run.signal });
  const sets: ReadonlyMap<string, SavedSet> = seen.state === "seen" ? seen.value : new Map();
  const lost = [...sets].filter(([name]) => NODE_PORT_IPS.test(name))
    .flatMap(([, { entries }]) => [...entries]);
  const addresses = network.interfaceAddresses();
  const onDevice = addresses.filter(({ interfaceName }) => interfaceName === IPVS_DEVICE);
  const ownership = {
    noted: await inSteps({ clock }, notedServers(sets)),
    deviceAddresses: new Set(onDevice.map(({ address }) => address)),
    nodeAddresses: new Set<string>([...addresses.map(({ address }) => address), ...lost]),
    excludeCidrs,
  };
  const servers = all.filter((server) => isOwnServer(server, ownership));
  return { servers, ...(seen.state !== "seen" && { unread: seen.reason }) };
}

const NODE_PORT_IPS = /^KUBE-(6-)?NODE-PORT-IPS$/;

/**
 * Removes the device with its addresses, or only those of a family while it has others. A device of this
 * name but another kind belongs to another program.
 */
export async function removeIpvsDevice(
  { commands, network }: RemovalEdges,
  run: RemovalRun,
  family?: IpFamily,
): Promise<void> {
  const devices = await findDummyDevices(commands, run.signal);
  if (!run.take(`device ${IPVS_DEVICE}`, devices)?.includes(IPVS_DEVICE)) return;
  const hasOthers = family !== undefined &&
    network.interfaceAddresses().some(({ interfaceName, address }) =>
      interfaceName === IPVS_DEVICE && ipFamilyOf(address) !== family &&
      !address.startsWith("fe80:")
    );
  await run.do(`device ${IPVS_DEVICE}`, {
    command: hasOthers
      ? ["ip", family === "IPv4" ? "-4" : "-6", "addr", "flush", "dev", IPVS_DEVICE]
      : ["ip", "link", "del", IPVS_DEVICE],
    removes: [
      hasOthers
        ? `${family} addresses of ${IPVS_DEVICE}`
        : `device ${IPVS_DEVICE} with its addresses`,
    ],
  });
}

/** Deletes virtual servers. */
export async function removeServers(
  { commands, clock }: HostEdges,
  run: RemovalRun,
  servers: readonly SeenServer[],
): Promise<void> {
  if (servers.length === 0) return;
  const removes = servers.length > MAX_NAMED_SERVERS
    ? [`${servers.length} virtual servers`]
    : servers.map(({ key }) => `virtual server ${describeServer(key)}`);
  const reason = await run.try({
    command: ["ipvsadm", "-R"],
    // No comment or blank line: either would end it.
    input: () => servers.map(({ key }) => `-D ${key}\n`),
    removes,
  });
  if (run.dryRun) return;
  // The exit code is that of the last line only, so the result is verified by reading.
  const table = await readProcFile(commands, IP_VS_FILE, run.signal);
  const left = table.state === "seen"
    ? await inSteps({ clock }, readVirtualServers(table.value))
    : [];
  const still = new Set(left.map(({ key }) => key));
  const remaining = servers.filter(({ key }) => still.has(key)).map(({ key }) => key);
  if (remaining.length === 0) return;
  const some = remaining.slice(0, MAX_NAMED_SERVERS).map(describeServer).join(", ");
  run.fail(`${remaining.length} virtual servers (${some}): ${reason ?? "they are still there"}`);
}
