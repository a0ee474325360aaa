/**
 * What the rules of a netfilter mode do for one ServicePort, for `status`. Pure.
 *
 * @module
 */
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Port } from "../../lib/net/port.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ServedAddress, ServiceInspection } from "../../lib/proxy/service_mode.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";

/** What is known beside the plan. */
interface InspectionContext {
  readonly shared: SharedPlan;
  readonly quarantined: readonly Quarantined[];
}

/** The addresses of a ServicePort and what becomes of packets to them. */
export function inspectService(
  plan: ServicePlan,
  { shared, quarantined }: InspectionContext,
): ServiceInspection {
  const { key, clusterIp, port, nodePort, externalIps, loadBalancerVips } = plan;
  const own = quarantined.filter((item) => item.key === key);
  const isOut = own.some(({ address }) => address === undefined);
  const stateOf = (isServed: boolean, isOutside: boolean): ServedAddress["state"] =>
    isOut || (isOutside && own.length > 0) ? "quarantined" : isServed ? "serving" : "refusing";
  const isServedOutside = plan.external.kind === "forward" ||
    plan.externalFromCluster.kind === "forward";
  const served = (role: ServedAddress["role"], address: IpAddress, at: Port): ServedAddress => ({
    role,
    address,
    port: at,
    protocol: plan.protocol,
    state: role === "ClusterIP"
      ? stateOf(plan.internal.kind === "forward", false)
      : stateOf(isServedOutside, true),
  });
  const nodePorts = nodePort === undefined
    ? []
    : shared.nodePortAddresses.map((address) => served("NodePort", address, nodePort));
  return {
    key,
    addresses: [
      served("ClusterIP", clusterIp, port),
      ...externalIps.map((address) => served("ExternalIP", address, port)),
      ...loadBalancerVips.map((address) => served("LoadBalancer", address, port)),
      ...nodePorts,
    ],
  };
}
