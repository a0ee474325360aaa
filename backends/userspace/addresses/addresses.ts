/**
 * Makes Service addresses local: by `lo`, by a local route for the service ranges (AnyIP), or by
 * loopback addresses in their place. Every addition is recorded before it is made, so that the next
 * run and `--cleanup` remove exactly what kube-relay added, even after a `kill -9`.
 *
 * @module
 */
import ipaddr from "ipaddr.js";
import { type Cidr, cidrContains, cidrFamilyOf, parseCidr } from "../../../lib/net/cidr.ts";
import {
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  isLoopback,
  parseIpAddress,
} from "../../../lib/net/ip_address.ts";
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import type { Logger } from "../../../lib/log/logger.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import type { Network } from "../../../lib/os/network.ts";
import { forEachInSlices } from "../../../lib/os/time_slice.ts";
import type { ServiceKey } from "../../../lib/proxy/service_port_name.ts";
import type { ProbeResult } from "../../../lib/proxy/service_mode.ts";
import {
  addressLine,
  type Failures,
  type IpFailure,
  IpRunner,
  routeLine,
} from "../../iproute/ip_runner.ts";
import { type AddressRecord, type AddressStore, EMPTY_RECORD } from "./address_store.ts";
import { addressConflict, rangeConflict } from "./route_guard.ts";
import { IPV6_STAND_IN, STAND_IN_RANGE, standInOf } from "./stand_ins.ts";

/**
 * The methods that the user permits: the best available, a single one, or no change to the machine.
 */
export type AddressMode = "auto" | "each" | "anyip" | "none";

/** The edges that addresses are made local with. */
interface ServiceAddressesDependencies {
  readonly runner: CommandRunner;
  readonly network: Network;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: AddressStore;
}

/** An address of a Service that sockets shall be bound to. */
export interface WantedAddress {
  readonly address: IpAddress;
  /**
   * The role of the address. Only cluster IPs have stand-ins: a Service has just one in each
   * family.
   */
  readonly role: "ClusterIP" | "ExternalIP" | "LoadBalancer";
  /** The first Service with the address. Keeps stand-ins stable over restarts. */
  readonly service: ServiceKey;
}

/** The place where the sockets of an address are bound. */
export type AcquiredAddress =
  /** The address itself: of the node, on `lo` by this program, or by a route of it. */
  | { readonly kind: "local"; readonly by: "node" | "own" | "route" }
  /**
   * A loopback address in its place. In IPv4 no other Service has it; in IPv6 it is `::1`, which
   * all share. The binder uses the Service's own port there. If that port is in use or not
   * permitted (below 1024 as a plain user), the kernel chooses one.
   */
  | { readonly kind: "standIn"; readonly address: IpAddress }
  /** Not bound. The reason contains the attempt, the machine's answer, and the cure. */
  | { readonly kind: "unavailable"; readonly reason: string };

/** An address that ServicePorts use; one without users is kept until it is given back. */
interface AddressEntry {
  want: WantedAddress;
  users: number;
  /** `undefined` before it was asked for. */
  place: AcquiredAddress | undefined;
}

/** The result of a removal. Missing objects are in neither part. */
interface Removal<T> {
  readonly removed: readonly T[];
  /** The objects that remain, with the reason. */
  readonly failures: Failures<T>;
}

/** More addresses than this are better served by a route: `ip addr` and every look at `lo` get slow. */
const ANYIP_ABOVE = 1_000;
/** Fewer than this go back to one each. Well below, so that a count near the bound does not flap. */
const EACH_BELOW = 500;

/** The cure if addresses may not be added. */
const RIGHTS_CURE = "install iproute2, and run as root or with CAP_NET_ADMIN " +
  "(systemd: AmbientCapabilities=CAP_NET_ADMIN)";

/** The risk of a local route for the administrator. */
const ANYIP_WARNING =
  "every program of this host that listens on a wildcard address (sshd on 0.0.0.0:22) answers on " +
  "all addresses of the range; packets from a pod to a Service leave with the node's address, " +
  "which passes NetworkPolicies that allow nodes";

/** Without it an IPv6 socket cannot be bound to an address that only a route makes local. */
const NONLOCAL_BIND = "net.ipv6.ip_nonlocal_bind";

/**
 * Added for a moment: an IPv4 address that 127.0.0.0/8 makes local anyhow, and an IPv6 one of the
 * discard-only prefix (RFC 6666). The ranges and `nobodys` are of documentation: no machine has them.
 */
const SCRATCH = {
  IPv4: {
    address: parseIpAddress("127.111.112.113"),
    range: parseCidr("198.51.100.113/32"),
    nobodys: parseIpAddress("192.0.2.113"),
    standIn: parseIpAddress("127.112.0.1"),
  },
  IPv6: {
    address: parseIpAddress("100::6b72"),
    range: parseCidr("2001:db8:6b72::/127"),
    nobodys: parseIpAddress("2001:db8::113"),
    standIn: IPV6_STAND_IN,
  },
};

