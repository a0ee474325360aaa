/**
 * Reads everything that proxies and policy engines leave in the kernel. Changes nothing and loads
 * no module of legacy iptables or ip_vs.
 *
 * @module
 */
import { IP_FAMILIES } from "../../../lib/net/ip_address.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type { BackendMode } from "../../../lib/proxy/backend.ts";
import { findDummyDevices } from "../../iproute/dummy_devices.ts";
import { inSteps } from "../in_steps.ts";
import {
  IPTABLES_RULE_SETS,
  type IptablesRuleSet,
  nameOfRuleSet,
  readRuleSet,
  type RuleSetContents,
} from "../iptables/iptables_rule_set.ts";
import { chooseIptables } from "../iptables/iptables_variant.ts";
import { listSets } from "../ipset/ipset_runner.ts";
import type { NftTable } from "../nft/nft_objects.ts";
import { listNftTables } from "../nft/nft_runner.ts";
import { readProcFile, type Seen } from "../probe/try_tool.ts";
import { IP_VS_FILE, readVirtualServers } from "../virtual_servers.ts";
import { countOf, isOfOtherModes, knownChain, type Owner } from "./owners.ts";

export interface HostEdges {
  readonly commands: CommandRunner;
  readonly clock: Clock;
}

/** The objects in the kernel. An unreadable part is empty, and named in `unseen`. */
export interface HostContents {
  /** The iptables rule sets that exist. */
  readonly worlds: readonly RuleSetContents[];
  /** Known chains by owner, one line for each kind and table. Those of the running mode are left out. */
  readonly chains: ReadonlyMap<Owner, readonly string[]>;
  readonly nftTables: readonly NftTable[];
  /** Names of ipsets. */
  readonly sets: readonly string[];
  /** Names of dummy devices. */
  readonly devices: readonly string[];
  readonly virtualServers: number;
  /** Unreadable parts with the reason, one line each. */
  readonly unseen: readonly string[];
}

/** Looks. Never rejects for a tool that is missing or refuses. */
export async function readHostContents(
  edges: HostEdges,
  own: OwnState,
  options: { readonly signal?: AbortSignal } = {},
): Promise<HostContents> {
  const { commands, clock } = edges;
  const unseen: string[] = [];
  const seen = <T, E>(what: string, result: Seen<T>, empty: E): T | E => {
    if (result.state === "seen") return result.value;
    if (result.state === "refused") unseen.push(`${what}: ${result.reason}`);
    return empty;
  };
  const worlds: RuleSetContents[] = [];
  for (const world of IPTABLES_RULE_SETS) {
    // One after the other: each dump may be 10 MB.
    const looked = await readRuleSet(edges, world, { countsOnly: true, ...options });
    const contents = seen(`${world.family} rules of iptables-${world.variant}`, looked, undefined);
    if (contents !== undefined) worlds.push(contents);
  }
  const servers = seen("virtual servers", await readProcFile(commands, IP_VS_FILE, options), "");
  return {
    worlds,
    chains: await inSteps(edges, countChains(worlds, own)),
    nftTables: seen("tables of nftables", await listNftTables(commands, options), []),
    sets: seen("ipsets", await listSets(commands, options), []),
    devices: seen("devices", await findDummyDevices(commands, options), []),
    virtualServers: (await inSteps({ clock }, readVirtualServers(servers))).length,
    unseen,
  };
}

function* countChains(
  worlds: readonly RuleSetContents[],
  own: OwnState,
): Generator<void, ReadonlyMap<Owner, readonly string[]>> {
  const lines = new Map<Owner, string[]>();
  for (const { world, tables } of worlds) {
    for (const [table, { chains }] of Object.entries(tables)) {
      const kinds = new Map<string, { owner: Owner; count: number }>();
      for (const chain of chains.keys()) {
        yield;
        const known = knownChain(table, chain);
        if (known === undefined) continue;
        if (known.owner === "kube-proxy" && own.usesChain(world, table, chain)) continue;
        const kind = kinds.get(known.label);
        if (kind) kind.count++;
        else kinds.set(known.label, { owner: known.owner, count: 1 });
      }
      for (const [label, { owner, count }] of kinds) {
        const line = `${countOf(label, count)} in ${table} (${nameOfRuleSet(world)})`;
        lines.set(owner, [...lines.get(owner) ?? [], line]);
      }
    }
  }
  return lines;
}

/** What the running mode uses of the objects that have kube-proxy's names. */
export interface OwnState {
  readonly mode: BackendMode | undefined;
  usesChain(world: IptablesRuleSet, table: string, chain: string): boolean;
}

/**
 * Finds out which objects the running mode uses. Modes that write iptables rules own every chain of such
 * a name in their rule set: they remove stale ones themselves, since only they can distinguish their
 * own from kube-proxy's. Sets and device belong to ipvs mode.
 */
export async function findOwnState(
  { commands }: { readonly commands: CommandRunner },
  mode: BackendMode | undefined,
  signal?: AbortSignal,
): Promise<OwnState> {
  const worlds = new Set<string>();
  for (const family of mode === "iptables" || mode === "ipvs" ? IP_FAMILIES : []) {
    const { programs } = await chooseIptables({ commands }, { family, signal });
    if (programs) worlds.add(nameOfRuleSet({ family, variant: programs.variant }));
  }
  return {
    mode,
    // Chains of ipvs mode refer to sets and a device that will be removed.
    usesChain: (world, table, chain) =>
      worlds.has(nameOfRuleSet(world)) && (mode === "ipvs" || !isOfOtherModes(table, chain)),
  };
}
