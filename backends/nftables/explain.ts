/**
 * Which chains, rules and elements carry a packet, and what this mode does in another way than the
 * plan says. Pure.
 *
 * @module
 */
import { cidrContains } from "../../lib/net/cidr.ts";
import { CidrCover } from "../../lib/net/cidr_cover.ts";
import { isLoopback } from "../../lib/net/ip_address.ts";
import type {
  ModeDeviations,
  ModeExplanation,
  PacketExplanation,
} from "../../lib/proxy/packet_explanation.ts";
import { findHit, type PacketHit } from "../../lib/proxy/packet_hit.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { EntryId } from "./claims.ts";
import { type Entry, rangeText } from "./entry.ts";
import { type Keeper, PacketWay } from "./explain_way.ts";
import type { NftablesRenderOptions } from "./render_options.ts";
import { unsupported } from "./unsupported.ts";

/** What is known beside the plan. */
interface NftablesExplainOptions {
  readonly options: NftablesRenderOptions;
  /** What the kernel is known to hold: endpoints may have other numbers there. */
  readonly table?: { applied(id: EntryId): Entry | undefined } | undefined;
}

/** What carries the packet of an explanation. */
export function explainNftables(
  plan: ProxyPlan,
  explanation: PacketExplanation,
  context: NftablesExplainOptions,
): ModeExplanation {
  const { packet } = explanation;
  const hit = findHit(plan, packet);
  const { options, table } = context;
  const applied = (id: EntryId) => table?.applied(id);
  const unserved = hit && unservedReason(hit, explanation, options);
  const way = new PacketWay(plan, { explanation, options, applied });
  if (hit && unserved === undefined && explanation.verdict.kind !== "unclaimed") {
    way.toService(hit);
    const rejects = explanation.verdict.kind === "reject" && !options.features.reject;
    return { ...(rejects && { deviations: DROPS }), carriers: way.carriers };
  }
  const keeper = keeperOf(plan, explanation, options);
  if (keeper) way.toKeeper(keeper);
  const deviations: ModeDeviations = {
    ...(unserved !== undefined && { unserved }),
    ...(keeper && { fate: fateOf(keeper, options) }),
  };
  return { deviations, carriers: way.carriers };
}

const DROPS: ModeDeviations = {
  refusal: {
    kind: "drop",
    detail: "this kernel cannot refuse in prerouting, which takes Linux 5.9",
  },
};

function unservedReason(
  { role, service }: PacketHit,
  { packet: { to } }: PacketExplanation,
  options: NftablesRenderOptions,
): string | undefined {
  if (role === "NodePort" && isLoopback(to)) {
    if (options.family === "IPv6") {
      return "IPv6 has no route_localnet: what goes to ::1 stays there";
    }
    if (!options.localhostNodePorts) {
      return "node ports are on 127.0.0.1 only where --nodeport-addresses names loopback";
    }
  }
  return unsupported(service, options.features)?.reason;
}

/** The set that keeps a packet for nobody from going on; `undefined` = none does. */
function keeperOf(
  { services, shared }: ProxyPlan,
  { packet: { to }, service: own }: PacketExplanation,
  options: NftablesRenderOptions,
): Keeper | undefined {
  // Both rules leave alone what is an address of the node.
  if (isLoopback(to) || to === options.nodeIp || shared.nodePortAddresses.includes(to)) {
    return undefined;
  }
  for (const service of services.values()) {
    // One that is not in effect has no element there.
    if (service.clusterIp !== to || service.key === own?.key) continue;
    if (unsupported(service, options.features)) continue;
    return { container: "cluster-ips", key: to };
  }
  const range = new CidrCover(shared.serviceCidrs).outermost.find((cidr) => cidrContains(cidr, to));
  return range && { container: "service-cidrs", key: rangeText(range) };
}

function fateOf(
  { container, key }: Keeper,
  { features }: NftablesRenderOptions,
): NonNullable<ModeDeviations["fate"]> {
  if (container === "service-cidrs") {
    return {
      kind: "drop",
      why: `nobody outside could answer for ${key}, the range of cluster IPs`,
    };
  }
  const why = `${key} is a cluster IP, and those refuse every port that they do not serve`;
  return { kind: features.reject ? "reject" : "drop", why };
}