/** The line that adds an address, which never becomes the source of the node's own connections. */
export function addAddressLine(address: IpAddress): string {
  return addressLine("add", { address, device: "lo", neverSource: true });
}

/** The line that makes every address of a range local (AnyIP), or no longer does. */
export function localRouteLine(verb: "add" | "del", destination: Cidr): string {
  return routeLine(verb, { type: "local", destination, device: "lo" });
}

/**
 * The Service addresses of one IP family, local by the best available method. Changes are made in one
 * batch for each sync. Has no side effect before {@linkcode start}.
 */
export class ServiceAddresses {
  readonly #network: Network;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #runner: CommandRunner;
  readonly #store: AddressStore;
  readonly #ip: IpRunner;
  readonly #family: IpFamily;
  readonly #mode: AddressMode;
  /** One call at a time: the record, `lo` and the held addresses change together. */
  readonly #turns = new OneAtATime();
  #opening: Promise<string | undefined> | undefined;
  /** The record: what this process and earlier runs added. Additions are recorded first. */
  readonly #own = new Set<IpAddress>();
  readonly #routes = new Set<Cidr>();
  /** The value of {@linkcode NONLOCAL_BIND} to go back to; undefined when it was not touched. */
  #previousNonlocalBind: string | undefined;
  #isWriteFailureLogged = false;
  readonly #entries = new Map<IpAddress, AddressEntry>();
  /** To be asked for with the next batch: kept when a batch fails. */
  readonly #asking = new Set<AddressEntry>();
  readonly #leaving = new Set<AddressEntry>();
  #moved = false;
  /** The Services of IPv4 stand-ins, with the addresses for which each is used. */
  readonly #standIns = new Map<IpAddress, { service: ServiceKey; users: Set<IpAddress> }>();
  /** The stand-ins of Services whose keys hash to one that was taken; recorded, to be the same later. */
  readonly #displaced = new Map<ServiceKey, IpAddress>();
  #isDisplacedChanged = false;
  /** Addresses whose removal failed or has an unknown outcome; retried with the next removal. */
  readonly #stuck = new Set<IpAddress>();
  /** The ranges that are local by a route and shall stay so. */
  #active: ReadonlySet<Cidr> = new Set();
  /** The ranges that were last asked for, whether or not they could be had. */
  #rangesAsked = "";
  /**
   * `each` adds addresses to `lo`; `anyip` uses a local route for the service ranges, and adds only
   * other addresses to `lo`; `standIn` uses loopback addresses instead.
   */
  #way: "each" | "anyip" | "standIn" = "standIn";
  /** The reason why nothing may be added to the machine. */
  #refusal: string | undefined = "not started yet";
  /** Whether the first sync is over; before it, leftovers of an earlier run stay. */
  #settled = false;

  constructor(
    { runner, network, clock, logger, store }: ServiceAddressesDependencies,
    family: IpFamily,
    mode: AddressMode = "auto",
  ) {
    this.#network = network;
    this.#clock = clock;
    this.#logger = logger.with({ ipFamily: family });
    this.#runner = runner;
    this.#store = store;
    this.#ip = new IpRunner(runner, { family });
    this.#family = family;
    this.#mode = mode;
  }

  /** The current method as one sentence for the log and for `status`. */
  get summary(): string {
    const each = `${this.#own.size} ${this.#family} addresses added to lo, one by one`;
    if (this.#way === "each") return each;
    if (this.#way === "anyip") {
      const ranges = [...this.#active].join(", ") || "no range";
      return `local route for ${ranges}; ${each}; ${ANYIP_WARNING}`;
    }
    const standIn = this.#family === "IPv4" ? `an address of ${STAND_IN_RANGE}` : IPV6_STAND_IN;
    return `${standIn} in place of each cluster IP that is not local; nothing is added to this ` +
      `host${this.#refusal === undefined ? "" : `: ${this.#refusal}`}`;
  }

  /** Distinct addresses in use. */
  get size(): number {
    return this.#entries.size - this.#leaving.size;
  }

  /** Whether this program added the address to an interface. On others, other programs may listen. */
  owns(address: IpAddress): boolean {
    return this.#own.has(address);
  }

  /** The place where the sockets of an address are bound; `undefined` before it was acquired. */
  placeOf(address: IpAddress): AcquiredAddress | undefined {
    return this.#entries.get(address)?.place;
  }

  /** A ServicePort uses an address from now on. */
  retain(want: WantedAddress): void {
    const { address } = want;
    const entry = this.#entries.getOrInsertComputed(
      address,
      () => ({ want, users: 0, place: undefined }),
    );
    if (entry.users++ > 0) return;
    entry.want = want;
    this.#leaving.delete(entry);
    this.#asking.add(entry);
  }

  /** A ServicePort no longer uses an address. */
  release(address: IpAddress): void {
    const entry = this.#entries.get(address);
    if (!entry || --entry.users > 0) return;
    this.#asking.delete(entry);
    this.#leaving.add(entry);
  }

  /** Asks again for an address that could not be had. */
  retry(address: IpAddress): void {
    const entry = this.#entries.get(address);
    if (entry?.place?.kind === "unavailable") this.#asking.add(entry);
  }

  /**
   * Whether an address acquired since the last call became local, or stopped being so. A new
   * address counts as local before.
   */
  takeMoved(): boolean {
    const moved = this.#moved;
    this.#moved = false;
    return moved;
  }

  /** Finds a working method, and adopts the addresses of an earlier run. Removes nothing. */
  start(): Promise<void> {
    return this.#turns.run(async () => {
      this.#refusal = await this.#open() ??
        (this.#mode === "none" ? "the address mode is none" : await this.#tryAddress());
      if (this.#refusal === undefined) await this.#forgetMissing();
      this.#way = this.#refusal === undefined ? "each" : "standIn";
      this.#logger.info("Chose how Service addresses become local", {
        way: this.#way,
        detail: this.summary,
        adopted: this.#own.size + this.#routes.size,
      });
    });
  }

