import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import { PartLoop } from "./part_loop.ts";
import type { Layer2Backend } from "./routing_backends.ts";

/** Time between two syncs: an address has to move within a second. */
const MIN_SYNC_PERIOD_MS = 100;
/** Longest time from one sync to the next. */
const MAX_SYNC_PERIOD_MS = 3_600_000;

/** The log messages of syncs. */
const TEXTS = {
  synced: "Synced layer 2 addresses",
  failed: "Cannot sync layer 2 addresses; the changes are tried again",
  quarantined: "Load balancer address is in quarantine; it is tried again, all others work",
  released: "Load balancer address is out of quarantine",
  item: "address",
};

interface Layer2FamilyOptions {
  /** Empty = the interface with a network that contains the address. */
  readonly interfaces: () => readonly string[];
  /** Brings the owners up to date before a plan is made. Calls {@linkcode Layer2Family.hold}. */
  readonly refresh: () => Promise<void>;
  /** Called after addresses were added or removed. Must not throw. */
  readonly onMoved: () => void;
}

/** The addresses of one IP family that this node answers for. */
export class Layer2Family extends PartLoop<IpAddress> {
  readonly backend: Layer2Backend;
  readonly #options: Layer2FamilyOptions;
  readonly #addresses = new Set<IpAddress>();

  constructor(
    parts: ConstructorParameters<typeof PartLoop>[0],
    backend: Layer2Backend,
    options: Layer2FamilyOptions,
  ) {
    super(parts, {
      id: { controller: "routing", family: backend.family },
      texts: TEXTS,
      periodMs: [MIN_SYNC_PERIOD_MS, MAX_SYNC_PERIOD_MS],
      async collect() {
        await options.refresh();
        return [];
      },
      sync: () => this.#sync(),
    });
    this.backend = backend;
    this.#options = options;
  }

  get family(): IpFamily {
    return this.backend.family;
  }

  /** The addresses that this node is to answer for. */
  get addresses(): ReadonlySet<IpAddress> {
    return this.#addresses;
  }

  /** Whether this node has an address, or is about to have it. */
  owns(address: IpAddress): boolean {
    return this.#addresses.has(address) ||
      this.backend.inspect().held.some((held) => held.address === address);
  }

  /** Takes whether this node answers for an address, and requests a sync. */
  hold(address: IpAddress, isHeld: boolean): void {
    this.request();
    if (this.#addresses.has(address) === isHeld) return;
    if (isHeld) this.#addresses.add(address);
    else this.#addresses.delete(address);
    const words = [isHeld ? "answered for here" : "no longer answered for"];
    const item = { name: address, words };
    this.planned(isHeld ? undefined : item, isHeld ? item : undefined);
  }

  /** Gives every address up at once, whatever the loop waits for. Rejects if that fails. */
  async leave(): Promise<void> {
    await this.loop.stop();
    for (const address of [...this.#addresses]) this.hold(address, false);
    if (this.backend.inspect().held.length > 0) await this.backend.sync(new Set(), []);
  }

  async #sync() {
    const report = await this.backend.sync(this.#addresses, this.#options.interfaces());
    if (Object.keys(report.operations).length > 0) this.#options.onMoved();
    return report;
  }
}
