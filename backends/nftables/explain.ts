import { findHit, type PacketHit } from "../../lib/explain/packet_hit.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import type {
  ModeDeviations,
  ModeExplanation,
  PacketExplanation,
} from "../../lib/proxy/packet_explanation.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { type NftOutcome, type WalkedNftTable, walkNft } from "../netfilter/walk/nft_walk.ts";
import {
  carriersOf,
  nodeAddressTest,
  noLocalhostReason,
  walkedPacket,
} from "../netfilter/walk/walk_steps.ts";
import { chainElement, chainName } from "./chain_spec.ts";
import { CONTAINER_NAMES, type Element } from "./containers.ts";
import { chainOf, elementsOf, type Entry } from "./entry.ts";
import { allocatedId, entriesMet, type EntryId } from "./entry_id.ts";
import { NftablesLayout, unsupported } from "./layout.ts";
import type { NftablesRenderOptions } from "./render_options.ts";

/** Explains a packet by walking the rules and elements that the kernel is given. */
export function explainNftables(
  plan: ProxyPlan,
  explanation: PacketExplanation,
  context: PacketTableOptions,
): ModeExplanation {
  const { packet, service, verdict } = explanation;
  const { options } = context;
  const hit = findHit(plan, packet);
  const unserved = hit && unservedReason(hit, explanation, options);
  const isUnclaimed = verdict.kind === "unclaimed";
  const table = packetTable(plan, packet, {
    ...context,
    ...(isUnclaimed && service && { without: service.key }),
  });
  const outcomes = walkNft(table, walkedPacket(packet), {
    isLocal: nodeAddressTest(plan, packet),
  });
  const carriers = carriersOf(outcomes);
  if (hit && unserved === undefined && !isUnclaimed) {
    const rejects = verdict.kind === "reject" && !options.features.reject;
    return { deviations: rejects ? DROPS : {}, carriers };
  }
  const outcome = outcomeOf(outcomes);
  return {
    deviations: { ...(unserved !== undefined && { unserved }), ...(outcome && { outcome }) },
    carriers: outcome ? carriers : [],
  };
}

const DROPS: ModeDeviations = {
  refusal: {
    kind: "drop",
    detail: "this kernel cannot refuse in prerouting, which takes Linux 5.9",
  },
};

function unservedReason(
  hit: PacketHit,
  { packet }: PacketExplanation,
  options: NftablesRenderOptions,
): string | undefined {
  const cure = "node ports are on 127.0.0.1 only if --nodeport-addresses names loopback";
  return noLocalhostReason(hit, packet, { ...options, cure }) ??
    unsupported(hit.service, options.features)?.reason;
}

/** The outcome of a packet that no Service has, if the rules do not let it pass. */
function outcomeOf(outcomes: readonly NftOutcome[]): ModeDeviations["outcome"] {
  for (const { verdict, path } of outcomes) {
    if (verdict === "ACCEPT") continue;
    const kind = verdict === "DROP" ? "drop" : "reject";
    const { name, text } = path.find(({ object }) => object === "set element") ?? {};
    switch (name) {
      case "cluster-ips":
        return {
          kind,
          why: `${text} is a cluster IP: every port that it does not serve is refused`,
        };
      case "service-cidrs":
        return { kind, why: `no other host can answer for ${text}, the range of cluster IPs` };
      default:
        return { kind, why: "other hosts may not reach the loopback addresses of this node" };
    }
  }
  return undefined;
}

interface PacketTableOptions {
  readonly options: NftablesRenderOptions;
  /** The applied table, whose endpoints may have other numbers. */
  readonly table?: { entry(id: EntryId): Entry | undefined } | undefined;
  /** A ServicePort without elements in the table, such as one that the kernel refused. */
  readonly without?: ServicePortKey;
}

/**
 * Renders the chains and elements that a packet can meet. Other Services are only checked, which
 * takes about 1 ms for 10,000.
 */
function packetTable(
  plan: ProxyPlan,
  packet: Packet,
  { options, table, without }: PacketTableOptions,
): WalkedNftTable {
  const layout = new NftablesLayout(plan.shared, options);
  for (const service of plan.services.values()) {
    if (service.key !== without && isMet(service, packet, layout)) layout.set(service);
  }
  const base = layout.baseChains();
  const chains = new Map(base.map(({ name, rules }) => [name, rules]));
  const elements = new Map(CONTAINER_NAMES.map((name) => [name, new Map<string, string>()]));
  const add = ({ container, key, value = "" }: Element) => elements.get(container)?.set(key, value);
  layout.sharedElements().forEach(add);
  for (const id of entriesMet(packet)) {
    const wanted = layout.entry(id, undefined);
    if (wanted === undefined) continue;
    const entry = ifCurrent(table?.entry(id), wanted) ?? wanted;
    elementsOf(entry).forEach(add);
    const spec = chainOf(entry);
    if (spec === undefined) continue;
    chains.set(chainName(spec), layout.chainRules(spec));
    add(chainElement(chainName(spec)));
  }
  const hooks = base.flatMap(({ name, hook }) => hook === undefined ? [] : [[name, hook] as const]);
  return { chains, hooks: new Map(hooks), elements };
}

/** Whether a ServicePort has an entry that the packet can meet. */
function isMet(
  service: ServicePlan,
  { to, port, protocol }: Packet,
  layout: NftablesLayout,
): boolean {
  const { clusterIp, externalIps, loadBalancerVips, nodePort } = service;
  // Thousands of ports may share a cluster IP, and one of them is enough to have it allocated.
  if (clusterIp === to && layout.entry(allocatedId(to), undefined) === undefined) return true;
  if (service.protocol !== protocol) return false;
  if (nodePort === port) return true;
  return service.port === port &&
    (clusterIp === to || externalIps.includes(to) || loadBalancerVips.includes(to));
}

/** The applied entry, unless it is of another plan. */
function ifCurrent(applied: Entry | undefined, wanted: Entry): Entry | undefined {
  return applied?.plan === wanted.plan ? applied : undefined;
}
