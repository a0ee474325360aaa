/**
 * Which ServicePorts claim an address and port that another one has. Pure but for its own state.
 *
 * @module
 */
import { formatHostPort } from "../net/port.ts";
import type { Quarantined } from "./backend.ts";
import { claimOrder } from "./claim_order.ts";
import type { PlanChanges, ProxyPlan } from "./proxy_plan.ts";
import type { ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** What a ServicePort claims; only those that have external addresses are kept. */
interface Claims {
  readonly sockets: readonly string[];
  readonly order: string;
}

/**
 * For modes that write rules: there the loser's rules stand behind the winner's, and nothing fails
 * that would tell. Costs what changed. Cluster IPs and node ports are unique by the API server.
 */
export class ContestedAddresses {
  readonly #claims = new Map<ServicePortKey, Claims>();
  /** Almost always one claimant each. */
  readonly #claimants = new Map<string, Set<ServicePortKey>>();
  readonly #losers = new Map<string, readonly Quarantined[]>();

  /** Who lacks an address now. */
  get losers(): readonly Quarantined[] {
    return [...this.#losers.values()].flat();
  }

  /** Takes in what a sync brought about. */
  update(plan: ProxyPlan, { upserted, removed }: PlanChanges): void {
    const touched = new Set<string>();
    for (const key of [...removed.keys(), ...upserted]) {
      for (const socket of this.#forget(key)) touched.add(socket);
      const servicePlan = plan.services.get(key);
      if (servicePlan === undefined) continue;
      for (const socket of this.#claim(servicePlan)) touched.add(socket);
    }
    for (const socket of touched) this.#decide(socket);
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

  #claim(plan: ServicePlan): readonly string[] {
    const { key, externalIps, loadBalancerVips, port, protocol } = plan;
    if (externalIps.length + loadBalancerVips.length === 0) return [];
    const sockets = [...new Set([...externalIps, ...loadBalancerVips])]
      .map((address) => `${formatHostPort(address, port)}/${protocol}`);
    this.#claims.set(key, { sockets, order: claimOrder(plan, { isClusterIp: false }) });
    for (const socket of sockets) {
      const claimants = this.#claimants.get(socket) ?? new Set();
      this.#claimants.set(socket, claimants.add(key));
    }
    return sockets;
  }

  #decide(socket: string): void {
    const [winner, ...losers] = [...this.#claimants.get(socket) ?? []]
      .sort((a, b) => this.#orderOf(a) < this.#orderOf(b) ? -1 : 1);
    if (losers.length === 0) return void this.#losers.delete(socket);
    const reason =
      `Cannot serve ${socket}: ${winner} claims this address and port, too, and goes ` +
      "first as the older Service or by its name. It is taken over when that goes; give one of " +
      "them another";
    this.#losers.set(socket, losers.map((key) => ({ key, address: socket, reason })));
  }

  #orderOf(key: ServicePortKey): string {
    return this.#claims.get(key)?.order ?? "";
  }
}
