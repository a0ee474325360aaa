/**
 * Reads the addresses of the machine at an interval: the kernel reports changes on a netlink socket
 * only, which Deno does not have.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import type { InterfaceAddress, Network } from "../../os/network.ts";

/** Time between two looks; node ports follow a change within it. */
const PERIOD_MS = 10_000;

/** What the watcher works with. */
interface InterfaceWatcherDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly network: Pick<Network, "interfaceAddresses">;
}

/** Follows the addresses of the machine. */
interface AddressListener {
  /** Takes every address, sorted; also when nothing changed. */
  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void;
}

/** Reads them once for all controllers: each wake-up of an idle node counts. */
export class InterfaceWatcher {
  readonly #dependencies: InterfaceWatcherDependencies;
  readonly #listeners: readonly AddressListener[];
  #timer: Timer | undefined;

  constructor(
    dependencies: InterfaceWatcherDependencies,
    listeners: readonly AddressListener[],
  ) {
    this.#dependencies = dependencies;
    this.#listeners = listeners;
  }

  /** Looks now, and from now on. */
  start(): void {
    const { clock, logger, network } = this.#dependencies;
    // First, so that no fault ends the looking.
    this.#timer = clock.setTimer(PERIOD_MS, () => this.start());
    let addresses: readonly InterfaceAddress[];
    try {
      addresses = network.interfaceAddresses();
    } catch (error) {
      // It takes a file, and there may be none left. The last addresses stay.
      return logger.warn(
        "Cannot read the addresses of this machine; the last known ones stay in use",
        {
          error,
        },
      );
    }
    const sorted = addresses.toSorted((one, other) => one.address < other.address ? -1 : 1);
    for (const listener of this.#listeners) listener.onInterfaceAddresses(sorted);
  }

  /** Looks no more. */
  stop(): void {
    this.#timer?.cancel();
  }
}
