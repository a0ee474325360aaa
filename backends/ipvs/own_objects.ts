import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { Cidr } from "../../lib/net/cidr.ts";
import type { CleanupReport } from "../../lib/engine/data_plane.ts";
import { listSets, readSets } from "../netfilter/ipset/ipset_runner.ts";
import { scratchName } from "../netfilter/ipset/ipset_text.ts";
import { jumpsOf, type SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { OWNERS } from "../netfilter/foreign/owners.ts";
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import { type ChainFilter, removeChains } from "../netfilter/foreign/remove_chains.ts";
import {
  findOwnServers,
  type RemovalEdges,
  removeIpvsDevice,
  removeServers,
} from "../netfilter/foreign/remove_foreign.ts";
import { closeDevice, removePodTunnels } from "../iproute/pod_tunnels.ts";
import { baseChains, FIREWALL, FROM_CLUSTER, replyDevicesIn } from "./base_rules.ts";
import { SET_IDS, setName } from "./ipset_table.ts";
import { defaultIpvsOptions } from "./render_service.ts";

/** Chains that other modes use too. They belong to this mode only if its chains jump to them. */
const SHARED: Readonly<Record<string, readonly string[]>> = {
  nat: ["KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"],
  filter: ["KUBE-FORWARD"],
};

/**
 * Removes the addresses, virtual servers, rules and sets of a family, in this order: while an
 * address exists, the rules must protect the node's own ports on it. The device is removed with its
 * last address. Tolerates missing objects. `dryRun` only reports what would be removed.
 */
export async function removeOwnObjects(
  edges: RemovalEdges,
  family: IpFamily,
  excludeCidrs: readonly Cidr[],
  dryRun: boolean,
): Promise<CleanupReport> {
  const run = new RemovalRun(edges, { dryRun });
  const there = new Set(run.take("ipsets", await listSets(edges.commands, run.signal)));
  const names = SET_IDS.map((id) => setName(id, family));
  // A killed run may have left the set that was about to replace another one.
  const sets = [...new Set([...names, ...names.map(scratchName)])].filter((name) =>
    there.has(name)
  );
  // kube-proxy has no such set: without it, nothing on the machine belongs to this mode. Foreign rules may
  // use a set, so this one stays until all others are removed.
  const proof = setName("SERVED", family);
  if (!sets.includes(proof)) return run.report();
  const { servers, unread } = await findOwnServers(edges, run, excludeCidrs, family);
  if (unread !== undefined) {
    // The owner of the virtual servers would be unknown.
    run.unseen("entries of ipsets", unread);
    return run.report();
  }
  await removeIpvsDevice(edges, run, family);
  await removeServers(edges, run, servers);
  const sign = setName("DSR", family);
  const isSign = (name: string) => name === sign;
  const marked = sets.includes(sign)
    ? run.take("entries of ipsets", await readSets(edges, { isWanted: isSign, ...run.signal }))
    : undefined;
  if (marked?.get(sign)?.entries.size) await removePodTunnels(edges.commands, run, family);
  const devices = new Set<string>();
  await removeChains(edges, run, {
    family,
    whose: "kube-relay's",
    isLeftover: isOfMode,
    choose(tables) {
      for (const rule of tables.mangle.chains.get(FIREWALL) ?? []) {
        for (const device of replyDevicesIn(rule)) devices.add(device);
      }
      return ownChainsOf(tables);
    },
  });
  for (const device of family === "IPv4" ? devices : []) await closeDevice(run, device);
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
    hasDsr: false,
    replyDevices: [],
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
