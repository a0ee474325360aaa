import type { RoutedService } from "../../api/kinds/routed_service.ts";
import type { ControllerStatus } from "../../engine/controller.ts";
import { type IpAddress, tryParseIpAddress } from "../../net/ip_address.ts";
import { poolUse } from "../../routing/address_pool.ts";
import type { BgpPeer, BgpPlan } from "../../routing/bgp_plan.ts";
import { acceptedText } from "../../routing/explain_routing.ts";
import type { PodNetworkPlan } from "../../routing/pod_network_plan.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import { countText } from "../../log/count_text.ts";
import { messageOf } from "../../log/message_of.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { AddressAssigner } from "./address_assigner.ts";
import type { Layer2Part } from "./layer2_part.ts";
import type { BgpSessionView } from "./routing_backends.ts";
import type { RoutingLeases } from "./routing_leases.ts";
import type { BgpPart, PodNetworkPart } from "./routing_parts.ts";

/** The parts of the controller that reports describe. */
export interface ReportedRouting {
  readonly settings: RoutingSettings;
  readonly services: { values(): Iterable<RoutedService> };
  readonly assigner: Pick<AddressAssigner, "problem" | "refused">;
  /** Absent without pools, or without an API server. */
  readonly leases: Pick<RoutingLeases, "node" | "allocator" | "failure"> | undefined;
  readonly layer2: Pick<Layer2Part, "families" | "problems" | "view"> | undefined;
  readonly bgp: {
    readonly backend: Pick<BgpPart["backend"], "sessions">;
    readonly loop: Pick<BgpPart["loop"], "status">;
    readonly plan: BgpPlan | undefined;
  } | undefined;
  readonly pods: Pick<PodNetworkPart, "loop" | "plan"> | undefined;
  /** What is wrong with LoadBalancerPools and BgpPeers, by kind and name. */
  readonly problems: ReadonlyMap<string, string>;
}

/** Most addresses and sessions that are named. */
const MOST_NAMED = 20;

type Facts = ControllerStatus["facts"];

/** Returns the status; `brief` omits parts that grow with the number of objects. */
export async function routingStatus(
  routing: ReportedRouting,
  { brief }: { readonly brief: boolean },
): Promise<ControllerStatus> {
  const { settings, services, assigner, leases, layer2, bgp, pods, problems } = routing;
  const families: ControllerStatus["families"][number][] = [
    ...(layer2?.families ?? []).map(({ loop, backend }) => {
      const { held, announcing } = backend.inspect();
      const problem = announcing === undefined ? "" : `; moves are not announced: ${announcing}`;
      return loop.status(`layer 2, answers for ${held.length}${problem}`);
    }),
  ];
  if (bgp) {
    const { plan } = bgp;
    const summary = plan
      ? `BGP, AS ${plan.localAs}, ${countText(plan.peers.length, "peer")}, ` +
        `${plan.announced.length} announced`
      : "BGP, the own Node is not known";
    families.push({ ...bgp.loop.status(summary), controller: "bgp" });
  }
  if (pods) {
    const summary = pods.plan
      ? `pod network, ${countText(pods.plan.routes.length, "route")}, ` +
        countText(pods.plan.tunnels.length, "tunnel")
      : "pod network, the own Node or its networks are not known";
    families.push({ ...pods.loop.status(summary), controller: "pod-network" });
  }
  const facts = [
    ...poolFacts(settings, services),
    ...limited([...problems], ([object, text]) => ({ name: "Object", text: `${object}: ${text}` })),
    ...(leases ? leaseFacts(leases, assigner.problem) : []),
    ...limited(brief ? [] : assigner.refused ?? [], ({ key, reasons }) => ({
      name: "Refused",
      text: `${key}: ${reasons.join("; ")}`,
    })),
    ...limited(brief ? [] : layer2?.view() ?? [], ({ address, owner, services, candidates }) => {
      const reasons = candidates.map(({ node, obstacle }) => `${node}: ${obstacle}`).slice(0, 3);
      const text = owner ?? `no node (${reasons.join("; ")})`;
      return { name: "Layer 2", text: `${address} of ${services.join(", ")}: ${text}` };
    }),
    ...limited(layer2?.problems ?? [], ({ node, text }) => ({
      name: "Layer 2",
      text: `node ${node}: ${text}`,
    })),
    ...(brief || !bgp?.plan ? [] : bgpFacts(
      bgp.plan,
      await bgp.backend.sessions(bgp.plan).catch((error) => messageOf(error)),
    )),
    ...(brief || !pods?.plan ? [] : podFacts(pods.plan)),
  ];
  return { controller: "routing", families, facts };
}

