import { cidrContains } from "../../lib/net/cidr.ts";
import { type IpAddress, isLoopback, tryParseIpAddress } from "../../lib/net/ip_address.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import { admittedSources, type ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { VerdictName } from "./endpoint_picker.ts";
import type { ServiceAddress } from "./listeners.ts";

/** Distinguishes clients by their address. */
export class ClientOrigin {
  #localTraffic: SharedPlan["localTraffic"] = { kind: "none" };
  #ownAddresses: ReadonlySet<IpAddress> = new Set();

  /** The addresses of this node. */
  get ownAddresses(): Iterable<IpAddress> {
    return this.#ownAddresses;
  }

  update(
    { interfaceAddresses, localTraffic }: Pick<SharedPlan, "interfaceAddresses" | "localTraffic">,
  ): void {
    this.#localTraffic = localTraffic;
    this.#ownAddresses = new Set(interfaceAddresses);
  }

  /**
   * The verdict that applies to a client at an address of a ServicePort; `undefined` when it is not
   * to be forwarded. `client` is the text that the socket reports.
   */
  verdictFor(plan: ServicePlan, at: ServiceAddress, client: string): VerdictName | undefined {
    if (this.#isRefused(plan, at, client)) return undefined;
    const name = this.#verdictName(plan, at, client);
    return plan[name].kind === "forward" ? name : undefined;
  }

  #verdictName(plan: ServicePlan, at: ServiceAddress, client: string): VerdictName {
    if (at.traffic === "internal") return "internal";
    // Without policy Local it makes no difference, and needs no look at the client.
    if (plan.external === plan.externalFromCluster) return "external";
    const address = tryParseIpAddress(client);
    if (address === undefined) return "external";
    return this.#isFromCluster(address, at) ? "externalFromCluster" : "external";
  }

  #isFromCluster(client: IpAddress, at: ServiceAddress): boolean {
    const localTraffic = this.#localTraffic;
    if (this.isNode(client, at)) return true;
    // The interface of a connection is unknown without netfilter, so the other detectors recognize
    // only the node's own clients.
    return localTraffic.kind === "byCidr" && cidrContains(localTraffic.cidr, client);
  }

  /**
   * Whether a client is on this node. Its source address is then the Service's own, which is local.
   */
  isNode(client: IpAddress, at: ServiceAddress): boolean {
    return client === at.address || isLoopback(client) || this.#ownAddresses.has(client);
  }

  /**
   * A stand-in for a load balancer address is reached from loopback, so the node itself is
   * admitted.
   */
  #isRefused(service: ServicePlan, at: ServiceAddress, client: string): boolean {
    const admitted = at.role === "LoadBalancer" ? admittedSources(service) : undefined;
    if (admitted === undefined) return false;
    const address = tryParseIpAddress(client);
    if (address === undefined) return true;
    if (admitted.cover.contains(address)) return false;
    return admitted.own.length === 0 || !this.isNode(address, at);
  }
}
