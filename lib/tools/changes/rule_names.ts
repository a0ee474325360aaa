import { parseIpAddress } from "../../net/ip_address.ts";
import { explainPacket } from "../../proxy/explain_packet.ts";
import type { Packet } from "../../proxy/packet.ts";
import type { PacketCarrier } from "../../proxy/packet_explanation.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServiceMode } from "../../proxy/service_mode.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";

/** Objects of one kind and name that serve a ServicePort. */
export interface RuleName {
  /** As {@linkcode PacketCarrier.object}, e.g. `rule` or `map element`. */
  readonly object: string;
  /** As {@linkcode PacketCarrier.name}: the chain of a rule, the map of an element. */
  readonly name: string;
  readonly count: number;
}

/** Maximum number of examined addresses of a ServicePort, which may have hundreds. */
const MOST_TARGETS = 4;
/** Maximum number of reported names of one ServicePort. */
const MOST_RULE_NAMES = 12;

/** Sources of the examined packets: documentation addresses, which no host has. */
const OUTSIDE = {
  IPv4: parseIpAddress("192.0.2.1"),
  IPv6: parseIpAddress("2001:db8::1"),
} as const;

/**
 * The objects that carry packets from outside to the addresses of one ServicePort and of no other;
 * the jumps that lead to them are omitted. Takes some milliseconds with 10,000 Services. Does not
 * read the machine.
 */
export function ruleNames(
  plan: ProxyPlan,
  service: ServicePlan,
  mode: Pick<ServiceMode, "explain">,
): readonly RuleName[] {
  // A plan of this ServicePort alone, so that no owner of the address has to be searched.
  const alone = { ...plan, services: new Map([[service.key, service]]) };
  const found = new Map<string, Map<string, PacketCarrier>>();
  for (const packet of packetsTo(plan, service)) {
    const { carriers } = mode.explain(plan, explainPacket(alone, packet, { isDraft: true }));
    for (const carrier of carriers.filter(({ isShared }) => !isShared)) {
      const id = `${carrier.object} ${carrier.name}`;
      const known = found.get(id) ?? new Map<string, PacketCarrier>();
      found.set(id, known.set(carrier.text, carrier));
    }
  }
  return [...found.values()].slice(0, MOST_RULE_NAMES).flatMap((carriers) => {
    const [first] = carriers.values();
    return first ? [{ object: first.object, name: first.name, count: carriers.size }] : [];
  });
}

function packetsTo({ family, shared }: ProxyPlan, service: ServicePlan): readonly Packet[] {
  const { clusterIp, externalIps, loadBalancerVips, port, nodePort, protocol } = service;
  const from = { kind: "outside", address: OUTSIDE[family] } as const;
  const [nodeAddress] = shared.nodePortAddresses;
  return [
    { from, to: clusterIp, port, protocol },
    ...(nodePort === undefined || nodeAddress === undefined
      ? []
      : [{ from, to: nodeAddress, port: nodePort, protocol }]),
    ...[...loadBalancerVips, ...externalIps].map((to) => ({ from, to, port, protocol })),
  ].slice(0, MOST_TARGETS);
}