  /**
   * Tries each method and leaves nothing behind. None is required: node ports work without. May be called
   * before {@linkcode start}.
   */
  probe(): Promise<readonly ProbeResult[]> {
    return this.#turns.run(async () => {
      const refusal = await this.#open();
      const { range, standIn } = SCRATCH[this.#family];
      const path = this.#store.path ?? "memory only, so that a kill -9 leaves them behind";
      const found = `works; recorded in ${path}`;
      return [
        probeResult("one address each on lo", {
          ...{ refusal: refusal ?? await this.#tryAddress(), found, cure: RIGHTS_CURE },
        }),
        probeResult("local route for the service ranges", {
          ...{ refusal: refusal ?? await this.#tryRange(range), found, cure: RIGHTS_CURE },
        }),
        probeResult("loopback addresses in place of cluster IPs", {
          refusal: this.#canBind(standIn) ? undefined : `a socket cannot be bound to ${standIn}`,
          found: `works; from ${this.#family === "IPv4" ? STAND_IN_RANGE : IPV6_STAND_IN}`,
          cure: `switch ${this.#family} on for lo`,
        }),
      ];
    });
  }

  /**
   * Chooses the method, before {@linkcode acquire}. `serviceCidrs`: the ranges that cluster IPs are taken
   * from; empty when unknown. Returns whether any address may have moved; then all are asked for again.
   */
  configure(serviceCidrs: readonly Cidr[], count: number): Promise<boolean> {
    return this.#turns.run(async () => {
      const ranges = serviceCidrs.filter((range) => cidrFamilyOf(range) === this.#family);
      const way = this.#choose(count, ranges.length > 0);
      const routed = way === "anyip" ? ranges : [];
      // A range that the machine refused is asked for again only when something else is wanted.
      if (way === this.#way && routed.join() === this.#rangesAsked) return false;
      // The new method starts before the old one ends, so addresses stay local.
      await this.#activate(routed);
      const changed = await this.#rehome();
      for (const entry of this.#entries.values()) {
        if (changed && entry.users > 0) this.#asking.add(entry);
      }
      if (this.#settled) await this.#dropUnneeded();
      // Not before: what was interrupted is done by the next call.
      this.#rangesAsked = routed.join();
      this.#way = way;
      const detail = this.summary;
      this.#logger.info("Changed how Service addresses become local", { way, count, detail });
      if (this.#active.size > 0) {
        this.#logger.warn("Whole service ranges are local to this host", { effect: ANYIP_WARNING });
      }
      return changed;
    });
  }

  /**
   * Makes everything local that was retained or retried, in one batch. Returns how many addresses can
   * now be used that could not. Rejects only if the outcome is unknown.
   */
  async acquire(): Promise<number> {
    if (this.#asking.size === 0) return 0;
    return await this.#turns.run(async () => {
      const isLocal = localCheck(this.#network);
      const places = new Map<IpAddress, AcquiredAddress>();
      const missing: WantedAddress[] = [];
      await forEachInSlices(this.#clock, this.#asking, ({ want }) => {
        const place = this.#placeAsIs(want.address, isLocal);
        if (place) places.set(want.address, place);
        else missing.push(want);
      });
      const isUsed = (address: IpAddress) => this.#isHeld(address) || places.has(address);
      for (const [address, place] of await this.#place(missing, isUsed)) places.set(address, place);
      let gained = 0;
      for (const entry of this.#asking) {
        const place = places.get(entry.want.address)!;
        const { kind: before } = entry.place ?? {};
        if (place.kind !== "unavailable" && (before ?? "unavailable") === "unavailable") gained++;
        if (((before ?? "local") === "local") !== (place.kind === "local")) this.#moved = true;
        this.#leaveStandIn(entry, place);
        entry.place = place;
      }
      this.#asking.clear();
      await this.#saveDisplaced();
      return gained;
    });
  }

  /**
   * Gives unused addresses back, in one batch: those that we added one by one are removed from the
   * machine at once, the node's own and those under a route stay. Returns how many were removed.
   */
  async giveBack(): Promise<number> {
    if (this.#leaving.size === 0) return 0;
    return await this.#turns.run(async () => {
      const leaving = [...this.#leaving];
      for (const entry of leaving) this.#leaveStandIn(entry);
      await this.#saveDisplaced();
      const removed = await this.#removeOwn(
        leaving.filter(isOwn).map(({ want: { address } }) => address),
      );
      for (const { want: { address } } of leaving) this.#entries.delete(address);
      this.#leaving.clear();
      return removed;
    });
  }

  /**
   * Removes adopted addresses that were not acquired, where `isForeign` says so, and returns them.
   */
  disown(isForeign: (address: IpAddress) => boolean): Promise<readonly IpAddress[]> {
    return this.#turns.run(async () => {
      const foreign = [...this.#own].filter((address) =>
        !this.#isHeld(address) && isForeign(address)
      );
      // Without any, a removal that failed before is not tried again here.
      if (foreign.length === 0) return [];
      return (await this.#deleteAddresses(foreign)).removed;
    });
  }

