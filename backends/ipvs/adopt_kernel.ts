/**
 * Records the state read from the kernel as the applied state, and finds missing objects. Pure,
 * except that it updates the layout and the list of servers.
 *
 * @module
 */
import type { Cidr } from "../../lib/net/cidr.ts";
import { cidrContains } from "../../lib/net/cidr.ts";
import { type IpAddress, ipFamilyOf } from "../../lib/net/ip_address.ts";
import { tryParsePort } from "../../lib/net/port.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import type { SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import { appliedFromSeen, type AppliedServer, type AppliedServers } from "./applied_servers.ts";
import { BASE_JUMPS, baseChains, FROM_CLUSTER } from "./base_rules.ts";
import type { KernelState } from "./diff.ts";
import { SET_IDS, type SetId, setName, setOptions } from "./ipset_table.ts";
import { canBeSwapped, normalOptions, scratchName } from "../netfilter/ipset/ipset_text.ts";
import type { KernelReading } from "./ipvs_runner.ts";
import type { IpvsLayout, WantedServer } from "./layout.ts";
import { isOwnServer } from "./own_server.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import type { NodePortServers } from "./server_record.ts";
import { looksForeign } from "./taken_servers.ts";
import { addressOfServer, type ServerKey } from "./virtual_server.ts";

/** The facts that determine the owner of a virtual server. */
interface Ownership {
  /** `ipvs.excludeCIDRs`: addresses of another program. */
  readonly excludeCidrs: readonly Cidr[];
  /**
   * Node ports and addresses that an earlier run served: the node may have lost an address since.
   */
  readonly earlierNodePorts: NodePortServers;
  /** Called for each foreign virtual server at the address and port of a Service. */
  readonly onForeign?: (key: ServerKey, wanted: WantedServer) => void;
}

/**
 * Adopts the sets, servers, addresses and rules of this mode; the next sync compares all of them.
 * Returns the state that the layout does not hold.
 */
export function adoptKernel(
  { layout, servers }: { readonly layout: IpvsLayout; readonly servers: AppliedServers },
  reading: KernelReading,
  ownership: Ownership,
): KernelState {
  const { tables } = reading;
  const { missing: missingSets, other: otherSets, stale: staleSets } = adoptSets(layout, reading);
  adoptServers({ layout, servers }, reading, ownership);
  layout.addresses.adopt(ofFamily(layout, reading.device ?? new Set()));
  // iptables refuses a rule that names a missing set.
  const hasRules = missingSets.size === 0 && otherSets.size === 0 && haveRules(tables, layout);
  layout.rules.adopt(hasRules ? new Set(layout.rules.wanted) : new Set());
  return {
    missingSets,
    otherSets,
    staleSets,
    hasDevice: reading.device !== undefined,
    hasRules,
    jumps: BASE_JUMPS.filter(({ table, from, rule }) => {
      const wanted = normalRule(ruleText(rule));
      return !(tables[table].builtIn.get(from) ?? []).some((each) => normalRule(each) === wanted);
    }),
    isTakeover: servesAnotherMode(tables),
  };
}

interface SetsFound {
  readonly missing: ReadonlySet<SetId>;
  readonly other: ReadonlySet<SetId>;
  readonly stale: readonly string[];
}

function adoptSets(
  layout: IpvsLayout,
  { sets }: KernelReading,
): SetsFound {
  const { family } = layout.options;
  const stale = new Set<string>();
  const missing = new Set<SetId>();
  const other = new Set<SetId>();
  for (const id of SET_IDS) {
    const name = setName(id, family);
    const saved = sets.get(name);
    const wanted = normalOptions(setOptions(id, family));
    const isSame = saved?.options === wanted;
    if (sets.has(scratchName(name))) stale.add(scratchName(name));
    if (saved !== undefined && !canBeSwapped(saved.options, wanted)) stale.add(name);
    if (saved === undefined || stale.has(name)) missing.add(id);
    else if (!isSame) other.add(id);
    layout.sets[id].adopt(isSame ? saved.entries : new Set());
  }
  return { missing, other, stale: [...stale] };
}

function adoptServers(
  { layout, servers }: { readonly layout: IpvsLayout; readonly servers: AppliedServers },
  reading: KernelReading,
  ownership: Ownership,
): void {
  const found = new Map<ServerKey, AppliedServer>();
  for (const seen of reading.servers) {
    const wanted = layout.server(seen.key);
    const applied = servers.get(seen.key);
    // Servers that this process applied are its own, even if no address or set proves it.
    const isKnown = wanted !== undefined || applied !== undefined;
    if (!isKnown && !isOurs(seen, { layout, reading, ownership })) continue;
    if (wanted !== undefined && applied === undefined) {
      // An excluded server may belong to an earlier run.
      const context = { layout, reading, ownership: { ...ownership, excludeCidrs: [] } };
      if (!isOurs(seen, context) && looksForeign(seen, wanted)) {
        ownership.onForeign?.(seen.key, wanted);
      }
    }
    const known = applied?.setup;
    found.set(seen.key, appliedFromSeen(seen, { wanted: wanted?.server, known }));
  }
  servers.adopt(found);
  layout.touch(found.keys());
  layout.touch(layout.servers);
}

/** Whether this mode, or a kube-proxy before it, created a virtual server of this family. */
function isOurs(
  { key }: SeenServer,
  { layout, reading, ownership }: {
    readonly layout: IpvsLayout;
    readonly reading: KernelReading;
    readonly ownership: Ownership;
  },
): boolean {
  const { protocol, address, port } = addressOfServer(key) ?? {};
  if (address === undefined || protocol === undefined || port === undefined) return false;
  if (ipFamilyOf(address) !== layout.options.family || tryParsePort(port) === undefined) {
    return false;
  }
  if (ownership.excludeCidrs.some((cidr) => cidrContains(cidr, address))) return false;
  const name = protocol === "TCP" ? "tcp" : protocol === "UDP" ? "udp" : "sctp";
  return isOwnServer({ protocol: name, address, port }, {
    noted: reading.noted,
    deviceAddresses: reading.device ?? new Set(),
    nodeAddresses: layout.options.nodeAddresses,
    excludeCidrs: ownership.excludeCidrs,
    earlierNodePorts: ownership.earlierNodePorts,
  });
}

function ofFamily(
  { options: { family } }: IpvsLayout,
  addresses: ReadonlySet<IpAddress>,
): ReadonlySet<IpAddress> {
  return new Set([...addresses].filter((address) =>
    // The kernel adds a link-local address to each device that is up.
    ipFamilyOf(address) === family && !address.startsWith("fe80:")
  ));
}

/** Whether all fixed chains have the desired rules. The order of rules of Services is ignored. */
function haveRules(tables: SavedTables, layout: IpvsLayout): boolean {
  return baseChains(layout.ruleContext).every(({ table, name, rules }) => {
    const found = tables[table].chains.get(name)?.map(normalRule);
    const wanted = rules.map((rule) => normalRule(ruleText(rule)));
    if (name === FROM_CLUSTER) {
      for (const rule of layout.rules.wanted) wanted.push(normalRule(rule));
      return found?.sort().join("\n") === wanted.sort().join("\n");
    }
    return found?.join("\n") === wanted.join("\n");
  });
}

/** Whether the chains are those of another mode or of kube-proxy. */
function servesAnotherMode({ nat }: SavedTables): boolean {
  const rules = nat.chains.get("KUBE-SERVICES") ?? [];
  return rules.length > 0 && !rules.some((rule) => rule.includes(FROM_CLUSTER));
}
