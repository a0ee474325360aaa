/**
 * Finds a place for each wanted address: where it is, where it can be put, or what stands in for it.
 *
 * @module
 */
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

/** An {@linkcode AcquiredAddress}; of a local one also what makes it so: the node, we one by one, or a route of ours. */
export type Place =
  | { readonly kind: "local"; readonly by: "node" | "own" | "route" }
  | Exclude<AcquiredAddress, { readonly kind: "local" }>;

/** What places are looked for in. */
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

/** What bounds the choice of places. */
interface AddressPlacerOptions {
  readonly family: IpFamily;
  /** Why nothing may be added to the machine; undefined when it may. */
  readonly refusal: string | undefined;
  /** Whose an address is that must not become local here; undefined for all others. */
  readonly belongsTo: (address: IpAddress) => string | undefined;
}

/** Places addresses of one IP family. */
export class AddressPlacer {
  readonly #dependencies: AddressPlacerDependencies;
  readonly #options: AddressPlacerOptions;
  readonly #standIns: StandIns;
  /** The address that a Service's stand-in was last given for. */
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
    // Asked of those that we added, too: somebody may have flushed lo.
    if (!check.isLocal(address)) return undefined;
    if (own.claim(address)) return { kind: "local", by: "own" };
    // Local for as long as a route of ours stays that is about to go.
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
      // Another program put it there in the meantime: it is local, and not ours to remove.
      const by = failure?.kind === "exists" ? "node" : "own";
      const refused = failure !== undefined && failure.kind !== "exists";
      places.set(
        want.address,
        refused ? unavailable(want, failure.message) : { kind: "local", by },
      );
    }
    return places;
  }

  /** Gives the stand-in of an address back, unless its Service has it for another address by now. */
  releaseStandIn({ service, address }: WantedAddress): void {
    if (this.#standInHolders.get(service) !== address) return;
    this.#standInHolders.delete(service);
    this.#standIns.release(service);
  }

  /** Gives back the stand-ins that an earlier run recorded and no Service has asked for since. */
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

  /** Looks at the routes once for all. Cluster IPs are not asked for: their range is nobody's else. */
  async #conflicts(
    wanted: readonly WantedAddress[],
  ): Promise<(want: WantedAddress) => string | undefined> {
    if (wanted.every(({ role }) => role === "ClusterIP")) return () => undefined;
    const { device } = this.#dependencies;
    const routes = await device.routes().catch((error) => messageOf(error));
    return ({ role, address }) => {
      if (role === "ClusterIP") return undefined;
      const owner = this.#options.belongsTo(address);
      if (owner !== undefined) return `it belongs to ${owner}`;
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
