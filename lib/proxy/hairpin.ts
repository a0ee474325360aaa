/**
 * Endpoints that may be sent their own packets.
 *
 * @module
 */
import type { Endpoint } from "./endpoint.ts";
import type { ServicePlan } from "./service_plan.ts";

/** What decides. */
type HairpinPlan = Pick<
  ServicePlan,
  "externalIps" | "loadBalancerVips" | "masqueradeExternal" | "nodePort" | "reachable"
>;

/** Whether any address of a ServicePort is one for clients from outside. */
export function isExternal(
  { nodePort, externalIps, loadBalancerVips }: Omit<HairpinPlan, "reachable">,
): boolean {
  return nodePort !== undefined || externalIps.length > 0 || loadBalancerVips.length > 0;
}

/**
 * The endpoints that this node may send their own packets. Such a packet has to come from the node:
 * with its own address as source the endpoint would answer itself, past the proxy. Only a pod of this
 * node is sent its own packets by its own node; a pod of another one only where packets to an external
 * address are sent on as they are. An endpoint of an unknown node may be here.
 */
export function hairpinEndpoints(plan: HairpinPlan): readonly Endpoint[] {
  const isSentOn = plan.masqueradeExternal === "from-node" && isExternal(plan);
  return plan.reachable.filter(({ isLocal, nodeName }) =>
    isLocal || nodeName === undefined || isSentOn
  );
}
