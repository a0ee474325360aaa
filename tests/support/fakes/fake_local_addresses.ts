/**
 * Local addresses without a machine: every requested address is local, unless the test defines
 * otherwise.
 *
 * @module
 */
import type {
  AcquiredAddress,
  AddressDemand,
  LocalAddresses,
  WantedAddress,
} from "../../../backends/userspace/local_addresses.ts";
import type { IpAddress } from "../../../lib/net/ip_address.ts";

/** Answers as the test defines, and records its calls. */
export class FakeLocalAddresses implements LocalAddresses {
  readonly summary = "as the test says";
  /** By address; all others are local. */
  readonly answers = new Map<string, AcquiredAddress>();
  readonly held = new Set<IpAddress>();
  /** Each call, e.g. `acquire 127.96.0.1`. */
  readonly calls: string[] = [];
  /** The result of the next {@linkcode configure}. */
  renew = false;
  #demand = "";
  /** Thrown by the next {@linkcode acquire}. */
  failure: Error | undefined;

  start(): Promise<void> {
    this.calls.push("start");
    return Promise.resolve();
  }

  probe(): Promise<[]> {
    return Promise.resolve([]);
  }

  configure({ serviceCidrs, count }: AddressDemand): Promise<boolean> {
    const demand = `configure ${count} in ${serviceCidrs.join(" ") || "unknown ranges"}`;
    if (demand !== this.#demand) this.calls.push(demand);
    this.#demand = demand;
    return Promise.resolve(this.renew);
  }

  acquire(wanted: readonly WantedAddress[]): Promise<ReadonlyMap<IpAddress, AcquiredAddress>> {
    this.calls.push(`acquire ${wanted.map(({ address }) => address).join(" ")}`);
    const { failure } = this;
    this.failure = undefined;
    if (failure) return Promise.reject(failure);
    const local: AcquiredAddress = { kind: "local" };
    for (const { address } of wanted) this.held.add(address);
    return Promise.resolve(
      new Map(wanted.map(({ address }) => [address, this.answers.get(address) ?? local])),
    );
  }

  release(addresses: readonly IpAddress[]): Promise<number> {
    this.calls.push(`release ${addresses.join(" ")}`);
    for (const address of addresses) this.held.delete(address);
    return Promise.resolve(addresses.length);
  }

  releaseUnclaimed(): Promise<number> {
    this.calls.push("releaseUnclaimed");
    return Promise.resolve(0);
  }

  disown(): Promise<[]> {
    this.calls.push("disown");
    return Promise.resolve([]);
  }

  owns(address: IpAddress): boolean {
    return this.held.has(address);
  }

  cleanup(): Promise<{ removed: []; failed: [] }> {
    return Promise.resolve({ removed: [], failed: [] });
  }

  previewCleanup(): Promise<{ removed: []; failed: [] }> {
    return this.cleanup();
  }
}
