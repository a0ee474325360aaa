/**
 * Computes which entries of sets change, and whether before or after the virtual servers. Closing
 * changes come first and opening ones last, so that packets in between are treated as before.
 * Pure.
 *
 * @module
 */
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parseProtocol } from "../../lib/net/port.ts";
import type { AppliedServers } from "./applied_servers.ts";
import { SET_IDS, type SetId, setName } from "./ipset_table.ts";
import type { IpvsLayout } from "./layout.ts";
import { type ServerKey, serverKey } from "./virtual_server.ts";

/** Entries, by the time at which they are written. */
interface EntriesInTurn {
  readonly early: readonly string[];
  readonly late: readonly string[];
}

interface SetChanges {
  readonly id: SetId;
  readonly name: string;
  readonly added: EntriesInTurn;
  readonly removed: EntriesInTurn;
}

/** The changes of each set, in the order of {@linkcode SET_IDS}. */
export function setChanges(layout: IpvsLayout, applied: AppliedServers): SetChanges[] {
  const isOpening = openingTest(layout, applied);
  const changes: SetChanges[] = [];
  for (const id of SET_IDS) {
    const { missing, stale } = layout.sets[id];
    if (missing.length + stale.length === 0) continue;
    changes.push({
      id,
      name: setName(id, layout.options.family),
      added: inTurn(missing, (entry) => isOpening(id, entry)),
      removed: inTurn(stale, (entry) => !isClosing(layout, id, entry)),
    });
  }
  return changes;
}

/** Whether an entry admits packets that were refused. */
function openingTest(
  { addresses, sets }: IpvsLayout,
  applied: AppliedServers,
): (id: SetId, entry: string) => boolean {
  const fresh = new Set<string>(addresses.missing);
  return (id, entry) => {
    switch (id) {
      case "SERVED":
        // A new address receives no packets before it is added. An address with a virtual server, e.g.
        // of an earlier kube-proxy, was already served.
        return !fresh.has(entry.slice(0, entry.indexOf(","))) &&
          applied.get(serverOfEntry(entry)) === undefined;
      case "LOAD-BALANCER-SOURCE-CIDR":
      case "LOAD-BALANCER-SOURCE-IP":
        // Without source ranges an address admits every client; with its entry but no range, none.
        return sets["LOAD-BALANCER-FW"].isApplied(frontendOf(entry));
      default:
        return false;
    }
  };
}

/** Whether removing an entry refuses packets. */
function isClosing({ sets }: IpvsLayout, id: SetId, entry: string): boolean {
  switch (id) {
    case "SERVED":
      return true;
    case "LOAD-BALANCER-SOURCE-CIDR":
    case "LOAD-BALANCER-SOURCE-IP":
      return sets["LOAD-BALANCER-FW"].has(frontendOf(entry));
    default:
      return false;
  }
}

/** Address, protocol and port of a longer entry. */
function frontendOf(entry: string): string {
  return entry.slice(0, entry.indexOf(",", entry.indexOf(",") + 1));
}

function serverOfEntry(entry: string): ServerKey {
  const [address = "", frontend = ""] = entry.split(",");
  const [protocol = "", port = ""] = frontend.split(":");
  return serverKey({
    protocol: parseProtocol(protocol.toUpperCase()),
    address: parseIpAddress(address),
    port: Number(port),
  });
}

function inTurn(entries: readonly string[], isLate: (entry: string) => boolean): EntriesInTurn {
  const early: string[] = [];
  const late: string[] = [];
  for (const entry of entries) (isLate(entry) ? late : early).push(entry);
  return { early, late };
}
