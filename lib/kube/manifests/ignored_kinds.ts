import { LEASE } from "../../api/kinds/lease.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import { printableText } from "../../log/printable_text.ts";

/** Kinds that other parts of a run may read, and that ask for nothing by themselves. */
const SILENT: readonly string[] = [NAMESPACE.kind, LEASE.kind];
/** Maximum number of kinds that a text names. */
const MOST_KINDS = 5;
/** Longest name of a kind in a text; the API accepts no longer one. */
const LONGEST_KIND = 63;

/** Returns the kinds that a user may expect to have an effect. */
export function unservedKinds(ignored: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  return new Map([...ignored].filter(([kind]) => !SILENT.includes(kind)));
}

/** Names kinds with the number of their objects, such as `NetworkPolicy x2, Deployment x1`. */
export function kindsText(kinds: ReadonlyMap<string, number>): string {
  const named = [...kinds]
    .sort(([one], [other]) => rankOf(one) < rankOf(other) ? -1 : 1)
    .slice(0, MOST_KINDS)
    .map(([kind, count]) => `${printableText(kind.slice(0, LONGEST_KIND))} x${count}`);
  const more = kinds.size - named.length;
  return more > 0 ? `${named.join(", ")} and ${more} more kinds` : named.join(", ");
}

/** Returns what serves some of the kinds; `undefined` = nothing does. */
export function cureOf(kinds: ReadonlyMap<string, number>): string | undefined {
  if (!kinds.has(NETWORK_POLICY.kind)) return undefined;
  return "NetworkPolicies are enforced with --network-policy only";
}

function rankOf(kind: string): string {
  return `${kind === NETWORK_POLICY.kind ? 0 : 1} ${kind}`;
}
