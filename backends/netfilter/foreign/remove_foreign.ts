/**
 * Removes what kube-proxy, or another enforcer of NetworkPolicies, left in the kernel.
 *
 * @module
 */
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import type { Cidr } from "../../../lib/net/cidr.ts";
import type { Network } from "../../../lib/os/network.ts";
import type {
  KubeProxyRemovalOptions,
  PolicyRemovalOptions,
} from "../../../lib/proxy/host_checks.ts";
import { findDummyDevices, IPVS_DEVICE } from "../../iproute/dummy_devices.ts";
import { inSteps } from "../in_steps.ts";
import { readSets } from "../ipset/ipset_runner.ts";
import { removeCounters } from "../packet_counters.ts";
import { readProcFile } from "../probe/try_tool.ts";
import {
  describeServer,
  IP_VS_FILE,
  isOwnServer,
  notedServers,
  readVirtualServers,
  renderServerDeletion,
  type SeenServer,
} from "../virtual_servers.ts";
import { findOwnState, type HostEdges } from "./host_contents.ts";
import { isKubeProxySet, KUBE_ROUTER_POLICIES, OWNERS } from "./owners.ts";
import { removeChains } from "./remove_chains.ts";
import { RemovalRun } from "./removal_run.ts";

interface RemovalEdges extends HostEdges {
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
  const servers = await findServers(edges, run, excludeCidrs);
  await run.removeSets(isKubeProxySet);
  await removeServers(edges, run, servers);
  const devices = await findDummyDevices(edges.commands, run.signal);
  if (run.take(`device ${IPVS_DEVICE}`, devices)?.includes(IPVS_DEVICE)) {
    await run.do(`device ${IPVS_DEVICE}`, {
      command: ["ip", "link", "del", IPVS_DEVICE],
      removes: [`device ${IPVS_DEVICE} with its addresses`],
    });
  }
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

/** The module ip_vs is not loaded for it: without it there are no virtual servers. */
async function findServers(
  { commands, network, clock }: RemovalEdges,
  run: RemovalRun,
  excludeCidrs: readonly Cidr[],
): Promise<readonly SeenServer[]> {
  const table = run.take("virtual servers", await readProcFile(commands, IP_VS_FILE, run.signal));
  const all = await inSteps({ clock }, readVirtualServers(table ?? ""));
  if (all.length === 0) return [];
  const sets = await readSets({ clock, commands }, { isWanted: isKubeProxySet, ...run.signal });
  const addresses = network.interfaceAddresses();
  const onDevice = addresses.filter(({ interfaceName }) => interfaceName === IPVS_DEVICE);
  const ownership = {
    noted: await inSteps({ clock }, notedServers(sets.state === "seen" ? sets.value : new Map())),
    deviceAddresses: new Set(onDevice.map(({ address }) => address)),
    nodeAddresses: new Set(addresses.map(({ address }) => address)),
    excludeCidrs,
  };
  return all.filter((server) => isOwnServer(server, ownership));
}

async function removeServers(
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
    input: () => renderServerDeletion(servers),
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
