import {
  type AcquiredAddress,
  ServiceAddresses,
  type WantedAddress,
} from "../../../backends/userspace/addresses/addresses.ts";
import {
  type AddressStore,
  EMPTY_RECORD,
} from "../../../backends/userspace/addresses/address_store.ts";
import type { IpAddress } from "../../../lib/net/ip_address.ts";

/** Service addresses that are asked for and given back by lists, each by one user. */
export class ListedAddresses extends ServiceAddresses {
  readonly #used = new Set<IpAddress>();

  /** Asks for all of them, those that are held as well. */
  async acquireList(
    wanted: readonly WantedAddress[],
  ): Promise<ReadonlyMap<IpAddress, AcquiredAddress>> {
    for (const want of wanted) {
      if (this.#used.has(want.address)) this.release(want.address);
      this.#used.add(want.address);
      this.retain(want);
    }
    await this.acquire();
    return new Map(wanted.map(({ address }) => [address, this.placeOf(address)!]));
  }

  async releaseList(addresses: readonly IpAddress[]): Promise<number> {
    for (const address of addresses) if (this.#used.delete(address)) this.release(address);
    return await this.giveBack();
  }
}

/** A record that lasts as long as the process. */
export function createMemoryStore(): AddressStore {
  let record = EMPTY_RECORD;
  return {
    path: undefined,
    load: () => Promise.resolve(record),
    save: (next) => Promise.resolve(void (record = next)),
    remove: () => Promise.resolve(void (record = EMPTY_RECORD)),
    setAside: () => Promise.resolve(undefined),
  };
}
