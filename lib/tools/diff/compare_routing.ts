import type { InterfaceAddress } from "../../os/network.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import { messageOf } from "../../log/message_of.ts";
import type { BgpPlan } from "../../routing/bgp_plan.ts";
import {
  type ComparedLayer2,
  compareLayer2,
  type RoutingDifference,
} from "../../routing/compare_layer2.ts";
import type { PodNetworkPlan } from "../../routing/pod_network_plan.ts";
import type { PlannedRouting } from "../../routing/planned_routing.ts";

/** How the addresses and routes of a machine differ from the plan. */
export interface RoutingComparison {
  readonly differences: readonly RoutingDifference[];
  /** Why BGP or the network of pods was not compared. */
  readonly problem?: string;
}

/** What is compared with the machine. */
interface ComparedRouting {
  /** Absent if BGP is disabled. */
  readonly bgp?: {
    /** Absent until the own Node is known. */
    readonly plan: BgpPlan | undefined;
    readonly backend: { compare(plan: BgpPlan): Promise<readonly RoutingDifference[]> };
  } | undefined;
  readonly layer2: ComparedLayer2;
  /** Absent if kube-relay does nothing for the network of pods. */
  readonly pods?: {
    readonly plan: PodNetworkPlan | undefined;
    readonly backend: { compare(plan: PodNetworkPlan): Promise<readonly RoutingDifference[]> };
  } | undefined;
}

/** Compares. A daemon that cannot be asked is a problem of the result. */
export async function compareRouting(
  { bgp, layer2, pods }: ComparedRouting,
): Promise<RoutingComparison> {
  const differences = [...compareLayer2(layer2)];
  try {
    if (pods?.plan) differences.push(...await pods.backend.compare(pods.plan));
    if (!bgp) return { differences };
    if (!bgp.plan) return { differences, problem: "the Node of this node is not known" };
    differences.push(...await bgp.backend.compare(bgp.plan));
    return { differences };
  } catch (error) {
    return { differences, problem: messageOf(error) };
  }
}

/** The layer-2 part of a planned node. */
export function layer2Of(
  { owners, nodeName }: PlannedRouting,
  addresses: readonly InterfaceAddress[],
): ComparedLayer2 {
  const owned = new Set(owners.ownedBy(nodeName));
  const others = [...owners.addresses].filter((address) => !owned.has(address));
  return { owned, others, ...machineAddresses(addresses) };
}

/** The interfaces of each address. */
export function machineAddresses(
  addresses: readonly InterfaceAddress[],
): Pick<ComparedLayer2, "found"> {
  const found = new Map<IpAddress, string[]>();
  for (const { address, interfaceName } of addresses) {
    found.getOrInsertComputed(address, () => []).push(interfaceName);
  }
  return { found };
}
