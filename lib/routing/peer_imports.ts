/**
 * Which routes of peers are accepted, in words.
 *
 * @module
 */
import { type Cidr, cidrContains, cidrFamilyOf, networkOf, prefixLengthOf } from "../net/cidr.ts";
import {
  type BgpImports,
  type BgpPeer,
  type ImportedPrefix,
  LONGEST_PREFIX,
  type PeerImports,
} from "./bgp_plan.ts";

/** Says whether a route that peers of a role send is accepted, as the end of a sentence. */
export function importSentence(
  imports: BgpImports,
  { prefix, role }: { readonly prefix: Cidr; readonly role: "mesh" | "external" },
): string {
  const refusing = refusingRange(imports, prefix);
  if (refusing !== undefined) return refusing;
  if (prefixLengthOf(prefix) === 0) {
    return role === "external" && imports.defaultRoute
      ? "accepted, because routing.bgp.imports.defaultRoute is on"
      : DEFAULT_ROUTE;
  }
  const accepting = imports[role].find((range) => isWithin(prefix, range));
  return accepting === undefined
    ? "refused: no range that is accepted from such peers contains it"
    : `accepted, because ${accepting} is`;
}

/** As {@linkcode importSentence}, for a peer with imports of its own. */
export function peerImportSentence(
  imports: BgpImports,
  { prefix, own }: { readonly prefix: Cidr; readonly own: PeerImports },
): string {
  if (prefixLengthOf(prefix) === 0) {
    return own.defaultRoute ? "accepted, because its import.defaultRoute is on" : DEFAULT_ROUTE;
  }
  const find = (ranges: readonly ImportedPrefix[]) =>
    ranges.find((range) => isImported(prefix, range));
  const cluster = find(own.clusterPrefixes);
  if (cluster) return `accepted, because its import.clusterPrefixes has ${rangeText(cluster)}`;
  const refusing = refusingRange(imports, prefix);
  if (refusing !== undefined) return refusing;
  const accepting = find(own.prefixes);
  return accepting
    ? `accepted, because its import.prefixes has ${rangeText(accepting)}`
    : "refused: its import.prefixes does not have it";
}

/** Lists what a peer with imports of its own may send. */
export function acceptedText({ import: own }: Pick<BgpPeer, "import">): string | undefined {
  if (!own) return undefined;
  const parts = [
    ...own.prefixes.map(rangeText),
    ...own.clusterPrefixes.map((range) => `${rangeText(range)} of the cluster`),
    ...(own.defaultRoute ? ["a default route"] : []),
  ];
  const shown = parts.slice(0, MOST_NAMED).join(", ");
  const more = parts.length - MOST_NAMED;
  return parts.length === 0 ? "nothing" : more > 0 ? `${shown} and ${more} more` : shown;
}

const MOST_NAMED = 5;
const DEFAULT_ROUTE = "refused: it is the default route";

function refusingRange({ refused }: BgpImports, prefix: Cidr): string | undefined {
  const range = refused.find((each) => isWithin(prefix, each));
  return range && `refused: ${range} belongs to this cluster`;
}

function isImported(prefix: Cidr, { prefix: range, minLength, maxLength }: ImportedPrefix) {
  const length = prefixLengthOf(prefix);
  return isWithin(prefix, range) && minLength <= length && length <= maxLength;
}

function isWithin(prefix: Cidr, range: Cidr): boolean {
  return cidrFamilyOf(prefix) === cidrFamilyOf(range) &&
    prefixLengthOf(prefix) >= prefixLengthOf(range) &&
    cidrContains(range, networkOf(prefix));
}

/** E.g. `10.0.0.0/8`, or `10.0.0.0/8 with lengths 16 to 24`. */
function rangeText({ prefix, minLength, maxLength }: ImportedPrefix): string {
  return minLength === prefixLengthOf(prefix) && maxLength === LONGEST_PREFIX[cidrFamilyOf(prefix)]
    ? prefix
    : `${prefix} with lengths ${minLength} to ${maxLength}`;
}
