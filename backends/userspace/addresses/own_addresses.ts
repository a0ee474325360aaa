/**
 * Addresses that we put on `lo`, one by one.
 *
 * @module
 */
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
  /** Addresses whose removal failed or has an unknown outcome: tried again with the next ones. */
  readonly #stuck = new Set<IpAddress>();

  constructor({ device, ledger }: { readonly device: LoDevice; readonly ledger: AddressLedger }) {
    this.#device = device;
    this.#ledger = ledger;
  }

  /** Whether we put the address on `lo`. */
  has(address: IpAddress): boolean {
    return this.#ledger.addresses.has(address);
  }

  /** Keeps an address that is there already, if it is ours; tells whether it is. */
  claim(address: IpAddress): boolean {
    this.#stuck.delete(address);
    return this.has(address);
  }

  /**
   * Adds addresses that are not local. The result says which are not there now, and why; one that
   * turns out to be there already is reported as `exists` and is not ours.
   */
  async add(addresses: readonly IpAddress[]): Promise<Failures<IpAddress>> {
    if (addresses.length === 0) return new Map();
    try {
      await this.#ledger.intend({ addresses });
    } catch (error) {
      const failure: IpFailure = {
        kind: "other",
        message: `it cannot be recorded as ours first: ${messageOf(error)}`,
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

  /** Removes addresses of ours, and those whose removal failed before. Others are passed over. */
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
   * Forgets what is recorded but no longer on `lo`, as after a reboot that the record outlived. When
   * `lo` cannot be listed everything is kept: what is claimed is looked at again.
   */
  async forgetMissing(): Promise<void> {
    if (this.#ledger.addresses.size === 0) return;
    const present = await this.#device.addresses().catch(() => undefined);
    if (present === undefined) return;
    const missing = [...this.#ledger.addresses].filter((address) => !present.has(address));
    await this.#ledger.forget({ addresses: missing });
  }
}
