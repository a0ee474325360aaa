/**
 * The filters of BIRD's configuration: what is accepted from peers and what is sent to them. Pure.
 *
 * @module
 */
import { type Cidr, cidrFamilyOf } from "../../../lib/net/cidr.ts";
import { type IpFamily, ipFamilyOf } from "../../../lib/net/ip_address.ts";
import type { BgpPeer, BgpPlan, ImportedPrefix } from "../../../lib/routing/bgp_plan.ts";
import { announcesTo, FAMILY_DIGIT, LEARNED_FROM_MESH, symbolOf } from "./bird_text.ts";

/** The filters that some peers need, each once. */
export function filterLines(plan: BgpPlan, peers: readonly BgpPeer[]): string[] {
  const filters = new Map<string, readonly string[]>();
  for (const peer of peers) {
    const name = importFilterOf(plan, peer);
    // Every node of the mesh has the same, with the addresses of all nodes.
    if (name !== undefined && !filters.has(name)) filters.set(name, importLines(plan, peer));
    filters.set(exportFilterOf(plan, peer), exportLines(plan, peer));
  }
  return [...filters].toSorted(([left], [right]) => left < right ? -1 : 1).flatMap((
    [name, lines],
  ) => [`filter ${name} {`, ...lines.map((line) => `  ${line}`), "  reject;", "}"]);
}

/** The name of the filter for prefixes of a peer; `undefined` = none are accepted. */
export function importFilterOf({ imports }: BgpPlan, peer: BgpPeer): string | undefined {
  const { import: own, address, name } = peer;
  if (own) {
    const isEmpty = own.prefixes.length + own.clusterPrefixes.length === 0 && !own.defaultRoute;
    return isEmpty ? undefined : `accept_${name}`;
  }
  const [source, family] = [sourceOf(peer), ipFamilyOf(address)];
  const acceptsDefault = source === "external" && imports.defaultRoute;
  const isEmpty = ofFamily(imports[source], family).length === 0;
  return isEmpty && !acceptsDefault ? undefined : `import_${source}${FAMILY_DIGIT[family]}`;
}

function importLines({ imports }: BgpPlan, peer: BgpPeer): string[] {
  const [source, family] = [sourceOf(peer), ipFamilyOf(peer.address)];
  const refused = prefixSet(ofFamily(imports.refused, family).map(anyLength));
  const { import: own } = peer;
  // A wide prefix in the configuration does not admit the default route.
  const defaultRoute = (isAccepted: boolean) =>
    `if net.len = 0 then ${isAccepted ? "accept" : "reject"};`;
  if (own) {
    return [
      defaultRoute(own.defaultRoute),
      ...whereIn(prefixSet(own.clusterPrefixes.map(ofLengths)), "accept;"),
      ...whereIn(refused, "reject;"),
      ...whereIn(prefixSet(own.prefixes.map(ofLengths)), "accept;"),
    ];
  }
  const mark = source === "mesh" ? `${LEARNED_FROM_MESH} = 1; ` : "";
  const accepted = prefixSet(ofFamily(imports[source], family).map(anyLength));
  return [
    ...whereIn(refused, "reject;"),
    defaultRoute(source === "external" && imports.defaultRoute),
    ...whereIn(accepted, `{ ${mark}accept; }`),
  ];
}

/** The configured ranges that apply to a peer. */
function sourceOf({ role }: BgpPeer): "external" | "mesh" {
  return role === "external" ? "external" : "mesh";
}

function whereIn(set: string | undefined, action: string): string[] {
  return set === undefined ? [] : [`if net ~ ${set} then ${action}`];
}

/** A set of prefix patterns, e.g. `[ 10.0.0.0/8+ ]`; `undefined` = BIRD has no empty set. */
function prefixSet(patterns: readonly string[]): string | undefined {
  return patterns.length === 0 ? undefined : `[ ${patterns.join(", ")} ]`;
}

/** A prefix with everything in it. */
function anyLength(prefix: Cidr): string {
  return `${prefix}+`;
}

function ofLengths({ prefix, minLength, maxLength }: ImportedPrefix): string {
  return `${prefix}{${minLength},${maxLength}}`;
}

/** The name of the filter for what is sent to a peer. */
export function exportFilterOf(plan: BgpPlan, peer: BgpPeer): string {
  return [
    "export",
    symbolOf(peer.role),
    ...(reflectsTo(plan, peer) ? ["reflected"] : []),
    ...(peer.prepend > 0 ? [`prepend${peer.prepend}`] : []),
  ].join("_");
}

function exportLines(plan: BgpPlan, peer: BgpPeer): string[] {
  const prepended = Array.from(
    { length: peer.prepend },
    () => `bgp_path.prepend(${plan.localAs});`,
  );
  const actions = [...prepended, "accept;"].join(" ");
  return [
    `if source = RTS_STATIC && defined(${announcesTo(peer.role)}) then { ${actions} }`,
    ...(reflectsTo(plan, peer)
      ? [`if source = RTS_BGP && defined(${LEARNED_FROM_MESH}) then { ${actions} }`]
      : []),
  ];
}

/**
 * Whether a peer receives routes of other nodes. BIRD adds the rule of reflectors: routes of clients
 * go to every peer, and all other routes go to clients only.
 */
function reflectsTo({ localAs, peers }: BgpPlan, { as, role }: BgpPeer): boolean {
  return role !== "external" && as === localAs &&
    peers.some((peer) => peer.role === "reflector-client");
}

function ofFamily(prefixes: readonly Cidr[], family: IpFamily): Cidr[] {
  return prefixes.filter((prefix) => cidrFamilyOf(prefix) === family);
}
