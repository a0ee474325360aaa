import type { Endpoint } from "./endpoint.ts";
import { keepsClientAddress } from "./frontend.ts";
import type { ServicePlan } from "./service_plan.ts";

type HairpinPlan = Pick<
  ServicePlan,
  "externalIps" | "externalTrafficPolicy" | "loadBalancerVips" | "nodePort" | "reachable"
>;

/**
 * The endpoints that may receive their own packets through this node. Such a packet must come from
 * the node: with its own address as source the endpoint would answer itself, past the proxy. A node
 * sends only its own pods their own packets. A pod of another node receives them only if packets to
 * an external address keep their source. An endpoint of an unknown node may be local.
 */
export function hairpinEndpoints(plan: HairpinPlan): readonly Endpoint[] {
  const isSentOn = keepsClientAddress(plan);
  return plan.reachable.filter(({ isLocal, nodeName }) =>
    isLocal || nodeName === undefined || isSentOn
  );
}
