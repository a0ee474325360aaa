import { type IpAddress, type IpFamily, isLoopback } from "../../../lib/net/ip_address.ts";
import type { Logger } from "../../../lib/log/logger.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { ServiceKey } from "../../../lib/proxy/service_port_name.ts";
import type { AddressLedger } from "./address_ledger.ts";
import { RIGHTS_CURE } from "./address_probe.ts";
import type { AnyIpRoutes } from "./anyip_routes.ts";
import type { LoDevice } from "./lo_device.ts";
import type { AcquiredAddress, WantedAddress } from "../local_addresses.ts";
import type { LocalCheck } from "./local_check.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import type { OwnAddresses } from "./own_addresses.ts";
import { addressConflict } from "./route_guard.ts";
import { IPV6_STAND_IN, StandIns } from "./stand_ins.ts";

/**
 * An {@linkcode AcquiredAddress}; if local, also the reason: the node, `lo`, or a route of this
 * process.
 */
export type Place =
  | { readonly kind: "local"; readonly by: "node" | "own" | "route" }
  | Exclude<AcquiredAddress, { readonly kind: "local" }>;

export interface AddressPlacerDependencies {
  readonly device: LoDevice;
  readonly ledger: AddressLedger;
  readonly own: OwnAddresses;
  readonly routes: AnyIpRoutes;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Addresses that are looked at before other tasks have a turn. */
export const SLICE = 256;

/** The limits of the choice. */
interface AddressPlacerOptions {
  readonly family: IpFamily;
  /** The reason why nothing may be added to the machine; undefined if it may. */
  readonly refusal: string | undefined;
}

/** Places addresses of one IP family. */
export class AddressPlacer {
  readonly #dependencies: AddressPlacerDependencies;
  readonly #options: AddressPlacerOptions;
  readonly #standIns: StandIns;
  /** The address for which each Service's stand-in was last used. */
  readonly #standInHolders = new Map<ServiceKey, IpAddress>();

  constructor(dependencies: AddressPlacerDependencies, options: AddressPlacerOptions) {
    this.#dependencies = dependencies;
    this.#options = options;
    this.#standIns = new StandIns(dependencies.ledger.standIns);
  }

  /** The place of an address that is local as things are; undefined for any other. */
  asIs(address: IpAddress, check: LocalCheck): Place | undefined {
    const { own, routes } = this.#dependencies;
    if (isLoopback(address)) return { kind: "local", by: "node" };
    if (routes.covers(address)) return { kind: "local", by: "route" };
    // Also checked for our additions: another program may have flushed lo.
    if (!check.isLocal(address)) return undefined;
    if (own.claim(address)) return { kind: "local", by: "own" };
    // Local only until the route of this process is removed.
    return routes.isLeaving(address) ? undefined : { kind: "local", by: "node" };
  }

  /** Gives every one of some addresses that are not local a place. Rejects when the outcome is unknown. */
  async place(
    wanted: readonly WantedAddress[],
    isUsed: (address: IpAddress) => boolean,
  ): Promise<Map<IpAddress, Place>> {
    const places = new Map<IpAddress, Place>();
    if (this.#options.refusal !== undefined) {
      for (const [index, want] of wanted.entries()) {
        if (index % SLICE === SLICE - 1) await this.#dependencies.clock.yieldToEventLoop();
        places.set(want.address, this.#placeWithoutRights(want, isUsed));
      }
      await this.#saveStandIns();
      return places;
    }
    const conflictOf = await this.#conflicts(wanted);
    for (const want of wanted) {
      const conflict = conflictOf(want);
      if (conflict !== undefined) places.set(want.address, unavailable(want, conflict));
    }
    const free = wanted.filter(({ address }) => !places.has(address));
    const failures = await this.#dependencies.own.add(free.map(({ address }) => address));
    for (const want of free) {
      const failure = failures.get(want.address);
      // Another program added it in the meantime: it is local, but must not be removed.
      const by = failure?.kind === "exists" ? "node" : "own";
      const refused = failure !== undefined && failure.kind !== "exists";
      places.set(
        want.address,
        refused ? unavailable(want, failure.message) : { kind: "local", by },
      );
    }
    return places;
  }

  /** Releases the stand-in of an address, unless its Service uses it for another address now. */
  releaseStandIn({ service, address }: WantedAddress): void {
    if (this.#standInHolders.get(service) !== address) return;
    this.#standInHolders.delete(service);
    this.#standIns.release(service);
  }

  /** Releases recorded stand-ins that no Service has requested. */
  async releaseUnclaimedStandIns(): Promise<void> {
    for (const [service] of [...this.#standIns.entries]) {
      if (!this.#standInHolders.has(service)) this.#standIns.release(service);
    }
    await this.#saveStandIns();
  }

  #placeWithoutRights(want: WantedAddress, isUsed: (address: IpAddress) => boolean): Place {
    if (want.role !== "ClusterIP") {
      return unavailable(want, `${this.#options.refusal}; ${RIGHTS_CURE}`);
    }
    if (this.#options.family === "IPv6") return { kind: "standIn", address: IPV6_STAND_IN };
    this.#standInHolders.set(want.service, want.address);
    return { kind: "standIn", address: this.#standIns.allocate(want.service, isUsed) };
  }

  /** Reads the routes once. Cluster IPs are not checked: no other machine uses their range. */
  async #conflicts(
    wanted: readonly WantedAddress[],
  ): Promise<(want: WantedAddress) => string | undefined> {
    if (wanted.every(({ role }) => role === "ClusterIP")) return () => undefined;
    const { device } = this.#dependencies;
    const routes = await device.routes().catch((error) => messageOf(error));
    return ({ role, address }) => {
      if (role === "ClusterIP") return undefined;
      return typeof routes === "string" ? routes : addressConflict(address, routes);
    };
  }

  async #saveStandIns(): Promise<void> {
    const { ledger, logger } = this.#dependencies;
    if (!this.#standIns.changed) return;
    try {
      await ledger.setStandIns(this.#standIns.entries);
      this.#standIns.markRecorded();
    } catch (error) {
      logger.warn("Cannot record stand-ins; they may differ after a restart", {
        error: messageOf(error),
      });
    }
  }
}

function unavailable({ address, role }: WantedAddress, reason: string): Place {
  return {
    kind: "unavailable",
    reason: `Cannot make ${role} ${address} local to this node: ${reason}`,
  };
}
