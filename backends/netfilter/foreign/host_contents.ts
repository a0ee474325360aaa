/**
 * Reads everything that proxies and policy engines leave in the kernel. Changes nothing and loads
 * no module of legacy iptables or ip_vs.
 *
 * @module
 */
import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { findDummyDevices } from "../../iproute/dummy_devices.ts";
import { inSteps } from "../in_steps.ts";
import {
  IPTABLES_RULE_SETS,
  readRuleSet,
  type RuleSetContents,
} from "../iptables/iptables_rule_set.ts";
import { listSets } from "../ipset/ipset_runner.ts";
import { listNftTables } from "./nft_tables.ts";
import type { NftTable } from "../nft/nft_objects.ts";
import { readProcFile, type Seen } from "../probe/try_tool.ts";
import { IP_VS_FILE, readVirtualServers, type SeenServer } from "../virtual_servers.ts";

/** The content of the kernel. An unreadable part is empty, and named in `unseen`. */
export interface HostContents {
  /** The iptables rule sets that exist. */
  readonly worlds: readonly RuleSetContents[];
  readonly nftTables: readonly NftTable[];
  /** Names of ipsets. */
  readonly sets: readonly string[];
  /** Names of dummy devices. */
  readonly devices: readonly string[];
  readonly virtualServers: readonly SeenServer[];
  /** Unreadable parts with the reason, one line each. */
  readonly unseen: readonly string[];
}

export interface HostEdges {
  readonly commands: CommandRunner;
  readonly clock: Clock;
}

/** Looks. Never rejects for a tool that is missing or refuses. */
export async function readHostContents(
  edges: HostEdges,
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
    const looked = await readRuleSet(edges, world, { keepJump: () => false, ...options });
    const contents = seen(`${world.family} rules of iptables-${world.variant}`, looked, undefined);
    if (contents !== undefined) worlds.push(contents);
  }
  const servers = seen("virtual servers", await readProcFile(commands, IP_VS_FILE, options), "");
  return {
    worlds,
    nftTables: seen("tables of nftables", await listNftTables(commands, options), []),
    sets: seen("ipsets", await listSets(commands, options), []),
    devices: seen("devices", await findDummyDevices(commands, options), []),
    virtualServers: await inSteps({ clock }, readVirtualServers(servers)),
    unseen,
  };
}
