/**
 * Reads the addresses of the machine at an interval. The kernel reports changes on netlink sockets only,
 * which Deno does not have.
 *
 * @module
 */
import type { Controller } from "../../engine/controller.ts";
import type { Logger } from "../../log/logger.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import type { InterfaceAddress, Network } from "../../os/network.ts";

/** Time between two reads; node ports follow a change within it. */
const PERIOD_MS = 10_000;

/** Reads the addresses once for all controllers, because each wake-up of an idle node costs. */
export class InterfaceWatcher {
  readonly #dependencies: {
    readonly clock: Clock;
    readonly logger: Logger;
    readonly network: Pick<Network, "interfaceAddresses">;
  };
  readonly #listeners: readonly Pick<Controller, "onInterfaceAddresses">[];
  readonly #owners: readonly Pick<Controller, "ownsAddress">[];
  #timer: Timer | undefined;

  /** `owners`: controllers that add addresses to interfaces; these are not those of the node. */
  constructor(
    dependencies: {
      readonly clock: Clock;
      readonly logger: Logger;
      readonly network: Pick<Network, "interfaceAddresses">;
    },
    listeners: readonly Pick<Controller, "onInterfaceAddresses">[],
    owners: readonly Pick<Controller, "ownsAddress">[] = [],
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
