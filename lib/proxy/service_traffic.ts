/**
 * What goes through each Service, counted by the mode that sees it. There with `--service-counters`
 * only: without a table nobody counts.
 *
 * The number of counters is bounded. The first Services that carry traffic have counters of their own
 * for as long as they exist; those that come when the table is full share one, `other`. Which of the two
 * it is stays so for the life of a ServicePort: its counters never jump.
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

/** Services, of both IP families together, that have counters of their own. */
const MAX_SERVICES = 2000;
/** Their ports, of both IP families: two each in a cluster of two families. */
const MAX_SERVICE_PORTS = 8000;

/** What is known of the traffic of a ServicePort; a mode leaves out what it doesn't see. */
export interface TrafficFigures {
  readonly bytesFromClients: number;
  readonly bytesToClients: number;
  readonly packetsFromClients?: number;
  readonly packetsToClients?: number;
  readonly opened?: number;
  readonly open?: number;
}

/** Counters of one ServicePort. Whoever counts for it adds to them; what a mode can't see stays 0. */
export interface ServiceTraffic {
  /** Of what is sent over TCP or UDP in userspace mode; of IP packets in nftables mode. */
  bytesFromClients: number;
  bytesToClients: number;
  packetsFromClients: number;
  packetsToClients: number;
  /** TCP connections and UDP flows taken. */
  opened: number;
  /** Those that are open now. */
  open: number;
}

/** Counters with what they are of. */
export interface ServiceTrafficRow {
  readonly family: IpFamily;
  readonly protocol: Protocol;
  /** `undefined` = all ServicePorts that have no counters of their own. */
  readonly name?: ServicePortName;
  readonly traffic: Readonly<ServiceTraffic>;
}

/** The counters of one IP family, as its backend uses them. */
export interface FamilyTraffic {
  /** Counters for a ServicePort, made when it is first asked for. */
  enter(name: ServicePortName): ServiceTraffic;
  /** What was counted; `undefined` for one that has no counters of its own, or has carried nothing. */
  get(name: ServicePortName): Readonly<ServiceTraffic> | undefined;
  /** The ServicePort is gone, and its counters with it. */
  leave(name: ServicePortName): void;
}

/** The most of each, to be set by tests. */
interface ServiceTrafficBounds {
  /** @default {2000} */
  readonly maxServices?: number;
  /** @default {8000} */
  readonly maxServicePorts?: number;
}

/** The counters of all Services. */
export class ServiceTrafficTable {
  readonly #maxServices: number;
  readonly #maxServicePorts: number;
  readonly #rows = new Map<string, ServiceTrafficRow & { readonly traffic: ServiceTraffic }>();
  readonly #others = new Map<string, ServiceTrafficRow & { readonly traffic: ServiceTraffic }>();
  /** How many rows each Service has. */
  readonly #services = new Map<ServiceKey, number>();

  constructor(bounds: ServiceTrafficBounds = {}) {
    this.#maxServices = bounds.maxServices ?? MAX_SERVICES;
    this.#maxServicePorts = bounds.maxServicePorts ?? MAX_SERVICE_PORTS;
  }

  /** Of one IP family. */
  of(family: IpFamily): FamilyTraffic {
    return {
      enter: (name) => this.#enter(family, name),
      get: (name) => this.#rows.get(rowKey(family, name))?.traffic,
      leave: (name) => this.#leave(family, name),
    };
  }

  /** Everything that is counted now. May be iterated with pauses in between. */
  *rows(): Generator<ServiceTrafficRow, void, void> {
    yield* this.#rows.values();
    yield* this.#others.values();
  }

  #enter(family: IpFamily, name: ServicePortName): ServiceTraffic {
    const key = rowKey(family, name);
    const known = this.#rows.get(key);
    if (known) return known.traffic;
    const service = serviceKey(name);
    const ports = this.#services.get(service);
    const hasRoom = this.#rows.size < this.#maxServicePorts &&
      (ports !== undefined || this.#services.size < this.#maxServices);
    if (!hasRoom) return this.#other(family, name.protocol);
    const row = { family, protocol: name.protocol, name, traffic: noTraffic() };
    this.#rows.set(key, row);
    this.#services.set(service, (ports ?? 0) + 1);
    return row.traffic;
  }

  #other(family: IpFamily, protocol: Protocol): ServiceTraffic {
    const key = `${family} ${protocol}`;
    const known = this.#others.get(key);
    if (known) return known.traffic;
    const row = { family, protocol, traffic: noTraffic() };
    this.#others.set(key, row);
    return row.traffic;
  }

  #leave(family: IpFamily, name: ServicePortName): void {
    if (!this.#rows.delete(rowKey(family, name))) return;
    const service = serviceKey(name);
    const ports = this.#services.get(service)! - 1;
    if (ports === 0) this.#services.delete(service);
    else this.#services.set(service, ports);
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
