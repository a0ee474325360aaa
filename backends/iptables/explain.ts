import type {
  ModeCarrier,
  ModeExplanation,
  PacketExplanation,
  PacketHit,
} from "../../lib/proxy/packet_explanation.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { noLocalhostReason } from "../netfilter/rule_backend.ts";
import { addressPath, destinationPath, portPath } from "./packet_path.ts";
import type { IptablesLayout } from "./layout.ts";
import { layOut } from "./render.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import { unsupportedParts } from "./render_service.ts";

/** Explains a packet by the rules of the frontend that it hits, in a layout that holds the whole plan. */
export function explainIptables(
  { packet, verdict }: PacketExplanation,
  hit: PacketHit | undefined,
  layout: IptablesLayout,
): ModeExplanation {
  const unserved = hit && unservedReason(hit, packet, layout.options);
  if (unserved !== undefined) return { deviations: { unserved }, carriers: [] };
  if (hit === undefined || verdict.kind === "unclaimed") return { carriers: [] };
  const { service, frontend: { address, port } } = hit;
  const paths = [
    address === undefined
      ? portPath(service.protocol, port)
      : destinationPath(address, service.protocol, port),
    // The rule for an endpoint that is sent its own packet.
    addressPath(packet.from.address),
  ];
  const carriers: ModeCarrier[] = [];
  for (const { table, chain, rules, isShared } of layout.rulesFor(service, paths)) {
    // Table filter has the rules of refusals, which a forwarded packet does not match.
    if (verdict.kind === "forward" && table === "filter") continue;
    for (const rule of rules) {
      carriers.push({
        object: "rule",
        name: `${table} ${chain}`,
        text: `-A ${chain} ${rule}`,
        endpoint: / --to-destination (\S+)$/.exec(rule)?.[1],
        ...(isShared && { isShared }),
      });
    }
  }
  return { carriers };
}

function unservedReason(
  hit: PacketHit,
  packet: Packet,
  options: IptablesRenderOptions,
): string | undefined {
  const { everything, external, quarantined } = unsupportedParts(hit.service, options.features);
  if (everything || (external && hit.frontend.role !== "ClusterIP")) return quarantined[0]?.reason;
  const cure = "node ports on 127.0.0.0/8 are turned off, by --iptables-localhost-nodeports or " +
    "--nodeport-addresses";
  return noLocalhostReason(hit, packet, { ...options, cure });
}

/** The context besides the plan. */
interface ExplainedLayoutOptions {
  /** The current layout, if it belongs to the plan. */
  readonly applied: IptablesLayout | undefined;
  readonly options: IptablesRenderOptions;
}

/**
 * Caches the last layout: one request may ask for several packets, and 10,000 ServicePorts take 200
 * ms.
 */
export class ExplainedLayout {
  #known: { readonly plan: ProxyPlan; readonly layout: IptablesLayout } | undefined;

  /** The applied layout, or one for a plan that is only explained. */
  of(plan: ProxyPlan, { applied, options }: ExplainedLayoutOptions): IptablesLayout {
    if (applied) return applied;
    if (this.#known?.plan !== plan) {
      const layout = layOut(plan, options);
      // Only the text of the ServicePorts that are asked for is kept.
      layout.settle();
      this.#known = { plan, layout };
    }
    return this.#known.layout;
  }
}
