import { formatHostPort } from "../../lib/net/port.ts";
import { type IpAddress, isLoopback } from "../../lib/net/ip_address.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import type {
  ModeDeviations,
  ModeExplanation,
  PacketExplanation,
} from "../../lib/proxy/packet_explanation.ts";
import { findHit, type PacketHit } from "../../lib/explain/packet_hit.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { walkIptables, type WalkOutcome } from "../netfilter/walk/iptables_walk.ts";
import { carriersOf, nodeAddressTest, walkedPacket } from "../netfilter/walk/walk_steps.ts";
import { AppliedServers } from "./applied_servers.ts";
import { DEVICE, diffIpvs, EMPTY_KERNEL } from "./diff.ts";
import { IpvsLayout } from "./layout.ts";
import type { IpvsRenderOptions } from "./render_options.ts";
import { readRenderedKernel, type RenderedKernel } from "./rendered_kernel.ts";

/** Explains a packet by walking the rendered rules, sets and servers. */
export function explainIpvs(
  plan: ProxyPlan,
  explanation: PacketExplanation,
  options: IpvsRenderOptions,
): ModeExplanation {
  const { packet, service, verdict } = explanation;
  const hit = findHit(plan, packet);
  const isUnclaimed = verdict.kind === "unclaimed";
  if (hit && !isUnclaimed && isLeftAlone(hit, packet)) {
    return {
      deviations: { unserved: "IPVS leaves loopback and link-local addresses alone" },
      carriers: [],
    };
  }
  const without = isUnclaimed ? service?.key : undefined;
  const kernel = readRenderedKernel(stepsMet(plan, packet, { options, without }));
  const { from, to } = packet;
  // The kernel chooses an address of the node as source, and a bound one is the nearest.
  const isBound = from.kind === "node" && kernel.ipvs.address(to) !== undefined;
  const source = isBound ? to : from.address;
  const outcomes = walkPacket(plan, packet, { kernel, source });
  if (hit === undefined || isUnclaimed) {
    const outcome = outcomeOf(outcomes, packet);
    return {
      ...(outcome && { deviations: { outcome } }),
      carriers: outcome ? carriersOf(outcomes) : [],
    };
  }
  return {
    deviations: deviationsOf(explanation, outcomes, options),
    carriers: carriersOf(outcomes),
  };
}

function isLeftAlone({ frontend: { role } }: PacketHit, { to }: Packet): boolean {
  return role === "NodePort" && (isLoopback(to) || to.startsWith("fe80:"));
}

/** Renders the ServicePorts that the packet can meet. */
function stepsMet(
  plan: ProxyPlan,
  packet: Packet,
  { options, without }: {
    readonly options: IpvsRenderOptions;
    /** A ServicePort that has nothing in the kernel, such as one that was refused. */
    readonly without: ServicePortKey | undefined;
  },
) {
  const layout = new IpvsLayout(plan.shared, options);
  for (const service of plan.services.values()) {
    if (service.key !== without && isMet(service, packet, layout)) layout.set(service);
  }
  return diffIpvs(layout, new AppliedServers(), EMPTY_KERNEL).steps;
}

/** Whether the packet can meet an object of a ServicePort. */
function isMet(service: ServicePlan, { to, port, protocol }: Packet, layout: IpvsLayout): boolean {
  const { clusterIp, externalIps, healthCheckNodePort, loadBalancerVips, nodePort } = service;
  const isAt = clusterIp === to || externalIps.includes(to) || loadBalancerVips.includes(to);
  // Thousands of ports may share an address, and one of them is enough to have it bound.
  if (isAt && !layout.addresses.has(to)) return true;
  if (healthCheckNodePort === port) return true;
  return service.protocol === protocol && ((isAt && service.port === port) || nodePort === port);
}

function walkPacket(
  plan: ProxyPlan,
  packet: Packet,
  { kernel: { rules, ipvs }, source }: {
    readonly kernel: RenderedKernel;
    readonly source: IpAddress;
  },
): readonly WalkOutcome[] {
  return walkIptables(rules, { ...walkedPacket(packet), source }, {
    isLocal: nodeAddressTest(plan, packet),
    isListed: () => undefined,
    ipvs,
  });
}

function deviationsOf(
  { endpoints, origin, packet, policy, source, verdict }: PacketExplanation,
  outcomes: readonly WalkOutcome[],
  { family }: IpvsRenderOptions,
): ModeDeviations {
  const reached = outcomes.flatMap(({ endpoint, verdict }) =>
    verdict === "ACCEPT" && endpoint ? [formatHostPort(endpoint.address, endpoint.port)] : []
  );
  const eligible = endpoints.filter(({ eligible }) => eligible).map(({ key }) => key);
  const isBound = policy?.verdict === "externalFromCluster" &&
    reached.sort().join() !== eligible.sort().join();
  const others = outcomes.filter(({ endpoint }) => endpoint?.address !== packet.from.address);
  const isOwnPacket = origin.isFromNode && source?.rewritten !== "always" && others.length > 0 &&
    others.every(({ masquerade }) => masquerade);
  const isRefused = verdict.kind === "forward" && !isBound &&
    outcomes.every(({ verdict }) => verdict === "DROP");
  return {
    ...(isRefused &&
      {
        refusal: {
          kind: "drop",
          detail: "the address is bound to the node and becomes the source, which is not admitted",
        },
      }),
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

/** Service addresses are addresses of the node: the ports that no Service has there are closed. */
function outcomeOf(outcomes: readonly WalkOutcome[], { to }: Packet): ModeDeviations["outcome"] {
  const verdict = outcomes.find(({ verdict }) => verdict !== "ACCEPT")?.verdict;
  if (verdict === undefined) return undefined;
  const kind = verdict === "DROP" ? "drop" : "reject";
  return { kind, why: `${to} is a Service address on ${DEVICE}, closed for all else` };
}
