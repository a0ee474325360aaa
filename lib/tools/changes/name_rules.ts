import { countText } from "../../log/count_text.ts";
import { type IpFamily, parseIpAddress } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { Backend } from "../../proxy/backend.ts";
import { explainPacket } from "../../proxy/explain_packet.ts";
import type { Packet } from "../../proxy/packet.ts";
import type { PacketCarrier } from "../../proxy/packet_explanation.ts";
import { findHit } from "../../proxy/packet_hit.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { ChangeEntry, ChangeLine, ChangesReport } from "./change_entry.ts";

/** One IP family of the running process. */
export interface ServedFamily {
  readonly family: IpFamily;
  readonly backend: Pick<Backend, "explain">;
  readonly services: { readonly plan: ProxyPlan };
}

/** Objects of one kind and name that serve a ServicePort. */
interface RuleName {
  /** As in "Carried by" of `explain`, e.g. `rule` or `map element`. */
  readonly object: string;
  /** The chain of a rule, the map of an element. */
  readonly name: string;
  readonly count: number;
}

/** The maximum number of ServicePorts with rules; the newest entries come first. */
export const MOST_NAMED = 32;

/**
 * Adds a line to the newest effects with the rules that serve the ServicePort now. Only done for a request,
 * so that no sync waits for it.
 */
export async function nameRules(
  { clock, families }: { readonly clock: Clock; readonly families: readonly ServedFamily[] },
  report: ChangesReport,
): Promise<ChangesReport> {
  const known = new Map(families.map((each) => [each.family, new Map<string, Rules>()]));
  const rulesOf = async (family: IpFamily, servicePort: string): Promise<Rules> => {
    const served = families.find((each) => each.family === family);
    const rules = known.get(family);
    if (served === undefined || rules === undefined) return undefined;
    if (!rules.has(servicePort)) {
      if (rules.size >= MOST_NAMED) return undefined;
      await clock.yieldToEventLoop();
      rules.set(servicePort, currentRules(served, servicePort));
    }
    return rules.get(servicePort);
  };
  const entries: ChangeEntry[] = [];
  for (const entry of report.entries.toReversed()) {
    const lines: ChangeLine[] = [];
    for (const line of entry.lines) {
      lines.push(line);
      const { item, tone } = line;
      if (entry.family === undefined || entry.controller || !item || tone !== "effect") continue;
      const rules = await rulesOf(entry.family, item);
      if (rules) lines.push({ tone: "detail", text: rulesText(rules) });
    }
    entries.push({ ...entry, lines });
  }
  return { ...report, entries: entries.reverse() };
}

/** Most names in a text. */
const MAX_SHOWN = 4;

/** The rules currently installed; the rules of that time may no longer exist. */
function rulesText(rules: readonly RuleName[]): string {
  if (rules.length === 0) return "now without rules";
  const shown = rules.slice(0, MAX_SHOWN).map(({ object, name, count }) =>
    `${name} (${count === 1 ? object : countText(count, object)})`
  );
  const more = rules.length - shown.length;
  return `by ${shown.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

/** `undefined` if the mode cannot name rules. */
type Rules = readonly RuleName[] | undefined;

function currentRules({ backend, services: { plan } }: ServedFamily, servicePort: string): Rules {
  const services: ReadonlyMap<string, ServicePlan> = plan.services;
  const service = services.get(servicePort);
  if (service === undefined) return [];
  try {
    return ruleNames(plan, service, backend);
  } catch {
    // The names are an addition: a node with a problem still has to report its changes.
    return undefined;
  }
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
  mode: Pick<Backend, "explain">,
): readonly RuleName[] {
  // A plan of this ServicePort alone, so that no owner of the address has to be searched.
  const alone = { ...plan, services: new Map([[service.key, service]]) };
  const found = new Map<string, Map<string, PacketCarrier>>();
  for (const packet of packetsTo(plan, service)) {
    const hit = findHit(alone, packet);
    const draft = explainPacket(alone, packet, { isDraft: true }, hit);
    const { carriers } = mode.explain(plan, draft, hit);
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
