/**
 * Which virtual server, entries of sets and rules carry a packet, and what this mode does in another
 * way than the plan says. Pure.
 *
 * @module
 */
import { hostCidr } from "../../lib/net/cidr.ts";
import { type IpAddress, isLoopback } from "../../lib/net/ip_address.ts";
import { isFromCluster } from "../../lib/proxy/explain_packet.ts";
import type {
  ModeDeviations,
  ModeExplanation,
  PacketCarrier,
  PacketExplanation,
} from "../../lib/proxy/packet_explanation.ts";
import { findHit, type PacketHit } from "../../lib/proxy/packet_hit.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { ruleText } from "../netfilter/iptables_objects.ts";
import { baseChains, type BaseRuleContext, FROM_CLUSTER } from "./base_rules.ts";
import { DEVICE } from "./diff.ts";
import { setName } from "./ipset_table.ts";
import { operationLine } from "./ipvs_operation.ts";
import type { IpvsRenderOptions } from "./render_options.ts";
import { isSameChoice, renderService } from "./render_service.ts";
import type { ServiceFront, SetEntry } from "./service_front.ts";
import { describeServer, realServerKey, serverKey } from "./virtual_server.ts";

/** What carries the packet of an explanation. */
export function explainIpvs(
  plan: ProxyPlan,
  explanation: PacketExplanation,
  options: IpvsRenderOptions,
): ModeExplanation {
  const hit = findHit(plan, explanation.packet);
  if (hit === undefined || explanation.verdict.kind === "unclaimed") {
    const fate = fateOf(plan, explanation, options);
    return { ...(fate && { deviations: { fate } }), carriers: [] };
  }
  const deviations = deviationsOf(hit, explanation, options);
  if (deviations.unserved !== undefined) return { deviations, carriers: [] };
  const context = { plan, explanation, hit, options, deviations };
  return { deviations, carriers: carriersOf(context) };
}

interface Passage {
  readonly plan: ProxyPlan;
  readonly explanation: PacketExplanation;
  readonly hit: PacketHit;
  readonly options: IpvsRenderOptions;
  readonly deviations: ModeDeviations;
}

function deviationsOf(
  { role, service }: PacketHit,
  { packet: { to }, origin, sourceRanges, policy, verdict }: PacketExplanation,
  { family }: IpvsRenderOptions,
): ModeDeviations {
  if (role === "NodePort" && (isLoopback(to) || to.startsWith("fe80:"))) {
    return { unserved: "IPVS leaves loopback and link-local addresses alone" };
  }
  const isRefusedEarly = sourceRanges?.admitted === false && verdict.kind === "reject";
  if (isRefusedEarly) {
    const detail = "source ranges are looked at before it is known that there is no endpoint";
    return { refusal: { kind: "drop", detail } };
  }
  const isBound = policy?.verdict === "externalFromCluster" && bindsEverybody(service);
  const isOwnPacket = role === "ClusterIP" && origin.isFromNode &&
    service.masqueradeInternal === "none";
  return {
    ...(isBound && {
      asOutsider: "where policy Local binds the cluster IP too, no virtual server has the " +
        "endpoints of other nodes",
    }),
    ...(isOwnPacket && {
      source: {
        rewritten: "always",
        detail: `the ${family} address of the Service itself is the source that the kernel chose`,
      },
    }),
  };
}

/** Whether pods and the node get no other endpoints at external addresses than anybody else. */
function bindsEverybody(
  { masqueradeExternal, internal, external, externalFromCluster }: ServicePlan,
) {
  return masqueradeExternal === "from-node" && externalFromCluster.kind === "forward" &&
    !isSameChoice(internal, externalFromCluster) && !isSameChoice(external, externalFromCluster);
}

/** Service addresses are addresses of the node: what nobody serves there is closed. */
function fateOf(
  { services }: ProxyPlan,
  { packet: { to }, service: own }: PacketExplanation,
  { nodeAddresses }: IpvsRenderOptions,
): ModeDeviations["fate"] {
  if (nodeAddresses.has(to)) return undefined;
  for (const { key, clusterIp, externalIps, loadBalancerVips } of services.values()) {
    if (key === own?.key) continue;
    if (clusterIp !== to && !externalIps.includes(to) && !loadBalancerVips.includes(to)) continue;
    return { kind: "reject", why: `${to} is a Service address on ${DEVICE}, closed for all else` };
  }
  return undefined;
}

