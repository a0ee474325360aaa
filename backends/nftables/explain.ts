import type { Packet } from "../../lib/proxy/packet.ts";
import type {
  AffinityEntry,
  ModeCarrier,
  ModeDeviations,
  ModeExplanation,
  PacketExplanation,
  PacketHit,
} from "../../lib/proxy/packet_explanation.ts";
import type { KernelObject } from "../../lib/engine/reconciler.ts";
import { cidrContains } from "../../lib/net/cidr.ts";
import { CidrCover } from "../../lib/net/cidr_cover.ts";
import { isLoopback } from "../../lib/net/ip_address.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { NftRunner } from "../netfilter/nft/nft_runner.ts";
import { chainObject } from "../netfilter/nft/nft_table.ts";
import { classidText } from "../netfilter/nft/table_listing.ts";
import { noLocalhostReason } from "../netfilter/rule_backend.ts";
import { baseChains, LOOPBACK_GUARD } from "./chain_spec.ts";
import { addressElements, type NumberedService, rangeText } from "./service_objects.ts";
import { BLOCK_MASK, type Slots, slotText } from "./slots.ts";
import { NftablesLayout, sharedElements, unsupported } from "./layout.ts";
import type { NftablesRenderOptions } from "./render_options.ts";

/**
 * Explains a packet by the objects of the frontend that it hits. `applied`: the ServicePort as it was
 * applied, whose endpoints may have other numbers.
 */
export function explainNftables(
  plan: ProxyPlan,
  explanation: PacketExplanation,
  hit: PacketHit | undefined,
  options: NftablesRenderOptions,
  applied: NumberedService | undefined,
): ModeExplanation {
  const { verdict } = explanation;
  const cure = "node ports are on 127.0.0.1 only if --nodeport-addresses names loopback";
  const unserved = hit && (noLocalhostReason(hit, explanation.packet, { ...options, cure }) ??
    unsupported(hit.service, options.features)?.reason);
  const layout = new NftablesLayout(plan.shared, options);
  if (hit && unserved === undefined && verdict.kind !== "unclaimed") {
    layout.set(hit.service);
    const isDropped = verdict.kind === "reject" && !options.features.reject;
    const detail = "this kernel cannot refuse in prerouting, which takes Linux 5.9";
    return {
      deviations: isDropped ? { refusal: { kind: "drop", detail } } : {},
      carriers: carriersOf(hit, explanation, layout, applied),
    };
  }
  const refusal = refusalOf(plan, explanation, layout);
  return {
    deviations: {
      ...(unserved !== undefined && { unserved }),
      ...(refusal && { outcome: refusal.outcome }),
    },
    carriers: refusal?.carriers ?? [],
  };
}

/** The objects of a frontend, and the fixed chain to which its element leads, if it leads to one. */
function carriersOf(
  { frontend, service }: PacketHit,
  { packet: { from }, verdict }: PacketExplanation,
  layout: NftablesLayout,
  applied: NumberedService | undefined,
): readonly ModeCarrier[] {
  const numbered = layout.numbered(service.key, applied?.plan === service ? applied : undefined);
  if (numbered === undefined) return [];
  const [front, ...rest] = layout.frontendObjects(numbered, frontend);
  const hairpin = `${from.address} . ${from.address}`;
  const own = addressElements(service).filter(({ name }) => name === hairpin);
  const isLookedUp = ({ kind }: KernelObject) => /(?:choices|endpoints)$/.test(kind);
  const fixed = sharedElements(layout)
    .find(({ kind, name }) => kind === "numbered-chains" && name === front?.text);
  const base = baseChains(layout).find(({ name }) => `goto ${name}` === fixed?.text);
  const isBlocked = verdict.kind === "drop" && verdict.why === "source-ranges";
  const objects = [
    ...(front ? [front] : []),
    ...(fixed ? [fixed] : []),
    ...(base ? [chainObject(base)] : []),
    ...rest.filter((object) => !object.isShared && !isLookedUp(object)),
    ...rest.filter(({ isShared }) => isShared).reverse(),
    ...rest.filter(isLookedUp),
    ...own,
  ];
  const met = isBlocked
    ? objects.filter((each) => !rest.includes(each) || each.kind === "source-ranges")
    : objects;
  const endpoints = new Map(
    Object.values(numbered.order).flat()
      .map(({ address, port, key }) => [`${address} . ${port}`, key]),
  );
  return met.flatMap(({ kind, name, text }): ModeCarrier | readonly ModeCarrier[] => {
    if (kind === "chain") return text.split("\n").slice(1).map((rule) => ruleCarrier(name, rule));
    return {
      object: text === "" ? "set element" : "map element",
      name: kind,
      text: text === "" ? name : `${name} : ${text}`,
      endpoint: endpoints.get(text),
      isShared: kind === "numbered-chains",
    };
  });
}

