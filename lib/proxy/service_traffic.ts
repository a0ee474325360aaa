/**
 * Traffic of each Service, counted by a mode that sees it. Exists only with `--service-counters`:
 * without a table no mode counts.
 *
 * The number of counters is bounded. The first Services that carry traffic get counters of their
 * own for as long as they exist. Later ones share one row, `other`, once the table is full. A
 * ServicePort never changes between the two, so that its counters never jump.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import type { Protocol } from "../net/port.ts";
import {
  type ServiceKey,
  serviceKey,
  servicePortKey,
  type ServicePortName,
} from "./service_port_name.ts";

/** Maximum number of Services with counters of their own, in both IP families together. */
const MAX_SERVICES = 2000;
/** Maximum number of their ports, in both IP families: dual-stack counts twice. */
const MAX_SERVICE_PORTS = 8000;

/** Known traffic of a ServicePort; a mode omits figures that it cannot measure. */
export interface TrafficFigures {
  readonly bytesFromClients: number;
  readonly bytesToClients: number;
  readonly packetsFromClients?: number;
  readonly packetsToClients?: number;
  readonly opened?: number;
  readonly open?: number;
}

/** Counters of one ServicePort. The mode increments them; figures that it cannot measure stay 0. */
export interface ServiceTraffic {
  /** In userspace mode payload over TCP or UDP; in nftables mode IP packets. */
  bytesFromClients: number;
  bytesToClients: number;
  packetsFromClients: number;
  packetsToClients: number;
  /** TCP connections and UDP flows accepted. */
  opened: number;
  /** Connections and flows open now. */
  open: number;
  /** Endpoints by health; only of Services with settings for health. */
  healthyEndpoints?: number;
  unhealthyEndpoints?: number;
  ejectedEndpoints?: number;
}

/** Counters with their labels. */
export interface ServiceTrafficRow {
  readonly family: IpFamily;
  readonly protocol: Protocol;
  /** `undefined` = all ServicePorts without counters of their own. */
  readonly name?: ServicePortName;
  readonly traffic: Readonly<ServiceTraffic>;
}

/** The counters of one IP family, as its backend uses them. */
export interface FamilyTraffic {
  /** Returns the counters of a ServicePort; creates them at the first call. */
  enter(name: ServicePortName): ServiceTraffic;
  /** The counters of a ServicePort; `undefined` if it has none of its own, or no traffic yet. */
  get(name: ServicePortName): Readonly<ServiceTraffic> | undefined;
  /** Removes the counters of a deleted ServicePort. */
  leave(name: ServicePortName): void;
}

/** The counters of all Services. */
export class ServiceTrafficTable {
  readonly #maxServices: number;
  readonly #maxServicePorts: number;
  readonly #rows = new Map<string, ServiceTrafficRow & { readonly traffic: ServiceTraffic }>();
  readonly #others = new Map<string, ServiceTrafficRow & { readonly traffic: ServiceTraffic }>();
  /** Number of rows of each Service. */
  readonly #services = new Map<ServiceKey, number>();

  constructor({ maxServices = MAX_SERVICES, maxServicePorts = MAX_SERVICE_PORTS } = {}) {
    this.#maxServices = maxServices;
    this.#maxServicePorts = maxServicePorts;
  }

  /** The counters of one IP family. */
  of(family: IpFamily): FamilyTraffic {
    return {
      enter: (name) => {
        const key = rowKey(family, name);
        const known = this.#rows.get(key);
        if (known) return known.traffic;
        const service = serviceKey(name);
        const ports = this.#services.get(service);
        const { protocol } = name;
        const hasRoom = this.#rows.size < this.#maxServicePorts &&
          (ports !== undefined || this.#services.size < this.#maxServices);
        if (!hasRoom) {
          const other = () => ({ family, protocol, traffic: noTraffic() });
          return this.#others.getOrInsertComputed(`${family} ${protocol}`, other).traffic;
        }
        const row = { family, protocol, name, traffic: noTraffic() };
        this.#rows.set(key, row);
        this.#services.set(service, (ports ?? 0) + 1);
        return row.traffic;
      },
      get: (name) => this.#rows.get(rowKey(family, name))?.traffic,
      leave: (name) => {
        if (!this.#rows.delete(rowKey(family, name))) return;
        const service = serviceKey(name);
        const ports = this.#services.get(service)! - 1;
        if (ports === 0) this.#services.delete(service);
        else this.#services.set(service, ports);
      },
    };
  }

  /** All current counters. The caller may pause while it iterates. */
  *rows(): Generator<ServiceTrafficRow, void, void> {
    yield* this.#rows.values();
    yield* this.#others.values();
  }
}

function noTraffic(): ServiceTraffic {
  return {
    bytesFromClients: 0,
    bytesToClients: 0,
    packetsFromClients: 0,
    packetsToClients: 0,
    opened: 0,
    open: 0,
  };
}

function rowKey(family: IpFamily, name: ServicePortName): string {
  return `${family} ${servicePortKey(name)}`;
}