  /** Removes adopted addresses that were not acquired since. Called once, after the first sync. */
  releaseUnclaimed(): Promise<number> {
    return this.#turns.run(async () => {
      this.#settled = true;
      for (const [address, { users }] of this.#standIns) {
        if (users.size === 0) this.#dropStandIn(address);
      }
      await this.#saveDisplaced();
      return await this.#dropUnneeded();
    });
  }

  /**
   * Removes everything that this run or an earlier one added, and nothing else. Continues after failures;
   * a missing object is none. The record goes last, if nothing remains.
   */
  cleanup(): Promise<CleanupReport> {
    return this.#turns.run(async () => {
      const refusal = await this.#open();
      if (refusal !== undefined) return { removed: [], failed: [refusal] };
      this.#entries.clear();
      this.#active = new Set();
      const removed: string[] = [];
      const failed: string[] = [];
      const step = async (what: string, run: () => Promise<void>) => {
        await run().catch((error) => failed.push(`${what}: ${messageOf(error)}`));
      };
      const report = <T>(removal: Removal<T>, describe: (item: T) => string) => {
        for (const item of removal.removed) removed.push(describe(item));
        for (const [item, { message }] of removal.failures) {
          failed.push(`${describe(item)}: ${message}`);
        }
      };
      await step("addresses on lo", async () => {
        report(await this.#deleteAddresses(this.#own), describeAddress);
      });
      await step("local routes", async () => {
        report(await this.#deleteRoutes(this.#routes), describeRoute);
      });
      await step(NONLOCAL_BIND, async () => {
        const value = await this.#restoreNonlocalBind();
        if (value !== undefined) removed.push(`${NONLOCAL_BIND}, which is ${value} again`);
      });
      if (failed.length === 0) {
        await step(`record ${this.#store.path}`, () => this.#store.remove());
      }
      return { removed, failed };
    });
  }

  /** Returns what {@linkcode cleanup} would remove, by the record: some of it may be gone. */
  previewCleanup(): Promise<CleanupReport> {
    return this.#turns.run(async () => {
      const refusal = await this.#open();
      if (refusal !== undefined) return { removed: [], failed: [refusal] };
      const addresses = [...this.#own].map(describeAddress);
      return { removed: [...addresses, ...[...this.#routes].map(describeRoute)], failed: [] };
    });
  }

  /**
   * `each` is preferred if the number of addresses allows it, since a route makes every address of
   * the range local, even unallocated ones, on every port with a wildcard listener of the host.
   */
  #choose(count: number, rangesKnown: boolean): "each" | "anyip" | "standIn" {
    if (this.#mode === "none" || this.#refusal !== undefined) return "standIn";
    if (this.#mode === "each" || !rangesKnown) return "each";
    if (this.#mode === "anyip") return "anyip";
    return count > (this.#way === "anyip" ? EACH_BELOW - 1 : ANYIP_ABOVE) ? "anyip" : "each";
  }

  #isHeld(address: IpAddress): boolean {
    return this.#entries.get(address)?.place !== undefined;
  }

  /** The place of an address that is local as things are; undefined for any other. */
  #placeAsIs(
    address: IpAddress,
    isLocal: (address: IpAddress) => boolean,
  ): AcquiredAddress | undefined {
    if (anyContains(this.#active, address)) return { kind: "local", by: "route" };
    // Also checked for our additions: another program may have flushed lo.
    if (!isLocal(address)) return undefined;
    this.#stuck.delete(address);
    // Maybe local only until the route of an earlier run is removed, even if its addition is recorded.
    if (anyContains(this.#routes, address)) return undefined;
    return { kind: "local", by: this.#own.has(address) ? "own" : "node" };
  }

  /** Gives every one of some addresses that are not local a place. Rejects when the outcome is unknown. */
  async #place(
    wanted: readonly WantedAddress[],
    isUsed: (address: IpAddress) => boolean,
  ): Promise<Map<IpAddress, AcquiredAddress>> {
    const places = new Map<IpAddress, AcquiredAddress>();
    const refusal = this.#refusal;
    if (refusal !== undefined) {
      // In the same order in each run, for Services of one update whose keys hash to one stand-in.
      const inOrder = wanted.toSorted((left, right) => left.service < right.service ? -1 : 1);
      await forEachInSlices(this.#clock, inOrder, (want) => {
        places.set(want.address, this.#placeWithoutRights(want, refusal, isUsed));
      });
      return places;
    }
    // Read once. Cluster IPs are not checked: no other machine uses their range.
    const routes = wanted.every(({ role }) => role === "ClusterIP")
      ? []
      : await this.#ip.routes("main").catch((error) => messageOf(error));
    for (const want of wanted) {
      if (want.role === "ClusterIP") continue;
      const conflict = typeof routes === "string" ? routes : addressConflict(want.address, routes);
      if (conflict !== undefined) places.set(want.address, unavailable(want, conflict));
    }
    const free = wanted.filter(({ address }) => !places.has(address));
    const failures = await this.#addAddresses(free.map(({ address }) => address));
    for (const want of free) {
      const failure = failures.get(want.address);
      // Another program added it in the meantime: it is local, but must not be removed.
      const by = failure?.kind === "exists" ? "node" : "own";
      const isRefused = failure !== undefined && failure.kind !== "exists";
      const place = isRefused ? unavailable(want, failure.message) : { kind: "local", by } as const;
      places.set(want.address, place);
    }
    return places;
  }

  #placeWithoutRights(
    want: WantedAddress,
    refusal: string,
    isUsed: (address: IpAddress) => boolean,
  ): AcquiredAddress {
    if (want.role !== "ClusterIP") return unavailable(want, `${refusal}; ${RIGHTS_CURE}`);
    if (this.#family === "IPv6") return { kind: "standIn", address: IPV6_STAND_IN };
    const { address: user, service } = want;
    const isTaken = (each: IpAddress) =>
      isUsed(each) || (this.#standIns.get(each)?.service ?? service) !== service;
    const known = this.#displaced.get(service);
    const address = known !== undefined && !isTaken(known) ? known : standInOf(service, isTaken);
    const isDisplaced = address !== standInOf(service, () => false);
    if (address !== known && (isDisplaced || known !== undefined)) {
      if (isDisplaced) this.#displaced.set(service, address);
      else this.#displaced.delete(service);
      this.#isDisplacedChanged = true;
    }
    const standIn = this.#standIns.getOrInsertComputed(address, () => ({
      service,
      users: new Set(),
    }));
    standIn.users.add(user);
    return { kind: "standIn", address };
  }

  /** Leaves the stand-in of an address, unless that is its next place. */
  #leaveStandIn({ want: { address }, place }: AddressEntry, next?: AcquiredAddress): void {
    if (place?.kind !== "standIn") return;
    if (next?.kind === "standIn" && next.address === place.address) return;
    const standIn = this.#standIns.get(place.address);
    standIn?.users.delete(address);
    if (standIn?.users.size === 0) this.#dropStandIn(place.address);
  }

  #dropStandIn(address: IpAddress): void {
    const { service } = this.#standIns.get(address) ?? {};
    this.#standIns.delete(address);
    if (service === undefined || this.#displaced.get(service) !== address) return;
    this.#displaced.delete(service);
    this.#isDisplacedChanged = true;
  }

  /** Moves held addresses after a change of routes. Returns whether any of them moved. */
  async #rehome(): Promise<boolean> {
    const homeless: AddressEntry[] = [];
    let changed = false;
    await forEachInSlices(this.#clock, this.#entries.values(), (entry) => {
      const { want, place } = entry;
      if (place === undefined) return;
      const isCovered = anyContains(this.#active, want.address);
      if (place.kind !== "local") changed ||= isCovered;
      else if (isCovered) entry.place = { kind: "local", by: "route" };
      else if (place.by === "route") homeless.push(entry);
    });
    const wanted = homeless.map(({ want }) => want);
    const placed = await this.#place(wanted, (address) => this.#isHeld(address));
    for (const entry of homeless) {
      entry.place = placed.get(entry.want.address)!;
      if (entry.place.kind === "local") continue;
      changed = this.#moved = true;
    }
    return changed;
  }

  /** Removes recorded but unneeded objects of an earlier run or of the previous method. */
  async #dropUnneeded(): Promise<number> {
    const unneeded = [...this.#own].filter((address) => {
      const entry = this.#entries.get(address);
      return entry === undefined || !isOwn(entry);
    });
    const removed = await this.#removeOwn(unneeded);
    const inactive = [...this.#routes].filter((range) => !this.#active.has(range));
    const { failures } = await this.#deleteRoutes(inactive);
    for (const [range, { message }] of failures) {
      this.#logger.warn("Cannot remove the local route", { range, error: message });
    }
    await this.#restoreNonlocalBind().catch((error) =>
      this.#logger.warn("Cannot restore a sysctl", { error: messageOf(error) })
    );
    return removed;
  }

  async #removeOwn(addresses: readonly IpAddress[]): Promise<number> {
    const { removed, failures } = await this.#deleteAddresses(addresses);
    for (const [address, { message }] of failures) {
      // Tried again with the next removal.
      this.#logger.warn("Cannot remove an address", { address, error: message });
    }
    return removed.length;
  }

  // Addresses of lo.

  /**
   * Adds addresses, and returns the failed ones with the reason. One that exists is reported as
   * `exists` and is not recorded, unless it was recorded before: then kube-relay added it.
   */
  async #addAddresses(addresses: readonly IpAddress[]): Promise<Failures<IpAddress>> {
    if (addresses.length === 0) return new Map();
    const known = new Set(addresses.filter((address) => this.#own.has(address)));
    try {
      await this.#intend(this.#own, addresses);
    } catch (error) {
      const message = `it cannot be recorded first: ${messageOf(error)}`;
      const failure: IpFailure = { kind: "other", message };
      return new Map(addresses.map((address) => [address, failure]));
    }
    // Should the next line throw, then the outcome is unknown, and the addresses go unless a caller
    // claims them.
    for (const address of addresses) this.#stuck.add(address);
    const refused = await this.#ip.batch(addresses, addAddressLine);
    for (const address of addresses) this.#stuck.delete(address);
    await this.#forget(this.#own, refused.keys().filter((address) => !known.has(address)));
    return new Map(
      [...refused].filter(([address, { kind }]) => kind !== "exists" || !known.has(address)),
    );
  }

  /** Removes recorded addresses, and those whose removal failed before. Others are ignored. */
  async #deleteAddresses(addresses: Iterable<IpAddress>): Promise<Removal<IpAddress>> {
    for (const address of addresses) if (this.#own.has(address)) this.#stuck.add(address);
    const removal = await this.#delete(
      this.#own,
      [...this.#stuck],
      (address) => addressLine("del", { address, device: "lo" }),
    );
    for (const address of this.#stuck) {
      if (!removal.failures.has(address)) this.#stuck.delete(address);
    }
    return removal;
  }

  /**
   * Forgets recorded addresses that are no longer on `lo`, as after a reboot. If `lo` cannot be
   * listed, everything is kept and checked on use.
   */
  async #forgetMissing(): Promise<void> {
    if (this.#own.size === 0) return;
    const found = await this.#ip.addresses("lo").catch(() => undefined);
    if (found === undefined) return;
    const present = new Set(found.map(({ address }) => address));
    await this.#forget(this.#own, [...this.#own].filter((address) => !present.has(address)));
  }

  /** Adds an address that is not needed and removes it again. Resolves to why that does not work, or to undefined. */
  async #tryAddress(): Promise<string | undefined> {
    const { address } = SCRATCH[this.#family];
    try {
      const added = (await this.#addAddresses([address])).get(address);
      // The kernel checks the right before the address: `exists` shows that it is present.
      if (added) return added.kind === "exists" ? undefined : added.message;
      return (await this.#deleteAddresses([address])).failures.get(address)?.message;
    } catch (error) {
      return messageOf(error);
    }
  }

  // Local routes.

  /**
   * Makes ranges local, and logs those that it cannot. Other ranges are no longer active, but their
   * routes stay until they are dropped.
   */
  async #activate(ranges: readonly Cidr[]): Promise<void> {
    const active = new Set<Cidr>();
    for (const range of ranges) {
      const reason = this.#active.has(range) ? undefined : await this.#addRoute(range);
      if (reason === undefined) active.add(range);
      else this.#logger.warn("Cannot make a whole service range local", { range, reason });
    }
    this.#active = active;
  }

  /** Adds a route that is not needed and removes it again. Resolves to why that does not work, or to undefined. */
  async #tryRange(range: Cidr): Promise<string | undefined> {
    const reason = await this.#addRoute(range);
    if (this.#routes.has(range)) await this.#deleteRoutes([range]);
    await this.#restoreNonlocalBind();
    return reason;
  }

  /** Resolves to why it could not be added, or to undefined. */
  async #addRoute(range: Cidr): Promise<string | undefined> {
    const isKnown = this.#routes.has(range);
    try {
      const conflict = rangeConflict(range, {
        routes: await this.#ip.routes("main"),
        nodeAddresses: this.#network.interfaceAddresses().map(({ address }) => address)
          .filter((address) => !this.#own.has(address)),
      });
      if (conflict !== undefined) return conflict;
      await this.#intend(this.#routes, [range]);
    } catch (error) {
      return messageOf(error);
    }
    const added = await this.#ip.batch([range], (each) => localRouteLine("add", each));
    const failure = added.get(range);
    // A foreign route works as well, but must not be removed.
    if (failure && !isKnown) await this.#forget(this.#routes, [range]);
    if (failure && failure.kind !== "exists") return failure.message;
    const reason = await this.#ensureBind(range);
    if (reason !== undefined && this.#routes.has(range)) await this.#deleteRoutes([range]);
    return reason;
  }

  #deleteRoutes(ranges: Iterable<Cidr>): Promise<Removal<Cidr>> {
    return this.#delete(this.#routes, [...ranges], (range) => localRouteLine("del", range));
  }

  /** Deletes objects, and takes them out of the record unless they remain. */
  async #delete<T>(
    record: Set<T>,
    leaving: readonly T[],
    toLine: (item: T) => string,
  ): Promise<Removal<T>> {
    const refused = await this.#ip.batch(leaving, toLine);
    const failures = new Map([...refused].filter(([, { kind }]) => kind !== "absent"));
    await this.#forget(record, leaving.filter((item) => !failures.has(item)));
    return { removed: leaving.filter((item) => !refused.has(item)), failures };
  }

  /** An IPv6 bind asks for an address on an interface, unless a switch of the kernel lets it do without. */
  async #ensureBind(range: Cidr): Promise<string | undefined> {
    const address = someAddressOf(range);
    if (this.#canBind(address)) return undefined;
    const refused = `its route exists, but a socket cannot be bound to ${address}`;
    if (!range.includes(":")) return refused;
    try {
      await this.#allowNonlocalBind();
    } catch (error) {
      return `${refused}: ${messageOf(error)}`;
    }
    return this.#canBind(address) ? undefined : refused;
  }

  async #allowNonlocalBind(): Promise<void> {
    const previous = (await this.#sysctl("-n", NONLOCAL_BIND)).trim();
    if (previous === "1") return;
    await this.#setPreviousNonlocalBind(previous);
    try {
      await this.#sysctl("-w", `${NONLOCAL_BIND}=1`);
    } catch (error) {
      await this.#setPreviousNonlocalBind(undefined);
      throw error;
    }
  }

  /**
   * Puts the switch for IPv6 binds back if we set it and no route is left that needs it. Resolves to
   * the value it has now, or to undefined when there was nothing to do. Rejects when it cannot be set.
   */
  async #restoreNonlocalBind(): Promise<string | undefined> {
    const previous = this.#previousNonlocalBind;
    if (previous === undefined || this.#active.size > 0) return undefined;
    await this.#sysctl("-w", `${NONLOCAL_BIND}=${previous}`);
    await this.#setPreviousNonlocalBind(undefined);
    return previous;
  }

  async #sysctl(...args: readonly string[]): Promise<string> {
    const { code, stdout, stderr } = await this.#runner.run("sysctl", args);
    if (code === 0) return stdout;
    const reason = stderr.trim().split("\n")[0] || `exit code ${code}`;
    const message = `Cannot run 'sysctl ${args.join(" ")}': ${reason}`;
    throw new CommandError("sysctl", args, "failed", message);
  }

  #canBind(address: IpAddress): boolean {
    return canBind(this.#network, address);
  }

  // The record.

  /**
   * Reads the record of an earlier run, once. Returns the reason if it cannot be read: then nothing
   * may be added, as that would overwrite the record. An invalid record is set aside.
   */
  #open(): Promise<string | undefined> {
    return this.#opening ??= this.#load().then((record) => {
      for (const address of record.addresses) this.#own.add(address);
      for (const route of record.routes) this.#routes.add(route);
      this.#previousNonlocalBind = record.previousNonlocalBind;
      for (const [service, address] of record.standIns) {
        if (this.#standIns.has(address)) continue;
        this.#standIns.set(address, { service, users: new Set() });
        this.#displaced.set(service, address);
      }
      return undefined;
    }, (error) => `the additions of earlier runs are unknown: ${messageOf(error)}`);
  }

  async #load(): Promise<AddressRecord> {
    try {
      return await this.#store.load();
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      this.#logger.warn("Cannot parse the record of an earlier run; its additions stay", {
        error: messageOf(error),
        movedTo: await this.#store.setAside(),
      });
      return EMPTY_RECORD;
    }
  }

  /** Records planned additions. If it throws, nothing is recorded, and nothing may be added. */
  async #intend<T>(record: Set<T>, items: Iterable<T>): Promise<void> {
    const added = [...items].filter((item) => !record.has(item));
    if (added.length === 0) return;
    for (const item of added) record.add(item);
    try {
      await this.#save();
    } catch (error) {
      for (const item of added) record.delete(item);
      throw error;
    }
  }

  /** Records that items were removed or never added. Unrecorded ones are ignored. */
  async #forget<T>(record: Set<T>, items: Iterable<T>): Promise<void> {
    let isChanged = false;
    for (const item of items) isChanged = record.delete(item) || isChanged;
    if (isChanged) await this.#save();
  }

  async #setPreviousNonlocalBind(value: string | undefined): Promise<void> {
    this.#previousNonlocalBind = value;
    await this.#save();
  }

  /** Records which Services are displaced, hardly ever. A record that cannot be read stays as it is. */
  async #saveDisplaced(): Promise<void> {
    if (!this.#isDisplacedChanged || await this.#open() !== undefined) return;
    try {
      await this.#save();
      this.#isDisplacedChanged = false;
    } catch (error) {
      this.#logger.warn("Cannot record stand-ins; they may differ after a restart", {
        error: messageOf(error),
      });
    }
  }

  async #save(): Promise<void> {
    const previous = this.#previousNonlocalBind;
    try {
      await this.#store.save({
        addresses: this.#own,
        routes: this.#routes,
        ...(previous !== undefined && { previousNonlocalBind: previous }),
        standIns: this.#displaced,
      });
      this.#isWriteFailureLogged = false;
    } catch (error) {
      // Logged here, since the caller does not know the folder.
      if (!this.#isWriteFailureLogged) {
        this.#logger.warn(
          "Cannot write to the state directory: no addresses or routes are added here",
          {
            file: this.#store.path,
            error: messageOf(error),
            cure: "make it writable, or give another one with --state-dir",
          },
        );
      }
      this.#isWriteFailureLogged = true;
      throw error;
    }
  }
}

