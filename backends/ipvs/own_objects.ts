import type { Cidr } from "../../lib/net/cidr.ts";
import { type IpFamily, ipFamilyOf } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { Network } from "../../lib/os/network.ts";
import type { CleanupReport } from "../../lib/engine/data_plane.ts";
import { listSets, readSets } from "../netfilter/ipset/ipset_runner.ts";
import { findDummyDevices, IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { jumpsOf, type SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { isKubeProxySet, OWNERS } from "../netfilter/foreign/owners.ts";
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import { type ChainFilter, removeChains } from "../netfilter/foreign/remove_chains.ts";
import { readProcFile } from "../netfilter/probe/try_tool.ts";
import {
  describeServer,
  IP_VS_FILE,
  isOwnServer,
  notedServers,
  readVirtualServers,
  renderServerDeletion,
} from "../netfilter/virtual_servers.ts";
import { baseChains, FROM_CLUSTER } from "./base_rules.ts";
import { SET_IDS, setName } from "./ipset_table.ts";
import { scratchName } from "../netfilter/ipset/ipset_text.ts";
import { defaultIpvsOptions } from "./render_service.ts";

interface RemovalEdges {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly network: Network;
}

interface OwnObjectsRemoval {
  readonly family: IpFamily;
  readonly excludeCidrs: readonly Cidr[];
  /** Only reports what would be removed. */
  readonly dryRun: boolean;
}

/** Chains that other modes use too. They belong to this mode only if its chains jump to them. */
const SHARED: Readonly<Record<string, readonly string[]>> = {
  nat: ["KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"],
  filter: ["KUBE-FORWARD"],
};

/**
 * Removes the addresses, virtual servers, rules and sets of a family, in this order: while an
 * address exists, the rules must protect the node's own ports on it. The device is removed with its
 * last address. Tolerates missing objects.
 */
export async function removeOwnObjects(
  edges: RemovalEdges,
  removal: OwnObjectsRemoval,
): Promise<CleanupReport> {
  const run = new RemovalRun(edges, removal);
  const sets = await ownSets(edges, { run, removal });
  // kube-proxy has no such set: without it, nothing on the machine belongs to this mode.
  if (!sets.includes(setName("SERVED", removal.family))) return run.report();
  const deletion = await serverDeletion(edges, { run, removal });
  if (deletion === undefined) return run.report();
  await removeAddresses(edges, { run, removal });
  if (deletion.length > 0) {
    await run.do("virtual servers", {
      command: ["ipvsadm", "-R"],
      input: () => renderServerDeletion(deletion),
      removes: deletion.map(({ key }) => `virtual server ${describeServer(key)}`),
    });
  }
  await removeChains(edges, run, {
    family: removal.family,
    whose: "kube-relay's",
    isLeftover: isOfMode,
    choose: ownChainsOf,
  });
  // Foreign rules may use a set. Until all others are removed, one set identifies them as this
  // mode's.
  const proof = setName("SERVED", removal.family);
  await run.destroySets([...sets.filter((name) => name !== proof), proof], proof);
  return run.report();
}

/** Removes leftovers of kube-proxy, or of an earlier mode: chains, and jumps to them. */
export async function removeStaleChains(
  edges: RemovalEdges,
  family: IpFamily,
): Promise<CleanupReport> {
  const run = new RemovalRun(edges, { dryRun: false });
  await removeChains(edges, run, {
    family,
    whose: "kube-proxy's",
    isLeftover: (table, chain) =>
      OWNERS["kube-proxy"].chain(table, chain) !== undefined && !isOfMode(table, chain),
  });
  return run.report();
}

/** Names are the same for each family. */
const CHAINS: ReadonlySet<string> = new Set(
  baseChains({
    options: defaultIpvsOptions("IPv4"),
    localTraffic: { kind: "none" },
    masqueradeInternal: "none",
  }).map(({ table, name }) => `${table} ${name}`),
);

function isOfMode(table: string, chain: string): boolean {
  return CHAINS.has(`${table} ${chain}`);
}

/**
 * If another mode has rewritten `KUBE-SERVICES`, which has a jump of its own in this mode, the shared
 * chains are not this mode's.
 */
function ownChainsOf({ nat }: SavedTables): ChainFilter {
  const isInForce = jumpsOf(nat).some(({ from, to }) =>
    from === "KUBE-SERVICES" && to === FROM_CLUSTER
  );
  return (table, chain) => isOfMode(table, chain) && (isInForce || !SHARED[table]?.includes(chain));
}

async function ownSets(
  { commands }: RemovalEdges,
  { run, removal: { family } }: { readonly run: RemovalRun; readonly removal: OwnObjectsRemoval },
): Promise<readonly string[]> {
  const there = new Set(run.take("ipsets", await listSets(commands, run.signal)));
  const names = SET_IDS.map((id) => setName(id, family));
  // A killed run may have left the set that was about to replace another one.
  return [...new Set([...names, ...names.map(scratchName)])].filter((name) => there.has(name));
}

/** `undefined` = their owner is unknown. */
async function serverDeletion(
  { clock, commands, network }: RemovalEdges,
  { run, removal: { family, excludeCidrs } }: {
    readonly run: RemovalRun;
    readonly removal: OwnObjectsRemoval;
  },
) {
  const table = run.take("virtual servers", await readProcFile(commands, IP_VS_FILE, run.signal));
  if (table === undefined) return [];
  const addressSet = setName("NODE-PORT-IPS", family);
  const isWanted = (name: string) => isKubeProxySet(name) || name === addressSet;
  const saved = await readSets({ clock, commands }, { isWanted, ...run.signal });
  if (saved.state !== "seen") {
    // Without the sets the owner of the virtual servers would be unknown.
    run.unseen("entries of ipsets", saved.reason);
    return undefined;
  }
  const noted = await inSteps({ clock }, notedServers(saved.value));
  const all = network.interfaceAddresses();
  const deviceAddresses = new Set(
    all.filter(({ interfaceName }) => interfaceName === IPVS_DEVICE).map(({ address }) => address),
  );
  const nodeAddresses = new Set<string>(all.map(({ address }) => address))
    .union(saved.value.get(addressSet)?.entries ?? new Set<string>());
  const ownership = { noted, deviceAddresses, nodeAddresses, excludeCidrs };
  const servers = await inSteps({ clock }, readVirtualServers(table));
  return servers.filter((server) =>
    ipFamilyOf(server.address) === family && isOwnServer(server, ownership)
  );
}

async function removeAddresses(
  { commands, network }: RemovalEdges,
  { run, removal: { family } }: { readonly run: RemovalRun; readonly removal: OwnObjectsRemoval },
): Promise<void> {
  // A device of this name but another kind belongs to another program.
  const devices = await findDummyDevices(commands, run.signal);
  if (!run.take(`device ${IPVS_DEVICE}`, devices)?.includes(IPVS_DEVICE)) return;
  const hasOtherFamily = network.interfaceAddresses().some(({ interfaceName, address }) =>
    interfaceName === IPVS_DEVICE && ipFamilyOf(address) !== family && !address.startsWith("fe80:")
  );
  const flag = family === "IPv4" ? "-4" : "-6";
  await run.do(`device ${IPVS_DEVICE}`, {
    command: hasOtherFamily
      ? ["ip", flag, "addr", "flush", "dev", IPVS_DEVICE]
      : ["ip", "link", "del", IPVS_DEVICE],
    removes: [hasOtherFamily ? `${family} addresses of ${IPVS_DEVICE}` : `device ${IPVS_DEVICE}`],
  });
}
