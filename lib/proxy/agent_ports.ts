/**
 * The ports on which kube-relay itself listens. A Service with such a port at an address of the node
 * would answer in place of kube-relay: a load balancer would check an endpoint of the Service instead
 * of the node.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import type { Port } from "../net/port.ts";
import { ServicePortIndex } from "./service_port_index.ts";
import { serviceKeyOfPort, type ServicePortKey } from "./service_port_name.ts";

/** A port on which a server of kube-relay listens, by TCP. */
export interface AgentPort {
  readonly port: Port;
  /** `undefined` = every address of the node. */
  readonly address?: IpAddress;
  /** For messages, e.g. `health server`. */
  readonly server: string;
}

/** The addresses of the node, as in the shared part of the plan. */
interface AgentAddresses {
  readonly interfaceAddresses: readonly IpAddress[];
  readonly nodePortAddresses: readonly IpAddress[];
}

/** An address and port; without an address the node port. */
interface AgentPlace {
  readonly address?: IpAddress;
  readonly port: Port;
}

/**
 * The ports of kube-relay in one IP family: those of the configuration, and the health check node
 * ports of Services. Records which of them changed.
 */
export class AgentPorts {
  #servers: readonly AgentPort[] = [];
  #interfaceAddresses: ReadonlySet<IpAddress> = new Set();
  #nodePortAddresses: ReadonlySet<IpAddress> = new Set();
  readonly #checks = new ServicePortIndex<`${Port}`>();
  readonly #changedChecks = new Set<Port>();
  readonly #changedAddresses = new Set<IpAddress>();

  /** Replaces the ports of the configuration. The caller plans everything again if they differ. */
  setServers(servers: readonly AgentPort[]): void {
    this.#servers = servers;
  }

  /** Replaces the addresses of the node. */
  setAddresses({ interfaceAddresses, nodePortAddresses }: AgentAddresses): void {
    this.#interfaceAddresses = this.#noted(this.#interfaceAddresses, interfaceAddresses);
    this.#nodePortAddresses = this.#noted(this.#nodePortAddresses, nodePortAddresses);
  }

  /** Replaces the health check node port of a ServicePort; `undefined` = it had or has none. */
  setCheck(
    key: ServicePortKey,
    { before, now }: { readonly before: Port | undefined; readonly now: Port | undefined },
  ): void {
    if (before === now) return;
    for (const port of [before, now]) if (port !== undefined) this.#changedChecks.add(port);
    if (before !== undefined) this.#checks.delete(`${before}`, key);
    if (now !== undefined) this.#checks.add(`${now}`, key);
  }

  /** The server that owns a place, for messages; `undefined` = none. */
  serverAt({ address, port }: AgentPlace): string | undefined {
    const own = this.#servers.find((each) =>
      each.port === port && this.#isListeningAt(each, address)
    );
    if (own) return own.server;
    const check = this.#checks.first(`${port}`);
    if (check === undefined) return undefined;
    if (address !== undefined && !this.#nodePortAddresses.has(address)) return undefined;
    return `health check of ${serviceKeyOfPort(check)}`;
  }

  /** Returns the places that kube-relay may have got or given up since the last call. */
  takeChanged(): readonly AgentPlace[] {
    const places: AgentPlace[] = [];
    for (const port of this.#changedChecks) {
      places.push({ port });
      for (const address of this.#nodePortAddresses) places.push({ address, port });
    }
    for (const address of this.#changedAddresses) {
      for (const { port } of this.#servers) places.push({ address, port });
      for (const port of this.#checks.items) {
        places.push({ address, port: Number(port) as Port });
      }
    }
    this.#changedChecks.clear();
    this.#changedAddresses.clear();
    return places;
  }

  #noted(before: ReadonlySet<IpAddress>, now: readonly IpAddress[]): ReadonlySet<IpAddress> {
    const addresses = new Set(now);
    for (const address of addresses.symmetricDifference(before)) {
      this.#changedAddresses.add(address);
    }
    return addresses;
  }

  /** A node port has rules for all its addresses together, so one address of a server is enough. */
  #isListeningAt(server: AgentPort, address: IpAddress | undefined): boolean {
    if (server.address === undefined) {
      return address === undefined || this.#interfaceAddresses.has(address);
    }
    return address === undefined
      ? this.#nodePortAddresses.has(server.address)
      : server.address === address;
  }
}
