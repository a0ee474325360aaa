/**
 * Reads the addresses of the machine at an interval. The kernel reports changes on netlink sockets only,
 * which Deno does not have.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import type { InterfaceAddress, Network } from "../../os/network.ts";

/** Time between two reads; node ports follow a change within it. */
const PERIOD_MS = 10_000;

interface InterfaceWatcherDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly network: Pick<Network, "interfaceAddresses">;
}

/** Receives the addresses of the machine. */
interface AddressListener {
  /** Receives every address, sorted; also if nothing changed. */
  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void;
}

/** Adds addresses to interfaces itself. */
interface AddressOwner {
  ownsAddress?(address: InterfaceAddress): boolean;
}

/** Reads the addresses once for all controllers, because each wake-up of an idle node costs. */
export class InterfaceWatcher {
  readonly #dependencies: InterfaceWatcherDependencies;
  readonly #listeners: readonly AddressListener[];
  readonly #owners: readonly AddressOwner[];
  #timer: Timer | undefined;

  constructor(
    dependencies: InterfaceWatcherDependencies,
    { listeners, owners = [] }: {
      readonly listeners: readonly AddressListener[];
      /** Their addresses are not those of the node. */
      readonly owners?: readonly AddressOwner[];
    },
  ) {
    this.#dependencies = dependencies;
    this.#listeners = listeners;
    this.#owners = owners;
  }

  /** Reads now, and at each interval. */
  start(): void {
    const { clock, logger, network } = this.#dependencies;
    // First, so that an exception cannot end the watch.
    this.#timer = clock.setTimer(PERIOD_MS, () => this.start());
    let addresses: readonly InterfaceAddress[];
    try {
      addresses = network.interfaceAddresses();
    } catch (error) {
      // Reading takes a file descriptor, and none may be left. The last addresses stay.
      return logger.warn(
        "Cannot read the addresses of this machine; the last known ones stay in use",
        {
          error,
        },
      );
    }
    const ofNode = addresses.filter((each) =>
      !this.#owners.some((owner) => owner.ownsAddress?.(each))
    );
    const sorted = ofNode.toSorted((one, other) => one.address < other.address ? -1 : 1);
    for (const listener of this.#listeners) listener.onInterfaceAddresses(sorted);
  }

  /** Stops reading. */
  stop(): void {
    this.#timer?.cancel();
  }
}