function ruleCarrier(chain: string, rule: string): ModeCarrier {
  return { object: "rule", name: chain, text: `${chain} ${rule}`, isShared: true };
}

/** The refusal of a packet that hits no frontend; `undefined` = it passes. */
function refusalOf(
  plan: ProxyPlan,
  { packet: { from, to }, service, verdict }: PacketExplanation,
  layout: NftablesLayout,
):
  | {
    readonly outcome: NonNullable<ModeDeviations["outcome"]>;
    readonly carriers: readonly ModeCarrier[];
  }
  | undefined {
  const { services, shared: { interfaceAddresses, nodeIp, serviceCidrs } } = plan;
  const { features } = layout.options;
  const rules = (chain: string, set: string) =>
    (baseChains(layout).find(({ name }) => name === chain)?.rules ?? [])
      .filter((rule) => rule.includes(set)).map((rule) => ruleCarrier(chain, rule));
  if (isLoopback(to)) {
    const carriers = rules(LOOPBACK_GUARD, "");
    if (carriers.length === 0 || from.kind === "node" || from.interfaceName === "lo") return;
    const why = "other hosts may not reach the loopback addresses of this node";
    return { outcome: { kind: "drop", why }, carriers };
  }
  const isOwn = [...interfaceAddresses, nodeIp].includes(to) ||
    (from.kind === "node" && from.address === to);
  if (isOwn) return undefined;
  // A ServicePort without elements in the table, such as one that the kernel refused.
  const without = verdict.kind === "unclaimed" ? service?.key : undefined;
  const element = (name: string, text: string) => [
    ...rules("unclaimed", `@${name} `),
    { object: "set element", name, text },
  ];
  for (const service of services.values()) {
    if (service.clusterIp !== to || service.key === without) continue;
    if (unsupported(service, features) !== undefined) continue;
    const why = `${to} is a cluster IP: every port that it does not serve is refused`;
    const kind = features.reject ? "reject" : "drop";
    return { outcome: { kind, why }, carriers: element("cluster-ips", to) };
  }
  const cidr = new CidrCover(serviceCidrs).outermost.find((each) => cidrContains(each, to));
  if (cidr === undefined) return undefined;
  const range = rangeText(cidr);
  const why = `no other host can answer for ${range}, the range of cluster IPs`;
  return { outcome: { kind: "drop", why }, carriers: element("service-cidrs", range) };
}

const SECONDS = { d: 86_400, h: 3_600, m: 60, s: 1 } as const;
/** `expires 2h59m58s996ms : 8bf1:2a` */
const ELEMENT = /\bexpires (\S+) : (\S+)/;

/**
 * Queries one element. `slots` are the slots of the ServicePort in the table. Rejects in IPv6,
 * where only the kernel can compute the hash of a client.
 */
export async function findAffinity(
  runner: Pick<NftRunner, "element">,
  slots: Slots,
  { from, to }: Pick<Packet, "from" | "to">,
): Promise<AffinityEntry | undefined> {
  if (to.includes(":")) {
    throw new Error("in IPv6 clients are remembered by a hash, and cannot be asked for");
  }
  const [any] = slots.values();
  if (any === undefined) return undefined;
  const key = `${slotText((any & BLOCK_MASK) >>> 0)} . ${from.address}`;
  const [, expires = "", printed = ""] =
    ELEMENT.exec(await runner.element("affinity", key) ?? "") ?? [];
  const slot = classidText(printed) ?? printed;
  const [endpoint] = [...slots].find(([, each]) => slotText(each) === slot) ?? [];
  return endpoint && { endpoint, expiresInSeconds: secondsOf(expires) };
}

function secondsOf(text: string): number {
  let seconds = 0;
  for (const [, number, unit] of text.matchAll(/(\d+)([dhms])(?!s)/g)) {
    seconds += Number(number) * SECONDS[unit as keyof typeof SECONDS];
  }
  return seconds;
}
