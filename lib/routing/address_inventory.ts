import type { AddressRange } from "../net/address_range.ts";
import {
  addressAt,
  addressNumber,
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
} from "../net/ip_address.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import { type AddressPool, poolOf, spaceOf } from "./address_pool.ts";
import type { AddressRequest } from "./address_request.ts";
import { SortedList } from "./sorted_list.ts";

/** The reason why an address is not assigned. */
export interface Reservation {
  /** The user of the address, in words. */
  readonly by: string;
  /** Whether a Service that has the address loses it. */
  readonly isFinal: boolean;
}

/** The Services that have one address. All have the same namespace and terms of sharing. */
interface Holders {
  readonly requests: Map<ServiceKey, AddressRequest>;
  readonly ports: Map<string, ServiceKey>;
}

/** Which addresses of the pools are free, and who has the others. */
export class AddressInventory {
  readonly #pools: readonly AddressPool[];
  readonly #spaces = new Map<string, FreeSpace>();
  readonly #holders = new Map<IpAddress, Holders>();
  /** Addresses that are not given, with the reasons. */
  readonly #reserved = new Map<IpAddress, Reservation[]>();
  /** Addresses with several holders or one that shares, by terms of sharing. */
  readonly #shared = new Map<string, SortedList<IpAddress>>();

  constructor(pools: readonly AddressPool[]) {
    this.#pools = pools;
    for (const pool of pools) {
      for (const range of pool.ranges) {
        const key = spaceOf(pool, range.family);
        if (!this.#spaces.has(key)) this.#spaces.set(key, new FreeSpace(pool, range.family));
      }
    }
  }

  /** The pool of an address. */
  poolAt(address: IpAddress): AddressPool | undefined {
    return poolOf(this.#pools, address);
  }

  /** Whether a pool has addresses of a family. */
  hasFamily(pool: AddressPool, family: IpFamily): boolean {
    return this.#spaces.has(spaceOf(pool, family));
  }

  /** Returns the lowest free address of a pool. */
  firstFree(pool: AddressPool, family: IpFamily): IpAddress | undefined {
    return this.#spaces.get(spaceOf(pool, family))?.first((address) => !this.isFree(address));
  }

  /** Whether no Service has an address, and it is not reserved. */
  isFree(address: IpAddress): boolean {
    return !this.#holders.has(address) && !this.#reserved.has(address);
  }

  /** The addresses whose holders have these terms of sharing, in order. */
  sharedBy(terms: string): readonly IpAddress[] {
    return this.#shared.get(terms)?.items ?? [];
  }

  /** The Services that have an address. */
  holdersOf(address: IpAddress): readonly ServiceKey[] {
    return [...this.#holders.get(address)?.requests.keys() ?? []];
  }

  /**
   * Returns why a Service cannot get an address, or cannot keep it, next to the Services that have it, as
   * words that follow `is`.
   */
  conflict(address: IpAddress, request: AddressRequest, isKept: boolean): string | undefined {
    const reserved = this.#reserved.get(address)?.find(({ isFinal }) => isFinal || !isKept);
    if (reserved) return `in use by ${reserved.by}`;
    const holders = this.#holders.get(address);
    if (!holders) return undefined;
    // The holders have the same terms: one of them stands for all.
    const [other] = holders.requests.values();
    const { key, namespace, sharing } = other!;
    if (namespace !== request.namespace) return "taken by a Service of another namespace";
    if (sharing === undefined || request.sharing?.key !== sharing.key) {
      return `taken by ${key}, and the two Services have no sharing key in common`;
    }
    if (request.sharing.text !== sharing.text) {
      return `taken by ${key}: to share it, both Services need externalTrafficPolicy Cluster, or ` +
        "Local with the same selector";
    }
    for (const port of request.ports) {
      const user = holders.ports.get(port);
      if (user !== undefined) return `taken by ${user}, which has port ${port} too`;
    }
    return undefined;
  }

  /** Gives an address to a Service, which has no conflict with it. */
  hold(address: IpAddress, request: AddressRequest): void {
    const holders = this.#holders.getOrInsertComputed(
      address,
      (): Holders => ({ requests: new Map(), ports: new Map() }),
    );
    holders.requests.set(request.key, request);
    for (const port of request.ports) holders.ports.set(port, request.key);
    if (request.sharing === undefined) return;
    this.#shared.getOrInsertComputed(request.sharing.text, () => new SortedList(compareAddresses))
      .add(address);
  }

  /** Takes an address back. `request` is the one with which it was given. */
  release(address: IpAddress, request: AddressRequest): void {
    const holders = this.#holders.get(address)!;
    holders.requests.delete(request.key);
    for (const port of request.ports) holders.ports.delete(port);
    if (holders.requests.size > 0) return;
    this.#holders.delete(address);
    this.#noteFree(address);
    const terms = request.sharing?.text;
    if (terms === undefined) return;
    const shared = this.#shared.get(terms)!;
    shared.delete(address);
    if (shared.items.length === 0) this.#shared.delete(terms);
  }

  /** Keeps an address from being given. */
  reserve(address: IpAddress, reservation: Reservation): void {
    this.#reserved.getOrInsertComputed(address, () => []).push(reservation);
  }

  /** Takes back what {@linkcode reserve} did with the same arguments. */
  unreserve(address: IpAddress, { by }: Reservation): void {
    const known = this.#reserved.get(address)!;
    known.splice(known.findIndex((reservation) => reservation.by === by), 1);
    if (known.length > 0) return;
    this.#reserved.delete(address);
    if (this.isFree(address)) this.#noteFree(address);
  }

  #noteFree(address: IpAddress): void {
    const pool = this.poolAt(address);
    if (pool) this.#spaces.get(spaceOf(pool, ipFamilyOf(address)))!.noteFree(address);
  }
}

function compareAddresses(left: IpAddress, right: IpAddress): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

/**
 * Finds the lowest free address of a pool without a walk through the others: everything below a
 * cursor is taken, but for a list of addresses that became free.
 */
class FreeSpace {
  readonly #family: IpFamily;
  readonly #ranges: readonly AddressRange[];
  readonly #freed = new SortedList<bigint>((left, right) =>
    left < right ? -1 : left > right ? 1 : 0
  );
  #range = 0;
  #cursor: bigint;

  constructor({ ranges }: AddressPool, family: IpFamily) {
    this.#family = family;
    this.#ranges = ranges.filter((range) => range.family === family)
      .toSorted((left, right) => left.first < right.first ? -1 : 1);
    this.#cursor = this.#ranges[0]!.first;
  }

  noteFree(address: IpAddress): void {
    const number = addressNumber(address);
    if (this.#range === this.#ranges.length || number < this.#cursor) this.#freed.add(number);
  }

  first(isTaken: (address: IpAddress) => boolean): IpAddress | undefined {
    for (let number = this.#freed.first; number !== undefined; number = this.#freed.first) {
      const address = addressAt(number, this.#family);
      if (!isTaken(address)) return address;
      this.#freed.delete(number);
    }
    while (this.#range < this.#ranges.length) {
      const address = addressAt(this.#cursor, this.#family);
      if (!isTaken(address)) return address;
      if (this.#cursor < this.#ranges[this.#range]!.last) this.#cursor += 1n;
      else this.#cursor = this.#ranges[++this.#range]?.first ?? this.#cursor;
    }
    return undefined;
  }
}
