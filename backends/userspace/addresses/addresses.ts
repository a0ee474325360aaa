import { type Cidr, cidrFamilyOf } from "../../../lib/net/cidr.ts";
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import type { Logger } from "../../../lib/log/logger.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type { Network } from "../../../lib/os/network.ts";
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import type { ProbeResult } from "../../../lib/proxy/service_mode.ts";
import { cleanupAddresses, previewAddressCleanup } from "./address_cleanup.ts";
import { AddressLedger } from "./address_ledger.ts";
import {
  AddressPlacer,
  type AddressPlacerDependencies,
  type Place,
  SLICE,
} from "./address_placer.ts";
import { probeAddresses, tryOwnAddress } from "./address_probe.ts";
import type { AddressStore } from "./address_store.ts";
import {
  type AddressMethod,
  type AddressMode,
  ANYIP_WARNING,
  chooseAddressMethod,
  describeAddressMethod,
} from "./address_method.ts";
import { AnyIpRoutes } from "./anyip_routes.ts";
import type {
  AcquiredAddress,
  AddressDemand,
  LocalAddresses,
  WantedAddress,
} from "../local_addresses.ts";
import { LocalCheck } from "./local_check.ts";
import { LoDevice } from "./lo_device.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { OwnAddresses } from "./own_addresses.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";

/** The edges that addresses are made local with. */
interface LocalAddressesDependencies {
  readonly runner: CommandRunner;
  readonly network: Network;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: AddressStore;
}

export interface LocalAddressesOptions {
  readonly family: IpFamily;
  /** @default {"auto"} */
  readonly mode?: AddressMode;
}

interface Held {
  readonly want: WantedAddress;
  readonly place: Place;
}

/** Service addresses local by the best available method. Has no side effect before `start()`. */
export class MachineAddresses implements LocalAddresses {
  readonly #dependencies: LocalAddressesDependencies;
  readonly #options: LocalAddressesOptions;
  readonly #parts: AddressPlacerDependencies;
  readonly #held = new Map<IpAddress, Held>();
  #placer: AddressPlacer;
  #way: AddressMethod = "standIn";
  /** The reason why nothing may be added to the machine. */
  #refusal: string | undefined = "not started yet";
  /** Whether the first sync is over; before it, leftovers of an earlier run stay. */
  #settled = false;
  /** The ranges that were last asked for, whether or not they could be had. */
  #rangesAsked = "";
  /** One call at a time: the ledger, `lo` and the held addresses change together. */
  readonly #turns = new OneAtATime();

  constructor(dependencies: LocalAddressesDependencies, options: LocalAddressesOptions) {
    const { runner, network, store } = dependencies;
    const logger = dependencies.logger.with({ ipFamily: options.family });
    const device = new LoDevice(runner, options.family);
    const ledger = new AddressLedger({ store, logger });
    const own = new OwnAddresses({ device, ledger });
    const routes = new AnyIpRoutes({ device, ledger, network });
    this.#dependencies = dependencies;
    this.#options = options;
    this.#parts = { device, ledger, own, routes, clock: dependencies.clock, logger };
    this.#placer = this.#createPlacer();
  }

  get summary(): string {
    return describeAddressMethod(this.#way, {
      family: this.#options.family,
      refusal: this.#refusal,
      ownCount: this.#parts.ledger.addresses.size,
      ranges: [...this.#parts.routes.active],
    });
  }

  owns(address: IpAddress): boolean {
    return this.#parts.own.has(address);
  }