function carriersOf(passage: Passage): readonly PacketCarrier[] {
  const { plan: { shared }, explanation, hit: { service }, options } = passage;
  const { packet: { to, port, protocol } } = explanation;
  const parts = renderService(service, { shared, options });
  const front = parts.fronts.find(({ server }) =>
    server.key === serverKey({ protocol, address: to, port })
  );
  if (front === undefined) return [];
  const target = targetOf(passage, parts.fronts, front);
  return [
    ...(front.bound === undefined ? [] : [addressCarrier(front.bound)]),
    ...front.entries.map((entry) => entryCarrier(entry, options)),
    ...ruleCarriers(passage, front.entries),
    ...(target === front || front.rule === undefined
      ? []
      : [carrier("rule", `nat ${FROM_CLUSTER}`, `-A ${FROM_CLUSTER} ${front.rule}`)]),
    ...serverCarriers(target, explanation),
    ...sourceCarriers(passage, parts.entries),
  ];
}

/** What pods and the node send to an external address of policy Local goes by the cluster IP. */
function targetOf(
  { explanation: { policy }, deviations }: Passage,
  fronts: readonly ServiceFront[],
  front: ServiceFront,
): ServiceFront {
  const isRedirected = policy?.verdict === "externalFromCluster" && front.rule !== undefined &&
    deviations.asOutsider === undefined;
  return isRedirected ? fronts.find(({ isClusterIp }) => isClusterIp) ?? front : front;
}

function serverCarriers(
  { server, endpoints }: ServiceFront,
  { verdict }: PacketExplanation,
): readonly PacketCarrier[] {
  const name = describeServer(server.key);
  const reals = verdict.kind === "forward" ? endpoints : [];
  return [
    carrier("virtual server", name, operationLine({ kind: "addServer", server })),
    ...reals.map(({ address, port }) => {
      const real = {
        key: realServerKey(address, port),
        forwarding: "masquerade",
        weight: 1,
      } as const;
      const text = operationLine({ kind: "addReal", server: server.key, real });
      return carrier("real server", `${name} ${real.key}`, text);
    }),
  ];
}

/** The fixed rules that ask for one of these sets. */
function ruleCarriers(
  { plan, explanation: { origin }, hit: { service }, options }: Passage,
  entries: readonly SetEntry[],
): readonly PacketCarrier[] {
  const names = new Set(entries.map(([set]) => setName(set, options.family)));
  return baseRules({ plan, service, options }).filter(({ text, name }) =>
    !name.endsWith("POSTROUTING") && names.has(setOf(text) ?? "") &&
    (isFromCluster(origin) || !text.endsWith(` ${FROM_CLUSTER}`))
  );
}

function sourceCarriers(
  { plan, explanation: { source, endpoints, packet: { from } }, hit: { service }, options }:
    Passage,
  entries: readonly SetEntry[],
): readonly PacketCarrier[] {
  const rules = baseRules({ plan, service, options }).filter(({ name }) =>
    name === "nat KUBE-POSTROUTING"
  );
  const loopBack = setName("LOOP-BACK", options.family);
  if (source?.rewritten === "always") {
    return rules.filter(({ text }) => setOf(text) === undefined);
  }
  if (!endpoints.some(({ seesNode }) => seesNode)) return [];
  return [
    ...entries.filter(([set, entry]) => set === "LOOP-BACK" && entry.endsWith(`,${from.address}`))
      .map((entry) => entryCarrier(entry, options)),
    ...rules.filter(({ text }) => setOf(text) === loopBack),
  ];
}

function baseRules(
  { plan, service: { masqueradeInternal }, options }: {
    readonly plan: ProxyPlan;
    readonly service: ServicePlan;
    readonly options: IpvsRenderOptions;
  },
): readonly PacketCarrier[] {
  const { localTraffic } = plan.shared;
  const context: BaseRuleContext = { options, localTraffic, masqueradeInternal };
  return baseChains(context).flatMap(({ table, name, rules }) =>
    rules.map((rule) => carrier("rule", `${table} ${name}`, `-A ${name} ${ruleText(rule)}`))
  );
}

function addressCarrier(address: IpAddress): PacketCarrier {
  return carrier("address", address, `addr replace ${hostCidr(address)} dev ${DEVICE}`);
}

function setOf(rule: string): string | undefined {
  return / --match-set (\S+) /.exec(rule)?.[1];
}

function entryCarrier([set, entry]: SetEntry, { family }: IpvsRenderOptions): PacketCarrier {
  const name = setName(set, family);
  return carrier("ip set entry", name, `add ${name} ${entry}`);
}

function carrier(object: string, name: string, text: string): PacketCarrier {
  return { object, name, text };
}
