import type { Cidr } from "../../lib/net/cidr.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { AcquiredAddress, LocalAddresses, WantedAddress } from "./local_addresses.ts";
import { forEachInSlices } from "../../lib/os/time_slice.ts";

interface AddressEntry extends WantedAddress {
  users: number;
  /** `undefined` before it was asked for. */
  place: AcquiredAddress | undefined;
}

/** Changes of local addresses, made in one batch for each sync. */
export class AddressBook {
  readonly #local: LocalAddresses;
  readonly #clock: Clock;
  /** Those without users as well, until they are given back. */
  readonly #entries = new Map<IpAddress, AddressEntry>();
  /** To be asked for with the next batch: kept when a batch fails. */
  readonly #asking = new Set<AddressEntry>();
  readonly #leaving = new Set<AddressEntry>();
  #moved = false;

  constructor({ clock, local }: { readonly clock: Clock; readonly local: LocalAddresses }) {
    this.#clock = clock;
    this.#local = local;
  }

  /** A ServicePort uses an address from now on. */
  retain({ address, role, service }: WantedAddress): void {
    let entry = this.#entries.get(address);
    if (!entry) {
      entry = { address, role, service, users: 0, place: undefined };
      this.#entries.set(address, entry);
    }
    if (entry.users++ > 0) return;
    this.#leaving.delete(entry);
    this.#asking.add(entry);
  }

  /** A ServicePort no longer uses an address. */
  release(address: IpAddress): void {
    const entry = this.#entries.get(address);
    if (!entry || --entry.users > 0) return;
    this.#asking.delete(entry);
    this.#leaving.add(entry);
  }

  /** Asks again for an address that could not be had. */
  retry(address: IpAddress): void {
    const entry = this.#entries.get(address);
    if (entry?.place?.kind === "unavailable") this.#asking.add(entry);
  }

  /** Whether the address existed before, so that other programs may listen on it. */
  isNodes(address: IpAddress): boolean {
    return !this.#local.owns(address);
  }

  /**
   * Returns the place where the sockets of an address are bound; `undefined` before it was
   * acquired.
   */
  placeOf(address: IpAddress): AcquiredAddress | undefined {
    return this.#entries.get(address)?.place;
  }

  /**
   * Whether an address acquired since the last call became local, or stopped being so. A new
   * address counts as local before.
   */
  takeMoved(): boolean {
    const moved = this.#moved;
    this.#moved = false;
    return moved;
  }

  /** Reports the demand. Returns whether any address may have moved. */
  async configure(serviceCidrs: readonly Cidr[]): Promise<boolean> {
    const count = this.#entries.size - this.#leaving.size;
    const renew = await this.#local.configure({ serviceCidrs, count });
    if (renew) { for (const entry of this.#entries.values()) this.#asking.add(entry); }
    return renew;
  }

  /** Asks for everything that was retained or retried. Returns how many addresses can now be used that could not. */
  async acquire(): Promise<number> {
    if (this.#asking.size === 0) return 0;
    const places = await this.#local.acquire([...this.#asking]);
    let gained = 0;
    await forEachInSlices(this.#clock, this.#asking, (entry) => {
      const place = places.get(entry.address);
      if (place && place.kind !== "unavailable" && !isPlaced(entry)) gained++;
      const wasLocal = (entry.place?.kind ?? "local") === "local";
      if (wasLocal !== (place?.kind === "local")) this.#moved = true;
      entry.place = place;
    });
    this.#asking.clear();
    return gained;
  }

  /** Releases unused addresses. Returns how many were removed from the machine. */
  async giveBack(): Promise<number> {
    if (this.#leaving.size === 0) return 0;
    const removed = await this.#local.release([...this.#leaving].map(({ address }) => address));
    for (const { address } of this.#leaving) this.#entries.delete(address);
    this.#leaving.clear();
    return removed;
  }
}

function isPlaced({ place }: AddressEntry): boolean {
  return place !== undefined && place.kind !== "unavailable";
}