/** Whether a socket can be bound to the address. Leaves nothing behind. */
function canBind(network: Network, address: IpAddress): boolean {
  return bindFailure(network, address) === undefined;
}

/** AddrNotAvailable as a rule; an address family that is switched off has other errors. */
function bindFailure(network: Network, address: IpAddress): unknown {
  try {
    network.listenUdp({ hostname: address, port: 0 }).close();
    return undefined;
  } catch (error) {
    return error;
  }
}

/**
 * Checks whether packets to addresses end on this machine, within one batch. Tries a bind instead of
 * listing the interfaces: a bind takes 20 µs for any number of addresses, while
 * `Deno.networkInterfaces()` blocks for 100 ms and more at 10,000.
 */
function localCheck(network: Network): (address: IpAddress) => boolean {
  let bindTells: boolean | undefined;
  let ofInterfaces: ReadonlySet<IpAddress> | undefined;
  return (address) => {
    const failure = bindFailure(network, address);
    if (failure !== undefined) {
      // Without a free file descriptor, the machine still has its loopback addresses.
      return isLoopback(address) && !(failure instanceof Deno.errors.AddrNotAvailable);
    }
    // With net.ipv4.ip_nonlocal_bind=1 (usual with keepalived) every bind succeeds.
    bindTells ??= !canBind(network, SCRATCH[ipFamilyOf(address)].nobodys);
    if (bindTells) return true;
    try {
      ofInterfaces ??= new Set(network.interfaceAddresses().map((own) => own.address));
    } catch {
      // No file descriptor is free. The address is added then, and the kernel reports if it exists.
      return false;
    }
    return isLoopback(address) || ofInterfaces.has(address);
  };
}

