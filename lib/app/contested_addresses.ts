/**
 * Names the Services that claim an address and port which another one has.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import { IP_FAMILIES, type IpFamily } from "../net/ip_address.ts";
import { formatHostPort } from "../net/port.ts";
import { claimOrder } from "../proxy/claim_order.ts";
import type { PlanChanges, ProxyPlan } from "../proxy/proxy_plan.ts";
import type { ServicePlan } from "../proxy/service_plan.ts";
import type { ServicePortKey } from "../proxy/service_port_name.ts";
import type { SyncObserver } from "./sync_observer.ts";

/** What a ServicePort claims; only those that have external addresses are kept. */
interface Claims {
  readonly sockets: readonly string[];
  readonly order: string;
}

/**
 * An observer for modes that write rules: there the loser's rules stand behind the winner's, and
 * nothing fails that would tell. Cluster IPs and node ports are unique by the API server.
 */
export class ContestedAddresses implements SyncObserver {
  readonly #families: ReadonlyMap<IpFamily, FamilyClaims>;

  constructor({ logger }: { readonly logger: Logger }) {
    this.#families = new Map(IP_FAMILIES.map((family) => [family, new FamilyClaims(logger)]));
  }

  synced(family: IpFamily, plan: ProxyPlan, changes: PlanChanges): void {
    this.#families.get(family)?.update(plan, changes);
  }
}

/** A ServicePort of both families has a plan in each. */
class FamilyClaims {
  readonly #logger: Logger;
  readonly #claims = new Map<ServicePortKey, Claims>();
  /** Almost always one claimant each. */
  readonly #claimants = new Map<string, Set<ServicePortKey>>();
  /** By socket, what was told last. */
  readonly #told = new Map<string, string>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  update(plan: ProxyPlan, { upserted, removed }: PlanChanges): void {
    const touched = new Set<string>();
    for (const key of [...removed.keys(), ...upserted]) {
      for (const socket of this.#forget(key)) touched.add(socket);
      const servicePlan = plan.services.get(key);
      if (servicePlan === undefined) continue;
      for (const socket of this.#claim(servicePlan)) touched.add(socket);
    }
    for (const socket of touched) this.#tell(socket);
  }

  #forget(key: ServicePortKey): readonly string[] {
    const { sockets = [] } = this.#claims.get(key) ?? {};
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

  #tell(socket: string): void {
    const claimants = [...this.#claimants.get(socket) ?? []].sort((a, b) =>
      this.#orderOf(a) < this.#orderOf(b) ? -1 : 1
    );
    const text = claimants.join(", ");
    const before = this.#told.get(socket);
    if (claimants.length < 2) {
      if (this.#told.delete(socket)) {
        this.#logger.info("Only one Service claims the address and port now", {
          address: socket,
          service: text || "none",
        });
      }
    } else if (text !== before) {
      this.#told.set(socket, text);
      const [served, ...losers] = claimants;
      this.#logger.warn("Several Services claim one address and port: the oldest has it", {
        address: socket,
        served,
        notServed: losers.join(", "),
        cure: "give the others another port or address",
      });
    }
  }

  #orderOf(key: ServicePortKey): string {
    return this.#claims.get(key)?.order ?? "";
  }
}
