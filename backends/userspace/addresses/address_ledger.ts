import type { Cidr } from "../../../lib/net/cidr.ts";
import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { Logger } from "../../../lib/log/logger.ts";
import { type AddressRecord, type AddressStore, EMPTY_RECORD } from "./address_store.ts";
import { messageOf } from "../../../lib/log/message_of.ts";

/** Entries that are about to be added, or that were removed. */
interface LedgerEntries {
  readonly addresses?: Iterable<IpAddress>;
  readonly routes?: Iterable<Cidr>;
}

/** The owner of the {@linkcode AddressRecord}. Additions must be recorded here first. */
export class AddressLedger {
  readonly #store: AddressStore;
  readonly #logger: Logger;
  readonly #addresses = new Set<IpAddress>();
  readonly #routes = new Set<Cidr>();
  #previousNonlocalBind: string | undefined;
  #standIns: AddressRecord["standIns"] = EMPTY_RECORD.standIns;
  #isWriteFailureLogged = false;
  #opening: Promise<string | undefined> | undefined;

  constructor({ store, logger }: { readonly store: AddressStore; readonly logger: Logger }) {
    this.#store = store;
    this.#logger = logger;
  }

  get addresses(): ReadonlySet<IpAddress> {
    return this.#addresses;
  }

  get routes(): ReadonlySet<Cidr> {
    return this.#routes;
  }

  /** The value of `net.ipv6.ip_nonlocal_bind` to go back to; undefined when it was not touched. */
  get previousNonlocalBind(): string | undefined {
    return this.#previousNonlocalBind;
  }

  get standIns(): AddressRecord["standIns"] {
    return this.#standIns;
  }

  /**
   * Reads the record of an earlier run, once. Returns the reason if it cannot be read: then nothing
   * may be added, as that would overwrite the record. An invalid record is set aside.
   */
  open(): Promise<string | undefined> {
    return this.#opening ??= this.#open();
  }

  async #open(): Promise<string | undefined> {
    let record = EMPTY_RECORD;
    try {
      record = await this.#store.load().catch((error) => this.#setAside(error));
    } catch (error) {
      return `the additions of earlier runs are unknown: ${messageOf(error)}`;
    }
    for (const address of record.addresses) this.#addresses.add(address);
    for (const route of record.routes) this.#routes.add(route);
    this.#previousNonlocalBind = record.previousNonlocalBind;
    this.#standIns = record.standIns;
    return undefined;
  }

  async #setAside(error: unknown): Promise<AddressRecord> {
    if (!(error instanceof SyntaxError)) throw error;
    this.#logger.warn("Cannot parse the record of an earlier run; its additions stay", {
      error: messageOf(error),
      movedTo: await this.#store.setAside(),
    });
    return EMPTY_RECORD;
  }

  /** Records planned additions. If it throws, nothing is recorded, and nothing may be added. */
  async intend({ addresses = [], routes = [] }: LedgerEntries): Promise<void> {
    const newAddresses = [...addresses].filter((address) => !this.#addresses.has(address));
    const newRoutes = [...routes].filter((route) => !this.#routes.has(route));
    if (newAddresses.length + newRoutes.length === 0) return;
    for (const address of newAddresses) this.#addresses.add(address);
    for (const route of newRoutes) this.#routes.add(route);
    try {
      await this.#save();
    } catch (error) {
      for (const address of newAddresses) this.#addresses.delete(address);
      for (const route of newRoutes) this.#routes.delete(route);
      throw error;
    }
  }

  /** Records that entries were removed or never added. Unrecorded ones are ignored. */
  async forget({ addresses = [], routes = [] }: LedgerEntries): Promise<void> {
    let changed = false;
    for (const address of addresses) changed = this.#addresses.delete(address) || changed;
    for (const route of routes) changed = this.#routes.delete(route) || changed;
    if (changed) await this.#save();
  }

  /** Records the value to go back to, or with `undefined` that it has been gone back to. */
  async setPreviousNonlocalBind(value: string | undefined): Promise<void> {
    this.#previousNonlocalBind = value;
    await this.#save();
  }

  async setStandIns(standIns: AddressRecord["standIns"]): Promise<void> {
    this.#standIns = standIns;
    await this.#save();
  }

  async #save(): Promise<void> {
    try {
      await this.#store.save({
        addresses: this.#addresses,
        routes: this.#routes,
        ...(this.#previousNonlocalBind === undefined
          ? {}
          : { previousNonlocalBind: this.#previousNonlocalBind }),
        standIns: this.#standIns,
      });
      this.#isWriteFailureLogged = false;
    } catch (error) {
      this.#logWriteFailure(error);
      throw error;
    }
  }

  /** Logs the failure here, since the caller does not know the folder. */
  #logWriteFailure(error: unknown): void {
    if (this.#isWriteFailureLogged) return;
    this.#isWriteFailureLogged = true;
    this.#logger.warn(
      "Cannot write to the state directory: no addresses or routes are added here",
      {
        file: this.#store.path,
        error: messageOf(error),
        cure: "make it writable, or give another one with --state-dir",
      },
    );
  }
}
