/**
 * The addresses of the machine, looked at from time to time: the kernel tells nobody but a netlink
 * socket, which Deno has not.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import type { Clock, Timer } from "../os/clock.ts";
import type { Network } from "../os/network.ts";

/** Time between two looks; node ports follow a change within it. */
const PERIOD_MS = 10_000;

/** Looks once for everybody: each wake-up of an idle node counts. */
export class InterfaceWatcher {
  readonly #dependencies: { readonly clock: Clock; readonly network: Network };
  readonly #tell: (addresses: readonly IpAddress[]) => void;
  #timer: Timer | undefined;

  /** `tell` gets every address of the machine, each once, sorted; also when nothing changed. */
  constructor(
    dependencies: { readonly clock: Clock; readonly network: Network },
    tell: (addresses: readonly IpAddress[]) => void,
  ) {
    this.#dependencies = dependencies;
    this.#tell = tell;
  }

  /** Looks now, and from now on. */
  start(): void {
    const { clock, network } = this.#dependencies;
    const addresses = network.interfaceAddresses().map(({ address }) => address);
    this.#tell([...new Set(addresses)].sort());
    this.#timer = clock.setTimer(PERIOD_MS, () => this.start());
  }

  /** Looks no more. */
  stop(): void {
    this.#timer?.cancel();
  }
}
