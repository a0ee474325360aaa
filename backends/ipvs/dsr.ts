/**
 * Direct server return: packets reach an endpoint by a tunnel as the client sent them, and the endpoint
 * replies to the client itself, from the Service's address. Decides which frontends have it. Pure.
 *
 * @module
 */
import { DSR_ANNOTATIONS } from "../../lib/api/service_annotations.ts";
import { type Cidr, cidrContains } from "../../lib/net/cidr.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { refusalOf, valueOf } from "./scheduler.ts";

/** What a ServicePort has of direct server return. */
export interface Dsr {
  /** Its external IPs and load balancer addresses have it. */
  readonly isOn: boolean;
  /** Why it is not as the annotation says: sentences without a full stop. */
  readonly problems: readonly string[];
}

const OFF: Dsr = { isOn: false, problems: [] };

/** A device of the node behind which are pods that reply themselves. */
export interface ReplyDevice {
  readonly name: string;
  /** The smallest of its pods, bytes. */
  readonly mtu: number;
}

/** Decides for a ServicePort. One that can't have it is served without. */
export function dsrOf(
  plan: Pick<
    ServicePlan,
    "annotations" | "endpoints" | "externalIps" | "loadBalancerVips" | "port"
  >,
  { nodeAddresses, serviceCidrs }: {
    readonly nodeAddresses: ReadonlySet<IpAddress>;
    readonly serviceCidrs: readonly Cidr[];
  },
): Dsr {
  const [name, value = ""] = valueOf(plan.annotations, DSR_ANNOTATIONS);
  if (name === undefined || value.trim() === "") return OFF;
  const refuse = (why: string): Dsr => ({
    isOn: false,
    problems: [refusalOf(value, name, why)],
  });
  if (value.trim().toLowerCase() !== "tunnel") return refuse("expected tunnel");
  if (plan.externalIps.length + plan.loadBalancerVips.length === 0) {
    return refuse(
      "the Service has no external IP and no load balancer address, and cluster IPs and node ports " +
        "have no direct server return",
    );
  }
  // A pod with such an address could no longer reach it, whoever's pod it is, and could send from it.
  const vip = [...plan.externalIps, ...plan.loadBalancerVips].find((each) =>
    nodeAddresses.has(each) || serviceCidrs.some((cidr) => cidrContains(cidr, each))
  );
  if (vip) return refuse(`${vip} is an address of the node or in a range of cluster IPs`);
  const other = plan.endpoints.find(({ port }) => port !== plan.port);
  if (other) {
    return refuse(
      `endpoint ${other.key} has another port than the Service (${plan.port}), and a tunnel changes ` +
        "no port: make targetPort the same as port",
    );
  }
  const own = plan.endpoints.find(({ address }) => nodeAddresses.has(address));
  if (own) {
    return refuse(
      `endpoint ${own.key} has the network of the node (hostNetwork), which has no tunnel`,
    );
  }
  return { isOn: true, problems: [] };
}

/** The pods of this node that get the addresses of a ServicePort, whether ready or not. */
export function podsOf({ endpoints }: Pick<ServicePlan, "endpoints">): readonly IpAddress[] {
  return [...new Set(endpoints.flatMap(({ address, isLocal }) => isLocal ? address : []))];
}
