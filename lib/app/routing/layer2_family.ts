import type { LoopId } from "../../engine/loop_id.ts";
import { SyncLoop, type SyncLoopDependencies } from "../../engine/sync_loop.ts";
import type { SyncRunnerOptions } from "../../engine/sync_runner.ts";
import type { SyncReport } from "../../engine/data_plane.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import type { Layer2Address, Layer2Plan, Layer2PlanChanges } from "../../routing/layer2_plan.ts";
import type { Layer2Backend } from "./routing_backends.ts";
import type { LoopListener, NamedChange, NamedItem } from "../change_listener.ts";

/** The log messages of syncs. */
const TEXTS = {
  synced: "Synced layer 2 addresses",
  failed: "Cannot sync layer 2 addresses; the changes are tried again",
  quarantined: "Load balancer address is in quarantine; it is tried again, all others work",
  released: "Load balancer address is out of quarantine",
  item: "address",
};

interface Layer2FamilyDependencies extends SyncLoopDependencies {
  readonly backend: Layer2Backend;
  readonly recorder: LoopListener<NamedChange, NamedItem>;
}

interface Layer2FamilyOptions {
  readonly runner: SyncRunnerOptions;
  /** Empty = the interface with a network that contains the address. */
  readonly interfaces: readonly string[];
  /** Brings the owners up to date before a plan is made. Calls {@linkcode Layer2Family.hold}. */
  readonly refresh: () => Promise<void>;
  /** Called after addresses were added or removed. Must not throw. */
  readonly onMoved: () => void;
}

/** The addresses of one IP family that this node answers for. */
export class Layer2Family {
  readonly backend: Layer2Backend;
  readonly loop: SyncLoop<Layer2Plan, Layer2PlanChanges, IpAddress, SyncReport<IpAddress>>;
  readonly #dependencies: Layer2FamilyDependencies;
  readonly #options: Layer2FamilyOptions;
  readonly #addresses = new Map<IpAddress, Layer2Address>();
  #address: Layer2Address = {};
  #changed = new Set<IpAddress>();
  /** Of the sync that runs; they come again if it fails. */
  #taken: ReadonlySet<IpAddress> = new Set();

  constructor(dependencies: Layer2FamilyDependencies, options: Layer2FamilyOptions) {
    const { backend, recorder } = dependencies;
    this.backend = backend;
    this.#dependencies = dependencies;
    this.#options = options;
    this.setInterfaces(options.interfaces);
    const id: LoopId = { controller: "routing", family: backend.family };
    const plan: Layer2Plan = { addresses: this.#addresses };
    const isPending = () => this.#changed.size > 0;
    this.loop = new SyncLoop(dependencies, {
      id,
      dataPlane: {
        start: () => Promise.resolve(),
        sync: (plan, changes) => backend.sync(plan, changes),
      },
      source: {
        plan,
        get pending() {
          return isPending();
        },
        collectChanges: () => this.#collectChanges(),
        synced: ({ operations, quarantined }) => {
          this.#taken = new Set();
          if (Object.keys(operations).length > 0) options.onMoved();
          return quarantined;
        },
        failed: () => {
          this.#changed = new Set([...this.#taken, ...this.#changed]);
          this.#taken = new Set();
        },
      },
      listeners: [recorder],
      texts: TEXTS,
      runner: options.runner,
    });
  }

  get family(): IpFamily {
    return this.backend.family;
  }

  /** The addresses that this node is to answer for. */
  get addresses(): ReadonlyMap<IpAddress, Layer2Address> {
    return this.#addresses;
  }

  /** Whether this node has an address, or is about to have it. */
  owns(address: IpAddress): boolean {
    return this.#addresses.has(address) ||
      this.backend.inspect().held.some((held) => held.address === address);
  }

  /** Notes a cause, for the change log. */
  seen(change: NamedChange): void {
    this.#dependencies.recorder.seen(change);
  }

  /** Takes whether this node answers for an address. */
  hold(address: IpAddress, isHeld: boolean): void {
    if (this.#addresses.has(address) === isHeld) return;
    if (isHeld) this.#addresses.set(address, this.#address);
    else this.#addresses.delete(address);
    this.#changed.add(address);
    const item = {
      name: address,
      words: [isHeld ? "answered for here" : "no longer answered for"],
    };
    this.#dependencies.recorder.planned(isHeld ? undefined : item, isHeld ? item : undefined);
  }

  /** Takes the interfaces of every address. */
  setInterfaces(interfaces: readonly string[]): void {
    const address: Layer2Address = interfaces.length > 0 ? { interfaces } : {};
    if (JSON.stringify(address) === JSON.stringify(this.#address)) return;
    this.#address = address;
    for (const held of this.#addresses.keys()) {
      this.#addresses.set(held, address);
      this.#changed.add(held);
    }
  }

  /** Gives every address up at once, whatever the loop waits for. Rejects if that fails. */
  async leave(): Promise<void> {
    await this.loop.stop();
    for (const address of [...this.#addresses.keys()]) this.hold(address, false);
    const held = this.backend.inspect().held.map(({ address }) => address);
    if (held.length === 0) return;
    await this.backend.sync({ addresses: new Map() }, { addresses: new Set(held) });
  }

  async #collectChanges() {
    this.#dependencies.recorder.drained();
    await this.#options.refresh();
    const addresses = this.#taken = this.#changed;
    this.#changed = new Set();
    return { changes: { addresses }, problems: [] };
  }
}
