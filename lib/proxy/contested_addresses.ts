/**
 * Finds ServicePorts that claim an address and port that another one owns. No I/O.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import { formatHostPort } from "../net/port.ts";
import type { Quarantined } from "./data_plane.ts";
import { claimOrder } from "./claim_order.ts";
import type { PlanChanges, ProxyPlan } from "./proxy_plan.ts";
import type { ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** The claims of a ServicePort; kept only if it has external addresses. */
interface Claims {
  readonly addresses: ReadonlySet<IpAddress>;
  readonly sockets: readonly string[];
  readonly order: string;
}

/**
 * For modes that write rules: the rules of the owner come first, and a conflict causes no error.
 * The cost depends on the changes only. The API server keeps cluster IPs and node ports unique, but
 * does not check external IPs against cluster IPs.
 */
export class ContestedAddresses {
  readonly #claims = new Map<ServicePortKey, Claims>();
  /** Almost always one claimant per address. */
  readonly #claimants = new Map<string, Set<ServicePortKey>>();
  /** ServicePorts by cluster IP, for cluster IPs that another ServicePort claims. */
  readonly #owners = new Map<string, ServicePortKey>();
  readonly #losers = new Map<string, readonly Quarantined[]>();

  /** ServicePorts that lack an address now. */
  get losers(): readonly Quarantined[] {
    return [...this.#losers.values()].flat();
  }

  /** Applies the changes of a sync. */
  update(plan: ProxyPlan, { upserted, removed }: PlanChanges): void {
    const touched = new Set<string>();
    const addresses = new Set<IpAddress>();
    for (const key of [...removed.keys(), ...upserted]) {
      for (const socket of this.#forget(key)) touched.add(socket);
      const servicePlan = plan.services.get(key);
      const claims = servicePlan && this.#claim(servicePlan);
      for (const socket of claims?.sockets ?? []) touched.add(socket);
      for (const address of claims?.addresses ?? []) addresses.add(address);
    }
    for (const socket of this.#own(plan, { upserted, removed, addresses })) touched.add(socket);
    for (const socket of touched) this.#decide(socket);
  }

  /**
   * Finds the owners of claimed cluster IPs, for changed ServicePorts and newly claimed addresses.
   */
  #own(
    { services }: ProxyPlan,
    { upserted, removed, addresses }: Pick<PlanChanges, "removed" | "upserted"> & {
      readonly addresses: ReadonlySet<IpAddress>;
    },
  ): ReadonlySet<string> {
    const touched = new Set<string>();
    for (const [socket, owner] of this.#owners) {
      if (!upserted.has(owner) && !removed.has(owner)) continue;
      this.#owners.delete(socket);
      touched.add(socket);
    }
    if (this.#claims.size === 0) return touched;
    for (const key of addresses.size > 0 ? services.keys() : upserted) {
      const plan = services.get(key);
      if (plan === undefined || !(addresses.has(plan.clusterIp) || upserted.has(key))) continue;
      const socket = socketOf(plan, plan.clusterIp);
      if (!this.#claimants.has(socket)) continue;
      this.#owners.set(socket, key);
      touched.add(socket);
    }
    return touched;
  }

  #forget(key: ServicePortKey): readonly string[] {
    const claims = this.#claims.get(key);
    if (claims === undefined) return [];
    const { sockets } = claims;
    this.#claims.delete(key);
    for (const socket of sockets) {
      const claimants = this.#claimants.get(socket);
      claimants?.delete(key);
      if (claimants?.size === 0) this.#claimants.delete(socket);
    }
    return sockets;
  }

  #claim(plan: ServicePlan): Claims | undefined {
    const { key, externalIps, loadBalancerVips } = plan;
    if (externalIps.length + loadBalancerVips.length === 0) return undefined;
    const addresses = new Set([...externalIps, ...loadBalancerVips]);
    const sockets = [...addresses].map((address) => socketOf(plan, address));
    const order = claimOrder(plan, { isClusterIp: false });
    const claims: Claims = { addresses, sockets, order };
    this.#claims.set(key, claims);
    for (const socket of sockets) {
      const claimants = this.#claimants.get(socket) ?? new Set();
      this.#claimants.set(socket, claimants.add(key));
    }
    return claims;
  }

  #decide(socket: string): void {
    const owner = this.#owners.get(socket);
    const claimants = [...this.#claimants.get(socket) ?? []].filter((key) => key !== owner)
      .sort((a, b) => this.#orderOf(a) < this.#orderOf(b) ? -1 : 1);
    if (claimants.length === 0) this.#owners.delete(socket);
    const [winner, ...losers] = owner === undefined ? claimants : [owner, ...claimants];
    if (losers.length === 0) return void this.#losers.delete(socket);
    const why = owner === undefined
      ? "claims this address and port, too, and goes first as the older Service or by its name"
      : "has this address as its cluster IP, which goes first";
    const reason = `Cannot serve ${socket}: ${winner} ${why}. It is taken over when that goes; ` +
      "give one of them another";
    this.#losers.set(socket, losers.map((key) => ({ key, address: socket, reason })));
  }

  #orderOf(key: ServicePortKey): string {
    return this.#claims.get(key)?.order ?? "";
  }
}

function socketOf({ port, protocol }: ServicePlan, address: IpAddress): string {
  return `${formatHostPort(address, port)}/${protocol}`;
}
