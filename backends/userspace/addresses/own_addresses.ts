import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { AddressLedger } from "./address_ledger.ts";
import type { Failures } from "../../iproute/ip_runner.ts";
import type { IpFailure } from "../../iproute/ip_text.ts";
import { type LoDevice, type Removal, removalOf } from "./lo_device.ts";
import { messageOf } from "../../../lib/log/message_of.ts";

/** Adds and removes addresses of `lo`, with the ledger ahead of the first and behind the second. */
export class OwnAddresses {
  readonly #device: LoDevice;
  readonly #ledger: AddressLedger;
  /** Addresses whose removal failed or has an unknown outcome; retried with the next removal. */
  readonly #stuck = new Set<IpAddress>();

  constructor({ device, ledger }: { readonly device: LoDevice; readonly ledger: AddressLedger }) {
    this.#device = device;
    this.#ledger = ledger;
  }

  /** Whether this process added the address to `lo`. */
  has(address: IpAddress): boolean {
    return this.#ledger.addresses.has(address);
  }

  /** Keeps an existing address if it is recorded, and returns whether it is. */
  claim(address: IpAddress): boolean {
    this.#stuck.delete(address);
    return this.has(address);
  }

  /**
   * Adds addresses that are not local, and returns the failed ones with the reason. An address that
   * already exists is reported as `exists` and is not recorded.
   */
  async add(addresses: readonly IpAddress[]): Promise<Failures<IpAddress>> {
    if (addresses.length === 0) return new Map();
    try {
      await this.#ledger.intend({ addresses });
    } catch (error) {
      const failure: IpFailure = {
        kind: "other",
        message: `it cannot be recorded first: ${messageOf(error)}`,
      };
      return new Map(addresses.map((address) => [address, failure]));
    }
    // Should the next line throw, then the outcome is unknown, and the addresses go unless a caller
    // claims them.
    for (const address of addresses) this.#stuck.add(address);
    const failures = await this.#device.addAddresses(addresses);
    for (const address of addresses) this.#stuck.delete(address);
    await this.#ledger.forget({ addresses: failures.keys() });
    return failures;
  }

  /** Removes recorded addresses, and those whose removal failed before. Others are ignored. */
  async remove(addresses: Iterable<IpAddress>): Promise<Removal<IpAddress>> {
    for (const address of addresses) if (this.has(address)) this.#stuck.add(address);
    const leaving = [...this.#stuck];
    const removal = removalOf(leaving, await this.#device.deleteAddresses(leaving));
    const gone = leaving.filter((address) => !removal.failures.has(address));
    for (const address of gone) this.#stuck.delete(address);
    await this.#ledger.forget({ addresses: gone });
    return removal;
  }

  /**
   * Forgets recorded addresses that are no longer on `lo`, as after a reboot. If `lo` cannot be
   * listed, everything is kept and checked on use.
   */
  async forgetMissing(): Promise<void> {
    if (this.#ledger.addresses.size === 0) return;
    const present = await this.#device.addresses().catch(() => undefined);
    if (present === undefined) return;
    const missing = [...this.#ledger.addresses].filter((address) => !present.has(address));
    await this.#ledger.forget({ addresses: missing });
  }
}