function isOwn({ place }: AddressEntry): boolean {
  return place?.kind === "local" && place.by === "own";
}

function unavailable({ address, role }: WantedAddress, reason: string): AcquiredAddress {
  return {
    kind: "unavailable",
    reason: `Cannot make ${role} ${address} local to this node: ${reason}`,
  };
}

function probeResult(
  feature: string,
  { refusal, found, cure }: { refusal: string | undefined; found: string; cure: string },
): ProbeResult {
  return refusal === undefined
    ? { feature, available: true, required: false, detail: found }
    : { feature, available: false, required: false, detail: refusal, cure };
}

function describeAddress(address: IpAddress): string {
  return `address ${address} on lo`;
}

function describeRoute(range: Cidr): string {
  return `local route for ${range}`;
}

function anyContains(ranges: Iterable<Cidr>, address: IpAddress): boolean {
  for (const range of ranges) if (cidrContains(range, address)) return true;
  return false;
}

/** An address of the range that is neither its first (the router anycast address of IPv6) nor beyond it. */
function someAddressOf(range: Cidr): IpAddress {
  const [network, length] = ipaddr.parseCIDR(range);
  const bytes = network.toByteArray();
  const last = bytes.length - 1;
  if (length < bytes.length * 8) bytes[last] = (bytes[last] ?? 0) | 1;
  return parseIpAddress(ipaddr.fromByteArray(bytes).toString());
}