/** Sets the metrics that are only collected for a scrape. */
export async function collectRoutingMetrics(
  metrics: ProxyMetrics,
  { settings: { pools }, services, assigner, leases, layer2, bgp, pods }: ReportedRouting,
): Promise<void> {
  for (const { family, backend } of layer2?.families ?? []) {
    const { length } = backend.inspect().held;
    metrics.its["kube_relay_routing_owned_addresses"].set({ ip_family: family }, length);
  }
  metrics.setPools(poolUse(pools, addressesInUse(services.values())));
  if (leases) metrics.setRefusals(assigner.refused?.length);
  metrics.setPodRoutes(pods?.plan?.routes ?? []);
  if (!bgp) return;
  const { plan } = bgp;
  metrics.setAnnounced(plan);
  metrics.setSessions(plan ? await bgp.backend.sessions(plan).catch(() => []) : []);
}

/** The load balancer addresses in the status of Services. */
export function addressesInUse(services: Iterable<RoutedService>): ReadonlySet<IpAddress> {
  const used = new Set<IpAddress>();
  for (const { status } of services) {
    for (const { ip = "" } of status?.loadBalancer?.ingress ?? []) {
      const address = tryParseIpAddress(ip ?? "");
      if (address) used.add(address);
    }
  }
  return used;
}

function poolFacts(
  { pools }: RoutingSettings,
  services: ReportedRouting["services"],
): Facts {
  if (pools.length === 0) return [{ name: "Pools", text: "none: no address is assigned" }];
  const byPool = Map.groupBy(
    poolUse(pools, addressesInUse(services.values())),
    ({ pool }) => pool,
  );
  return [...byPool].map(([{ name, announce }, uses]) => {
    const how = announce === "none" ? "not announced" : `announced by ${announce}`;
    const counts = uses.map(({ family, size, used }) => `${used} of ${size} ${family}`).join(", ");
    return { name: "Pool", text: `${name}: ${counts} in use, ${how}` };
  });
}

function leaseFacts(
  { node, allocator, failure }: NonNullable<ReportedRouting["leases"]>,
  writing: string | undefined,
): Facts {
  const leader = allocator.isHeld ? "this node" : allocator.holder ?? "none yet";
  const problem = failure ?? writing ?? allocator.problem;
  return [
    { name: "Allocator", text: leader + (problem === undefined ? "" : `; ${problem}`) },
    ...(node && !node.isHeld
      ? [{ name: "Lease", text: `this node does not hold its Lease: ${node.problem ?? "waiting"}` }]
      : []),
  ];
}

/** `sessions`: or the reason why they are not known. */
function bgpFacts(plan: BgpPlan, sessions: readonly BgpSessionView[] | string): Facts {
  const byKind = Map.groupBy(plan.announced, ({ kind }) => kind);
  const kinds = [...byKind].map(([kind, { length }]) => `${length} ${kind}`).sort().join(", ");
  const announced = {
    name: "Announced",
    text: kinds === "" ? "nothing" : `${prefixesText(plan.announced.length)}: ${kinds}`,
  };
  if (typeof sessions === "string") {
    return [announced, { name: "Sessions", text: `unknown: ${sessions}` }];
  }
  const known = new Set(sessions.map(({ peer }) => peer));
  const missing = plan.peers.filter(({ name }) => !known.has(name));
  return [
    announced,
    ...limited(sessions, (session) => ({
      name: "Peer",
      text: sessionText(session, plan.peers.find(({ name }) => name === session.peer)),
    })),
    ...limited(missing, ({ name }) => ({ name: "Peer", text: `${name}: BIRD has no session yet` })),
  ];
}

function podFacts({ podCidrs, cni, masquerade, unrouted }: PodNetworkPlan): Facts {
  return [
    { name: "Pods here", text: podCidrs.join(", ") || "no range" },
    ...(cni ? [{ name: "CNI configuration", text: cni.path }] : []),
    ...(masquerade
      ? [{ name: "Masquerade", text: "traffic of pods that leaves the cluster" }]
      : []),
    ...limited(unrouted, ({ node, reason }) => ({
      name: "No route",
      text: `${node}: ${reason}; --overlay would make a tunnel`,
    })),
  ];
}

function prefixesText(count: number): string {
  return count === 1 ? "1 prefix" : `${count} prefixes`;
}

function sessionText(
  { peer, description, imported, exported, refusedUpdates }: BgpSessionView,
  planned: BgpPeer | undefined,
): string {
  const name = planned ? `${peer} (${planned.address}, AS ${planned.as})` : peer;
  const refused = refusedUpdates > 0 ? `, ${refusedUpdates} updates refused` : "";
  const accepted = planned && acceptedText(planned);
  const accepts = accepted === undefined ? "" : `; accepts ${accepted}`;
  return `${name}: ${description}; ${
    prefixesText(exported)
  } out, ${imported} in${refused}${accepts}`;
}

function limited<Item>(
  items: readonly Item[],
  factOf: (item: Item) => Facts[number],
): Facts {
  const facts = items.slice(0, MOST_NAMED).map(factOf);
  const more = items.length - facts.length;
  return more > 0 ? [...facts, { name: "", text: `and ${more} more` }] : facts;
}
