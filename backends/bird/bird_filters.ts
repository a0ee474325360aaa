/**
 * The filters of BIRD's configuration: what is accepted from peers and what is sent to them. Pure.
 *
 * @module
 */
import { type Cidr, cidrFamilyOf } from "../../lib/net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../../lib/net/ip_address.ts";
import type { BgpPeer, BgpPlan } from "../../lib/routing/bgp_plan.ts";
import { announcesTo, FAMILY_DIGIT, LEARNED_FROM_MESH, symbolOf } from "./bird_text.ts";

/** The filters that some peers need, each once. */
export function filterLines(plan: BgpPlan, peers: readonly BgpPeer[]): string[] {
  const filters = new Map<string, readonly string[]>();
  for (const family of IP_FAMILIES) {
    for (const role of ["external", "mesh"] as const) {
      const name = importFilterOf(plan, { role, family });
      if (name !== undefined) filters.set(name, importLines(plan, { role, family }));
    }
  }
  const isUsed = new Set(peers.map((peer) => importFilterOf(plan, inputOf(peer))));
  for (const name of filters.keys()) if (!isUsed.has(name)) filters.delete(name);
  for (const peer of peers) filters.set(exportFilterOf(plan, peer), exportLines(plan, peer));
  return [...filters].toSorted(([left], [right]) => left < right ? -1 : 1).flatMap((
    [name, lines],
  ) => [`filter ${name} {`, ...lines.map((line) => `  ${line}`), "  reject;", "}"]);
}

/** The inputs of a filter for received prefixes. */
interface Input {
  readonly role: "external" | "mesh";
  readonly family: IpFamily;
}

/** A session carries the prefixes of the family of its addresses. */
export function inputOf({ role, address }: BgpPeer): Input {
  return {
    role: role === "external" ? "external" : "mesh",
    family: address.includes(":") ? "IPv6" : "IPv4",
  };
}

/** The name of the filter for prefixes of a peer; `undefined` = none are accepted. */
export function importFilterOf({ imports }: BgpPlan, { role, family }: Input): string | undefined {
  const acceptsDefault = role === "external" && imports.defaultRoute;
  const isEmpty = ofFamily(imports[role], family).length === 0;
  return isEmpty && !acceptsDefault ? undefined : `import_${symbolOf(role)}${FAMILY_DIGIT[family]}`;
}

function importLines({ imports }: BgpPlan, { role, family }: Input): string[] {
  const refused = ofFamily(imports.refused, family);
  const accepted = ofFamily(imports[role], family);
  const verdict = role === "external" && imports.defaultRoute ? "accept" : "reject";
  const mark = role === "mesh" ? `${LEARNED_FROM_MESH} = 1; ` : "";
  return [
    ...(refused.length > 0 ? [`if net ~ ${prefixSet(refused)} then reject;`] : []),
    // A wide prefix in the configuration does not admit the default route.
    `if net.len = 0 then ${verdict};`,
    ...(accepted.length > 0 ? [`if net ~ ${prefixSet(accepted)} then { ${mark}accept; }`] : []),
  ];
}

/** Prefixes with everything in them, e.g. `[ 10.0.0.0/8+ ]`. */
function prefixSet(prefixes: readonly Cidr[]): string {
  return `[ ${prefixes.map((prefix) => `${prefix}+`).join(", ")} ]`;
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
