import type { ControllerStatus } from "../../engine/controller.ts";
import { messageOf } from "../../log/message_of.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import { poolUse } from "../../routing/address_pool.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import type { AddressAssigner } from "./address_assigner.ts";
import type { BgpPart } from "./bgp_part.ts";
import type { Layer2Part } from "./layer2_part.ts";
import type { PodNetworkPart } from "./pod_network_part.ts";
import type { RoutingLeases } from "./routing_leases.ts";
import {
  addressesInUse,
  bgpSummary,
  podSummary,
  routingFacts,
  type ShownRouting,
} from "./routing_status.ts";

/** The parts of the controller that reports describe. */
interface ReportedRouting extends Pick<ShownRouting, "services"> {
  readonly settings: RoutingSettings;
  readonly assigner: Pick<AddressAssigner, "problem" | "refused">;
  readonly leases: Pick<RoutingLeases, "node" | "allocator" | "failure"> | undefined;
  readonly layer2: Pick<Layer2Part, "families" | "problems" | "view"> | undefined;
  readonly bgp: Pick<BgpPart, "backend" | "loop" | "plan"> | undefined;
  readonly pods: Pick<PodNetworkPart, "loop" | "plan"> | undefined;
}

/** Returns the status; `brief` omits parts that grow with the number of objects. */
export async function routingStatus(
  parts: ReportedRouting,
  options: { readonly brief: boolean },
): Promise<ControllerStatus> {
  const { bgp, layer2, pods } = parts;
  const families = [
    ...(layer2?.families ?? []).map(({ loop, backend }) => {
      const { held, announcing } = backend.inspect();
      const problem = announcing === undefined ? "" : `; moves are not announced: ${announcing}`;
      return loop.status(`layer 2, answers for ${held.length}${problem}`);
    }),
    ...(bgp ? [{ ...bgp.loop.status(bgpSummary(bgp.plan)), controller: "bgp" as const }] : []),
    ...(pods
      ? [{ ...pods.loop.status(podSummary(pods.plan)), controller: "pod-network" as const }]
      : []),
  ];
  const facts = routingFacts(await shownRouting(parts, options));
  return { controller: "routing", families, facts };
}

/** Sets the metrics that are only collected for a scrape. */
export async function collectRoutingMetrics(
  { routing }: Pick<ProxyMetrics, "routing">,
  { settings: { pools }, services, assigner, leases, layer2, bgp, pods }: ReportedRouting,
): Promise<void> {
  for (const { family, backend } of layer2?.families ?? []) {
    routing.setLayer2Addresses(family, backend.inspect().held.length);
  }
  routing.setPools(poolUse(pools, addressesInUse(services.values())));
  if (leases) routing.setRefusals(assigner.refused?.length);
  routing.setPodRoutes(pods?.plan?.routes ?? []);
  if (!bgp) return;
  const { plan } = bgp;
  routing.setAnnounced(plan);
  routing.setSessions(plan ? await bgp.backend.sessions(plan).catch(() => []) : []);
}

async function shownRouting(
  { settings, services, assigner, leases, layer2, bgp, pods }: ReportedRouting,
  { brief }: { readonly brief: boolean },
): Promise<ShownRouting> {
  const plan = brief ? undefined : bgp?.plan;
  const sessions = plan && await bgp!.backend.sessions(plan).catch((error) => messageOf(error));
  return {
    ...{ settings, services },
    leases: leases && {
      node: leases.node,
      allocator: leases.allocator,
      writing: leases.failure ?? assigner.problem,
    },
    refused: brief ? [] : assigner.refused ?? [],
    owned: brief ? [] : layer2?.view() ?? [],
    layer2Problems: layer2?.problems ?? [],
    ...(plan && { bgp: { plan, sessions: sessions ?? [] } }),
    pods: brief ? undefined : pods?.plan,
  };
}
