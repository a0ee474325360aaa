/**
 * Removes what kube-proxy, or another enforcer of NetworkPolicies, left in the kernel.
 *
 * @module
 */
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import type { Cidr } from "../../../lib/net/cidr.ts";
import type { IpAddress } from "../../../lib/net/ip_address.ts";
import { CommandError } from "../../../lib/os/command_runner.ts";
import type { Network } from "../../../lib/os/network.ts";
import type {
  KubeProxyRemovalOptions,
  PolicyRemovalOptions,
} from "../../../lib/proxy/host_checks.ts";
import { findDummyDevices, IPVS_DEVICE } from "../../iproute/dummy_devices.ts";
import { IpRunner } from "../../iproute/ip_runner.ts";
import { inSteps } from "../in_steps.ts";
import { destroySets } from "../ipset/destroy_sets.ts";
import { listSets, readSets } from "../ipset/ipset_runner.ts";
import { IPTABLES_RULE_SETS } from "../iptables/iptables_rule_set.ts";
import { deletionText, type NftTable } from "../nft/nft_objects.ts";
import { removeCounters } from "../packet_counters.ts";
import { readProcFile } from "../probe/try_tool.ts";
import type { HostEdges } from "./host_contents.ts";
import { describeNftTable, listNftTables } from "./nft_tables.ts";
import { type OwnState, ownStateOfMode } from "./own_state.ts";
import { isKubeProxyChain, isKubeProxySet, KUBE_ROUTER_POLICIES, OWNERS } from "./owners.ts";
import { removeChains } from "./remove_chains.ts";
import { RemovalRun } from "./removal_run.ts";
import {
  describeServer,
  IP_VS_FILE,
  isOwnServer,
  notedServers,
  readVirtualServers,
  renderServerDeletion,
  type SeenServer,
} from "../virtual_servers.ts";

interface RemovalEdges extends HostEdges {
  readonly network: Network;
}

/**
 * Removes the rules of iptables and ipvs mode from all four rule sets, their packet counters, the
 * tables of nftables mode, and the sets, virtual servers and device of ipvs mode. The order follows
 * references. Continues after failures; missing objects and tools are no failure. The kubelet's
 * chains (`KUBE-FIREWALL`, `KUBE-KUBELET-CANARY`, `KUBE-IPTABLES-HINT`) and foreign objects stay: so do
 * virtual servers of other programs, where upstream's `--cleanup` flushes them all. A running kube-proxy
 * writes its rules again. `own`: the objects of the running mode.
 */
export async function removeKubeProxy(
  edges: RemovalEdges,
  { mode, excludeCidrs = [], own: given, ...options }: KubeProxyRemovalOptions & {
    readonly own?: OwnState;
  },
): Promise<CleanupReport> {
  const own = given ?? await ownStateOfMode(edges, { mode, ...options });
  const run = new RemovalRun(edges, options);
  await removeChains(edges, run, {
    worlds: IPTABLES_RULE_SETS,
    whose: "kube-proxy's",
    isLeftover: (table, chain, world) =>
      isKubeProxyChain(table, chain) && !own.chain?.({ world, table, chain }),
  });
  const counter = own.counter?.() ? undefined : await removeCounters(edges, run);
  if (counter !== undefined) run.keep(`${counter}: a rule of another program refers to it`);
  await removeNftTables(
    edges,
    run,
    "kube-proxy's tables",
    (table) => OWNERS["kube-proxy"].nftTable(table) && !own.nftTable?.(table),
  );
  // Read before the removal: sets and device identify the owner of virtual servers.
  const keepsDevice = own.device?.(IPVS_DEVICE) === true;
  const servers = keepsDevice ? [] : await findServers(edges, run, excludeCidrs);
  await removeSets(edges, run, (name) => isKubeProxySet(name) && !own.set?.(name));
  await removeServers(edges, run, servers);
  const devices = keepsDevice ? undefined : await findDummyDevices(edges.commands, run.signal);
  if (devices?.state === "refused") run.unseen(`device ${IPVS_DEVICE}`, devices.reason);
  if (devices?.state === "seen" && devices.value.includes(IPVS_DEVICE)) {
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
  const { chain: chainLabel, nftTable, set } = KUBE_ROUTER_POLICIES;
  const run = new RemovalRun(edges, options);
  await removeChains(edges, run, {
    worlds: IPTABLES_RULE_SETS,
    whose: "kube-router's policy",
    isLeftover: (table, chain) => chainLabel(table, chain) !== undefined,
  });
  await removeNftTables(edges, run, "kube-router's policy tables", nftTable);
  await removeSets(edges, run, set);
  return run.report();
}

async function removeNftTables(
  { commands }: HostEdges,
  run: RemovalRun,
  whose: string,
  isLeftover: (table: NftTable) => boolean,
): Promise<void> {
  const seen = await listNftTables(commands, run.signal);
  if (seen.state === "refused") run.unseen("tables of nftables", seen.reason);
  if (seen.state !== "seen") return;
  const tables = seen.value.filter(isLeftover);
  if (tables.length === 0) return;
  await run.do(`${whose} of nftables`, {
    command: ["nft", "-f", "-"],
    input: () => tables.map(deletionText),
    removes: tables.map(describeNftTable),
  });
}

/** The rules that refer to them have to be gone. */
async function removeSets(
  { commands }: HostEdges,
  run: RemovalRun,
  isLeftover: (name: string) => boolean,
): Promise<void> {
  const seen = await listSets(commands, run.signal);
  if (seen.state === "refused") run.unseen("ipsets", seen.reason);
  if (seen.state === "seen") await destroySets(run, seen.value.filter(isLeftover));
}

/** Longest list of virtual servers that a report spells out. */
const MAX_NAMED_SERVERS = 20;

/** The module ip_vs is not loaded for it: without it there are no virtual servers. */
async function findServers(
  { commands, clock, network }: RemovalEdges,
  run: RemovalRun,
  excludeCidrs: readonly Cidr[],
): Promise<readonly SeenServer[]> {
  const table = await readProcFile(commands, IP_VS_FILE, run.signal);
  if (table.state === "refused") run.unseen("virtual servers", table.reason);
  if (table.state !== "seen") return [];
  const all = await inSteps({ clock }, readVirtualServers(table.value));
  if (all.length === 0) return [];
  const sets = await readSets({ clock, commands }, { isWanted: isKubeProxySet, ...run.signal });
  const ownership = {
    noted: await inSteps({ clock }, notedServers(sets.state === "seen" ? sets.value : new Map())),
    deviceAddresses: await findDeviceAddresses(new IpRunner(commands, run.signal)),
    nodeAddresses: new Set(network.interfaceAddresses().map(({ address }) => address)),
    excludeCidrs,
  };
  return all.filter((server) => isOwnServer(server, ownership));
}

/** Returns no addresses if the device does not exist or cannot be read. */
async function findDeviceAddresses(ip: IpRunner): Promise<ReadonlySet<IpAddress>> {
  try {
    return new Set((await ip.addresses(IPVS_DEVICE))?.map(({ address }) => address));
  } catch (error) {
    if (error instanceof CommandError && error.kind !== "aborted") return new Set();
    throw error;
  }
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
