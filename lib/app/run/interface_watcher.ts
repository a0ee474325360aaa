/**
 * The addresses of the machine, looked at from time to time: the kernel tells nobody but a netlink
 * socket, which Deno has not.
 *
 * @module
 */
import type { IpAddress } from "../../net/ip_address.ts";
import type { Logger } from "../../log/logger.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import type { Network } from "../../os/network.ts";

/** Time between two looks; node ports follow a change within it. */
const PERIOD_MS = 10_000;

/** What the watcher works with. */
interface InterfaceWatcherDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly network: Pick<Network, "interfaceAddresses">;
}

/** Who follows the addresses of the machine. */
interface AddressListener {
  /** Takes every address, each once, sorted; also when nothing changed. */
  onInterfaceAddresses(addresses: readonly IpAddress[]): void;
}

/** Looks once for everybody: each wake-up of an idle node counts. */
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
    let addresses: readonly IpAddress[];
    try {
      addresses = network.interfaceAddresses().map(({ address }) => address);
    } catch (error) {
      // It takes a file, and there may be none left. The last addresses stay.
      return logger.warn(
        "Cannot read the addresses of this machine; the last known ones stay in use",
        {
          error,
        },
      );
    }
    const sorted = [...new Set(addresses)].sort();
    for (const listener of this.#listeners) listener.onInterfaceAddresses(sorted);
  }

  /** Looks no more. */
  stop(): void {
    this.#timer?.cancel();
  }
}
