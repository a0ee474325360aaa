/**
 * Which Service addresses are in use, by how many ServicePorts, and where their sockets go.
 *
 * @module
 */
import type { Cidr } from "../../lib/net/cidr.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { AcquiredAddress, LocalAddresses, WantedAddress } from "./local_addresses.ts";

/** Changes of local addresses, made in one batch for each sync. */
export class AddressBook {
  readonly #local: LocalAddresses;
  readonly #wanted = new Map<IpAddress, { readonly want: WantedAddress; users: number }>();
  readonly #acquired = new Map<IpAddress, AcquiredAddress>();
  /** To be asked for with the next batch: kept when a batch fails. */
  readonly #asking = new Set<IpAddress>();
  readonly #leaving = new Set<IpAddress>();
  #configuredCount = 0;

  constructor(local: LocalAddresses) {
    this.#local = local;
  }

  /** Distinct addresses in use. */
  get size(): number {
    return this.#wanted.size;
  }

  /** A ServicePort uses an address from now on. */
  retain(want: WantedAddress): void {
    const entry = this.#wanted.get(want.address);
    if (entry) {
      entry.users++;
      return;
    }
    this.#wanted.set(want.address, { want, users: 1 });
    this.#leaving.delete(want.address);
    this.#asking.add(want.address);
  }

  /** A ServicePort no longer uses an address. */
  release(address: IpAddress): void {
    const entry = this.#wanted.get(address);
    if (!entry || --entry.users > 0) return;
    this.#wanted.delete(address);
    this.#asking.delete(address);
    this.#leaving.add(address);
  }

  /** Asks again for an address that could not be had. */
  retry(address: IpAddress): void {
    if (this.#acquired.get(address)?.kind === "unavailable") this.#asking.add(address);
  }

  /** Where the sockets of an address go; `undefined` before it was asked for. */
  placeOf(address: IpAddress): AcquiredAddress | undefined {
    return this.#acquired.get(address);
  }

  /**
   * Tells the demand when `serviceCidrs` are given or the number has doubled or halved. Returns
   * whether every address may have another place now.
   */
  async configure(
    serviceCidrs: readonly Cidr[],
    { always }: { always: boolean },
  ): Promise<boolean> {
    const count = this.#wanted.size;
    const last = this.#configuredCount;
    if (!always && count <= last * 2 && count * 2 >= last) return false;
    const renew = await this.#local.configure({ serviceCidrs, count });
    this.#configuredCount = count;
    if (renew) { for (const address of this.#acquired.keys()) this.#asking.add(address); }
    return renew;
  }

  /** Asks for everything that was retained or retried. Returns how many addresses can now be used that could not. */
  async acquire(): Promise<number> {
    const wanted: WantedAddress[] = [];
    for (const address of this.#asking) {
      const entry = this.#wanted.get(address);
      if (entry) wanted.push(entry.want);
    }
    if (wanted.length === 0) return 0;
    const answers = await this.#local.acquire(wanted);
    let gained = 0;
    for (const [address, answer] of answers) {
      const before = this.#acquired.get(address)?.kind ?? "unavailable";
      if (before === "unavailable" && answer.kind !== "unavailable") gained++;
      this.#acquired.set(address, answer);
    }
    this.#asking.clear();
    return gained;
  }

  /** Gives back what nobody uses any more. Returns how many addresses were removed from the machine. */
  async giveBack(): Promise<number> {
    if (this.#leaving.size === 0) return 0;
    const leaving = [...this.#leaving];
    const removed = await this.#local.release(leaving);
    for (const address of leaving) this.#acquired.delete(address);
    this.#leaving.clear();
    return removed;
  }
}
