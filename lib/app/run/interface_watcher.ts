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

/** Looks once for everybody: each wake-up of an idle node counts. */
export class InterfaceWatcher {
  readonly #dependencies: InterfaceWatcherDependencies;
  readonly #tell: (addresses: readonly IpAddress[]) => void;
  #timer: Timer | undefined;

  /** `tell` gets every address of the machine, each once, sorted; also when nothing changed. */
  constructor(
    dependencies: InterfaceWatcherDependencies,
    tell: (addresses: readonly IpAddress[]) => void,
  ) {
    this.#dependencies = dependencies;
    this.#tell = tell;
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
    this.#tell([...new Set(addresses)].sort());
  }

  /** Looks no more. */
  stop(): void {
    this.#timer?.cancel();
  }
}
