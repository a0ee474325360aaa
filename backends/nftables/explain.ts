import type {
  ModeDeviations,
  ModeExplanation,
  PacketExplanation,
} from "../../lib/proxy/packet_explanation.ts";
import { findHit, type PacketHit } from "../../lib/explain/packet_hit.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { type NftOutcome, walkNft } from "../netfilter/walk/nft_walk.ts";
import {
  carriersOf,
  nodeAddressTest,
  noLocalhostReason,
  walkedPacket,
} from "../netfilter/walk/walk_steps.ts";
import { packetTable, type PacketTableOptions } from "./packet_table.ts";
import type { NftablesRenderOptions } from "./render_options.ts";
import { unsupported } from "./layout.ts";

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