  start(): Promise<void> {
    return this.#turns.run(async () => {
      const { family, mode = "auto" } = this.#options;
      const { ledger, own, logger } = this.#parts;
      this.#refusal = await ledger.open() ??
        (mode === "none" ? "the address mode is none" : await tryOwnAddress(own, family));
      if (this.#refusal === undefined) await own.forgetMissing();
      this.#way = this.#refusal === undefined ? "each" : "standIn";
      this.#placer = this.#createPlacer();
      logger.info("Chose how Service addresses become local", {
        way: this.#way,
        detail: this.summary,
        adopted: ledger.addresses.size + ledger.routes.size,
      });
    });
  }

  probe(): Promise<readonly ProbeResult[]> {
    return this.#turns.run(async () => {
      const refusal = await this.#parts.ledger.open();
      const { network, store } = this.#dependencies;
      const recordedIn = store.path ?? "memory only, so that a kill -9 leaves them behind";
      const input = { ...this.#parts, network, recordedIn, refusal };
      return await probeAddresses(input, this.#options.family);
    });
  }

  configure({ serviceCidrs, count }: AddressDemand): Promise<boolean> {
    return this.#turns.run(async () => {
      const { family, mode = "auto" } = this.#options;
      const ranges = serviceCidrs.filter((range) => cidrFamilyOf(range) === family);
      const way = chooseAddressMethod({
        mode,
        permitted: this.#refusal === undefined,
        count,
        rangesKnown: ranges.length > 0,
        current: this.#way,
      });
      const routed = way === "anyip" ? ranges : [];
      // A range that the machine refused is asked for again only when something else is wanted.
      if (way === this.#way && routed.join() === this.#rangesAsked) return false;
      // The new method starts before the old one ends, so addresses stay local.
      const refused = await this.#parts.routes.activate(routed);
      this.#rangesAsked = routed.join();
      this.#way = way;
      this.#logWay(count, refused);
      const changed = await this.#rehome();
      if (this.#settled) await this.#dropUnneeded();
      return changed;
    });
  }

  acquire(wanted: readonly WantedAddress[]): Promise<ReadonlyMap<IpAddress, AcquiredAddress>> {
    return this.#turns.run(async () => {
      const check = new LocalCheck(this.#dependencies.network);
      const places = new Map<IpAddress, Place>();
      const missing = new Map<IpAddress, WantedAddress>();
      let looked = 0;
      for (const want of wanted) {
        if (++looked % SLICE === 0) await this.#parts.clock.yieldToEventLoop();
        const place = this.#placer.asIs(want.address, check);
        if (place) places.set(want.address, place);
        else missing.set(want.address, want);
      }
      const isUsed = (address: IpAddress) => this.#held.has(address) || places.has(address);
      const placed = await this.#placer.place([...missing.values()], isUsed);
      for (const [address, place] of placed) places.set(address, place);
      for (const want of wanted) this.#hold(want, places.get(want.address));
      return places;
    });
  }

  release(addresses: readonly IpAddress[]): Promise<number> {
    return this.#turns.run(() => {
      const leaving: IpAddress[] = [];
      for (const address of addresses) {
        const held = this.#held.get(address);
        if (held === undefined) continue;
        this.#held.delete(address);
        if (isOwn(held)) leaving.push(address);
        else if (held.place.kind === "standIn") this.#placer.releaseStandIn(held.want);
      }
      return this.#removeOwn(leaving);
    });
  }

  disown(isForeign: (address: IpAddress) => boolean): Promise<readonly IpAddress[]> {
    return this.#turns.run(async () => {
      const { ledger, own } = this.#parts;
      const foreign = [...ledger.addresses].filter((address) =>
        !this.#held.has(address) && isForeign(address)
      );
      // Without any, a removal that failed before is not tried again here.
      if (foreign.length === 0) return [];
      const { removed } = await own.remove(foreign);
      return removed;
    });
  }

  releaseUnclaimed(): Promise<number> {
    return this.#turns.run(async () => {
      this.#settled = true;
      await this.#placer.releaseUnclaimedStandIns();
      return await this.#dropUnneeded();
    });
  }

  cleanup(): Promise<CleanupReport> {
    return this.#turns.run(async () => {
      const refusal = await this.#parts.ledger.open();
      if (refusal !== undefined) return { removed: [], failed: [refusal] };
      this.#held.clear();
      return await cleanupAddresses({ ...this.#parts, store: this.#dependencies.store });
    });
  }

  readonly previewCleanup = () => this.#turns.run(() => previewAddressCleanup(this.#parts));

  #createPlacer(): AddressPlacer {
    const { family } = this.#options;
    return new AddressPlacer(this.#parts, { family, refusal: this.#refusal });
  }

  #hold(want: WantedAddress, place: Place | undefined): void {
    if (place !== undefined) this.#held.set(want.address, { want, place });
  }

  /** Moves held addresses after a change of routes. Returns whether any of them moved. */
  async #rehome(): Promise<boolean> {
    const homeless: WantedAddress[] = [];
    let changed = false;
    let looked = 0;
    for (const { want, place } of this.#held.values()) {
      if (++looked % SLICE === 0) await this.#parts.clock.yieldToEventLoop();
      const covered = this.#parts.routes.covers(want.address);
      if (place.kind !== "local") changed ||= covered;
      else if (covered) this.#hold(want, { kind: "local", by: "route" });
      else if (place.by === "route") homeless.push(want);
    }
    const placed = await this.#placer.place(homeless, (address) => this.#held.has(address));
    for (const want of homeless) {
      const place = placed.get(want.address);
      this.#hold(want, place);
      changed ||= place?.kind !== "local";
    }
    return changed;
  }

  /** Removes recorded but unneeded objects of an earlier run or of the previous method. */
  async #dropUnneeded(): Promise<number> {
    const unneeded = [...this.#parts.ledger.addresses].filter((address) => {
      const held = this.#held.get(address);
      return held === undefined || !isOwn(held);
    });
    const removed = await this.#removeOwn(unneeded);
    const { failures } = await this.#parts.routes.dropInactive();
    for (const [range, { message }] of failures) {
      this.#parts.logger.warn("Cannot remove the local route", { range, error: message });
    }
    await this.#parts.routes.restoreNonlocalBind().catch((error) =>
      this.#parts.logger.warn("Cannot restore a sysctl", { error: messageOf(error) })
    );
    return removed;
  }

  async #removeOwn(addresses: readonly IpAddress[]): Promise<number> {
    const { removed, failures } = await this.#parts.own.remove(addresses);
    for (const [address, { message }] of failures) {
      // Tried again with the next removal.
      this.#parts.logger.warn("Cannot remove an address", { address, error: message });
    }
    return removed.length;
  }

  #logWay(count: number, refused: ReadonlyMap<Cidr, string>): void {
    const { logger, routes } = this.#parts;
    for (const [range, reason] of refused) {
      logger.warn("Cannot make a whole service range local", { range, reason });
    }
    const detail = this.summary;
    logger.info("Changed how Service addresses become local", { way: this.#way, count, detail });
    if (routes.active.size > 0) {
      logger.warn("Whole service ranges are local to this host", { effect: ANYIP_WARNING });
    }
  }
}

function isOwn({ place }: Held): boolean {
  return place.kind === "local" && place.by === "own";
}
