import { IP_FAMILIES, type IpAddress, ipFamilyOf, isLoopback } from "../../net/ip_address.ts";
import type { CommandRunner } from "../../os/command_runner.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import { defaultRouteSource } from "../../os/route_source.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import type { NodeState } from "../../proxy/node_state.ts";
import { WakeUp } from "../../os/wake_up.ts";

/** Reports of the same addresses after which the routes are read again, for a route that came alone. */
const MOST_SAME = 3;

/** The primary addresses of a node without a cluster: those by which the default routes send. */
export class PrimaryAddresses {
  readonly #commands: CommandRunner;
  readonly #isNeeded: () => boolean;
  readonly #onChange: (found: readonly IpAddress[]) => void;
  #found: readonly IpAddress[] = [];
  #interfaces = "";
  #same = 0;
  readonly #wakeUp = new WakeUp();

  /** `isNeeded`: whether the configuration asks for the primary address. */
  constructor(
    commands: CommandRunner,
    isNeeded: () => boolean,
    onChange: (found: readonly IpAddress[]) => void,
  ) {
    this.#commands = commands;
    this.#isNeeded = isNeeded;
    this.#onChange = onChange;
  }

  /** Reads the routes. */
  async read(): Promise<void> {
    if (!this.#isNeeded()) return;
    const found = await Promise.all(
      IP_FAMILIES.map((family) => defaultRouteSource(this.#commands, family)),
    );
    const known = found.filter((each) => each !== undefined && !isLoopback(each)) as IpAddress[];
    if (deepEqual(known, this.#found)) return;
    this.#found = known;
    this.#onChange(known);
  }

  /** The configuration changed. */
  onConfiguration(): void {
    this.#wakeUp.call();
  }

  /** Takes the addresses, which come every 10 s. The routes may differ once the addresses do. */
  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void {
    const text = addresses.map((each) => `${each.interfaceName} ${each.address}`).join();
    if (text === this.#interfaces && ++this.#same < MOST_SAME) return;
    this.#interfaces = text;
    this.#same = 0;
    this.#wakeUp.call();
  }

  /** Reads the routes again when they may have changed, until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#wakeUp.wait(signal);
      if (!signal.aborted) await this.read();
    }
  }

  /** One of each family that has a default route. */
  get found(): readonly IpAddress[] {
    return this.#found;
  }
}

/** Adds the addresses of families that a state has none of. */
export function withPrimaryAddresses(
  state: NodeState,
  addresses: readonly IpAddress[],
): NodeState {
  const missing = addresses.filter((address) =>
    !state.addresses.some((each) => ipFamilyOf(each) === ipFamilyOf(address))
  );
  return missing.length === 0 ? state : { ...state, addresses: [...state.addresses, ...missing] };
}
