import { NAMESPACE_NAME_LABEL } from "../api/labels.ts";
import type { AddressRange } from "../net/address_range.ts";
import {
  addressAt,
  addressNumber,
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
} from "../net/ip_address.ts";
import { SetIndex } from "../net/set_index.ts";
import { atOnce } from "../net/steps.ts";
import { type Labels, matchesLabels } from "../policy/label_selector.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import { type AddressPool, poolOf, spaceOf } from "./address_pool.ts";
import { type AddressRequest, shorten } from "./address_request.ts";
import { SortedList } from "../net/sorted_list.ts";

/** The addresses assigned to a Service. */
export interface AddressAssignment {
  /** The desired addresses of the status. Absent = the status is not changed. */
  readonly addresses?: readonly IpAddress[];
  /** Why an address, or the requested one, is missing. At most one for each family. */
  readonly refusals: readonly AddressRefusal[];
}

interface Entry {
  readonly request: AddressRequest;
  readonly claims: readonly Claim[];
  /** The reason why the status is left alone. */
  readonly foreign?: AddressRefusal;
}

/**
 * Assigns the addresses of pools to Services. One instance in the cluster writes what it assigns
 * into their status, and the status is what a later instance starts from.
 *
 * Events are collected until {@linkcode update}, whose cost is that of the events. The first call has
 * to come after all Services and, if a pool selects namespaces, all Namespaces were given: Services
 * keep the addresses of their status, and lose those that they may not have.
 */
export class AddressAllocator {
  readonly #pools: readonly AddressPool[];
  readonly #inventory: AddressInventory;
  readonly #entries = new Map<ServiceKey, Entry>();
  readonly #namespaces = new Map<string, Labels>();
  readonly #byNamespace = new SetIndex<string, ServiceKey>();
  /** Requests since the last update; `undefined` = the Service is gone. */
  readonly #pending = new Map<ServiceKey, AddressRequest | undefined>();
  readonly #waiting = new WaitingClaims();
  readonly #nodes = new Map<string, readonly IpAddress[]>();
  /** The claims of the running update, with those that they replace. */
  #before = new Map<Claim, Claim>();

  constructor(pools: readonly AddressPool[]) {
    this.#pools = pools.toSorted((left, right) =>
      (left.priority ?? Number.MAX_VALUE) - (right.priority ?? Number.MAX_VALUE) ||
      compareTexts(left.name, right.name)
    );
    this.#inventory = new AddressInventory(pools);
  }

  /** Takes a Service, or that it is gone or concerns no allocator any more. */
  setService(key: ServiceKey, request: AddressRequest | undefined): void {
    this.#pending.set(key, request);
  }

  /** Takes the labels of a Namespace, or that it is gone. */
  setNamespace(name: string, labels: Labels | undefined): void {
    if (JSON.stringify(labels) === JSON.stringify(this.#namespaces.get(name))) return;
    if (labels) this.#namespaces.set(name, labels);
    else this.#namespaces.delete(name);
    for (const key of this.#byNamespace.at(name)) this.#reconsider(key);
  }

  /** Takes the addresses of a node, which are never given; empty = it is gone. */
  setNode(name: string, addresses: readonly IpAddress[]): void {
    const reservation = { by: `node ${name}`, isFinal: true };
    for (const address of this.#nodes.get(name) ?? []) {
      this.#inventory.unreserve(address, reservation);
      this.#waiting.touch(address);
    }
    for (const address of addresses) {
      this.#inventory.reserve(address, reservation);
      for (const key of this.#inventory.holdersOf(address)) this.#reconsider(key);
    }
    if (addresses.length > 0) this.#nodes.set(name, addresses);
    else this.#nodes.delete(name);
  }

  /** Returns the addresses of a Service after the last update; `undefined` = it needs none. */
  assignment(key: ServiceKey): AddressAssignment | undefined {
    const entry = this.#entries.get(key);
    if (!entry || entry.request.isForeign) return undefined;
    const { claims, foreign, request } = entry;
    if (foreign) return { refusals: [foreign] };
    const addresses = claims.flatMap(({ address }) => address ?? []);
    // Both families may report the same problem with a requested address.
    const refusals = new Map<string, AddressRefusal>();
    for (const { refusal } of claims) {
      const isEnough = request.prefersDualStack && addresses.length > 0;
      if (!refusal || isEnough && refusal.kind === "no pool") continue;
      refusals.set(refusal.message, refusal);
    }
    return { addresses, refusals: [...refusals.values()] };
  }

  /** The Services that have an address, and its pool. */
  addressUse(
    address: IpAddress,
  ): { readonly pool?: AddressPool; readonly services: readonly ServiceKey[] } {
    const pool = this.#inventory.poolAt(address);
    return { ...(pool && { pool }), services: this.#inventory.holdersOf(address) };
  }

  /**
   * Brings the assignments up to date. Returns the Services whose status has to be compared with
   * their assignment: those of the events, and those whose assignment changed by them.
   */
  update(): ReadonlySet<ServiceKey> {
    return atOnce(this.updateInSteps());
  }

  /** As {@linkcode update}, in steps of one Service. Events have to wait until the last step. */
  *updateInSteps(): Generator<void, ReadonlySet<ServiceKey>, void> {
    const changed = new Set(this.#pending.keys());
    const pending = yield* this.#takePending();
    const woken = new SortedList<Claim>(compareClaims);
    for (let index = 0;;) {
      for (const claim of this.#waiting.wake(this.#inventory)) woken.add(claim);
      const next = pending[index];
      const other = woken.first;
      if (!next && !other) return changed;
      const claim = !other || next && compareClaims(next, other) < 0 ? next! : other;
      if (claim === next) index++;
      if (claim === other) woken.delete(other);
      yield;
      this.#waiting.delete(claim);
      const { address, refusal } = claim;
      this.#assign(claim);
      const isSame = claim.address === address && claim.refusal?.message === refusal?.message;
      if (!isSame) changed.add(claim.request.key);
    }
  }

  #reconsider(key: ServiceKey): void {
    if (!this.#pending.has(key)) this.#pending.set(key, this.#entries.get(key)!.request);
  }

  /**
   * Replaces the entries of the pending requests. All release their addresses before any is kept,
   * and those with an address of this instance keep theirs first: their status may be older.
   */
  *#takePending(): Generator<void, readonly Claim[], void> {
    const before = this.#before = new Map();
    const released: Claim[] = [];
    const claims: Claim[] = [];
    for (const [key, request] of this.#pending) {
      const old = this.#entries.get(key);
      if (old) this.#removeEntry(old);
      const entry = request && this.#addEntry(request);
      claims.push(...entry?.claims ?? []);
      for (const claim of old?.claims.filter(({ address }) => address !== undefined) ?? []) {
        released.push(claim);
        const next = entry?.claims.find(({ family }) => family === claim.family);
        if (next) before.set(next, claim);
      }
      yield;
    }
    this.#pending.clear();
    claims.sort(compareClaims);
    for (const claim of claims) {
      const known = before.get(claim);
      if (known) this.#keep(claim, known.address!);
    }
    for (const claim of claims) {
      if (!before.has(claim)) this.#keepCurrent(claim);
      yield;
    }
    this.#touchChanged(released, claims);
    return claims;
  }

  /** Wakes claims for what changed by the pending requests, but not for what was kept as it was. */
  #touchChanged(released: readonly Claim[], claims: readonly Claim[]): void {
    const kept = new Set<Claim>();
    for (const claim of claims) {
      const known = this.#before.get(claim);
      if (known && isHeldAlike(known, claim)) kept.add(known);
      else if (claim.address !== undefined) this.#waiting.touchTerms(claim.request);
    }
    for (const claim of released) {
      if (kept.has(claim)) continue;
      this.#waiting.touch(claim.address!);
      this.#waiting.touchTerms(claim.request);
    }
  }

  /** Keeps an address of the status, preferably the requested one. */
  #keepCurrent(claim: Claim): void {
    const { requested: byFamily, current } = claim.request;
    const own = current.filter((each) => ipFamilyOf(each) === claim.family);
    const requested = byFamily[claim.family];
    if (requested !== undefined && own.includes(requested)) this.#keep(claim, requested);
    for (const address of own) {
      if (claim.address === undefined) this.#keep(claim, address);
    }
  }

  #removeEntry({ request, claims }: Entry): void {
    this.#entries.delete(request.key);
    this.#byNamespace.delete(request.namespace, request.key);
    for (const claim of claims) {
      this.#waiting.delete(claim);
      if (claim.address !== undefined) this.#inventory.release(claim.address, request);
    }
    if (!request.isForeign) return;
    for (const address of request.current) {
      this.#inventory.unreserve(address, FOREIGN_SERVICE);
      this.#waiting.touch(address);
    }
  }

  #addEntry(request: AddressRequest): Entry {
    const foreign = this.#foreignPart(request);
    const claims = request.isForeign || foreign && request.families.length === 0
      ? []
      : request.families.map((family): Claim => ({ request, family, waitsFor: [] }));
    const entry: Entry = { request, claims, ...(foreign && { foreign }) };
    this.#entries.set(request.key, entry);
    this.#byNamespace.add(request.namespace, request.key);
    for (const address of request.isForeign ? request.current : []) {
      this.#inventory.reserve(address, FOREIGN_SERVICE);
    }
    return entry;
  }

  /** Returns why the status is left alone, if this allocator did not write it. */
  #foreignPart({ isForeign, current, hostnames }: AddressRequest): AddressRefusal | undefined {
    if (isForeign) return undefined;
    const found = current.find((address) => !this.#inventory.poolAt(address)) ?? hostnames[0];
    if (found === undefined) return undefined;
    const message =
      `The status has ${found}, which is in no pool: another controller wrote it, or ` +
      "its range was removed from the pools; it is left alone. Stop that controller or add the " +
      "range again, or remove the entry from the status to get another address";
    return { message };
  }

  #keep(claim: Claim, address: IpAddress): void {
    const pool = this.#inventory.poolAt(address);
    if (!pool || !this.#isPermitted(pool, claim.request)) return;
    if (this.#inventory.conflict(address, claim.request, true) !== undefined) return;
    this.#inventory.hold(address, claim.request);
    claim.address = address;
  }

  /** Whether a claim has what it asks for, rather than anything. */
  #isSatisfied({ request, family, address }: Claim): boolean {
    if (address === undefined || request.invalid !== undefined) return false;
    const requested = request.requested[family];
    if (requested !== undefined) return address === requested;
    return request.pool === undefined || this.#inventory.poolAt(address)!.name === request.pool;
  }

  #isPermitted({ namespaceSelector, serviceSelector }: AddressPool, request: AddressRequest) {
    if (serviceSelector && !matchesLabels(serviceSelector, request.labels)) return false;
    if (!namespaceSelector) return true;
    const labels = this.#namespaces.get(request.namespace);
    // Of an unknown namespace, only the name counts.
    return labels
      ? matchesLabels(namespaceSelector, labels)
      : matchesLabels(namespaceSelector, { [NAMESPACE_NAME_LABEL]: request.namespace }, {
        isPartial: true,
      });
  }

  /** Assigns the requested address to a claim, or lets it wait with its present one. */
  #assign(claim: Claim): void {
    const { request, family } = claim;
    delete claim.refusal;
    if (this.#entries.get(request.key)!.foreign) return;
    this.#keepFormer(claim);
    if (this.#isSatisfied(claim)) return;
    const requested = request.requested[family];
    if (request.invalid !== undefined) claim.refusal = { message: request.invalid };
    else if (requested !== undefined) this.#assignRequested(claim, requested);
    else this.#assignAny(claim);
  }

  /** An older Service of the same update may have kept the address of a claim, and moved on. */
  #keepFormer(claim: Claim): void {
    const before = this.#before.get(claim);
    if (claim.address !== undefined || !before) return;
    this.#keep(claim, before.address!);
    if (claim.address !== undefined) this.#waiting.touchTerms(claim.request);
  }

  #assignRequested(claim: Claim, requested: IpAddress): void {
    const pool = this.#inventory.poolAt(requested);
    if (!pool) {
      claim.refusal = { message: `${requested} is in no pool` };
      return;
    }
    if (!this.#isPermitted(pool, claim.request)) {
      claim.refusal = {
        message: `${requested} is in pool '${pool.name}', which this Service may not use`,
      };
      return;
    }
    const conflict = this.#inventory.conflict(requested, claim.request, false);
    if (conflict === undefined) return this.#move(claim, requested);
    claim.refusal = { message: `${requested} is ${conflict}` };
    this.#waiting.add(claim, [requested]);
  }

  #assignAny(claim: Claim): void {
    const { request, family } = claim;
    const withFamily = this.#pools.filter((pool) => this.#inventory.hasFamily(pool, family));
    const candidates = withFamily.filter((pool) =>
      (request.pool === undefined ? pool.autoAssign : pool.name === request.pool) &&
      this.#isPermitted(pool, request)
    );
    if (candidates.length === 0) {
      const message = request.pool !== undefined
        ? `The Service may not use pool '${shorten(request.pool)}', or the pool has no ${family}`
        : withFamily.length === 0
        ? `No pool has addresses of ${family}`
        : `No pool with addresses of ${family} assigns addresses to this Service by itself`;
      claim.refusal = { kind: "no pool", message };
      return;
    }
    const address = this.#sharedAddress(claim, candidates) ??
      first(candidates, (pool) => this.#inventory.firstFree(pool, family));
    if (address !== undefined) return this.#move(claim, address);
    const names = candidates.map(({ name }) => `'${name}'`).join(", ");
    const which = candidates.length === 1 ? `Pool ${names} has` : `The pools ${names} have`;
    claim.refusal = { kind: "exhausted", message: `${which} no free address of ${family}` };
    const terms = request.sharing ? [request.sharing.text] : [];
    this.#waiting.add(claim, [...candidates.map((pool) => spaceOf(pool, family)), ...terms]);
  }

  /** Finds an address that the Service may share. */
  #sharedAddress(
    { request, family }: Claim,
    candidates: readonly AddressPool[],
  ): IpAddress | undefined {
    if (!request.sharing) return undefined;
    return this.#inventory.sharedBy(request.sharing.text).find((address) =>
      ipFamilyOf(address) === family &&
      candidates.includes(this.#inventory.poolAt(address)!) &&
      this.#inventory.conflict(address, request, false) === undefined
    );
  }

  #move(claim: Claim, address: IpAddress): void {
    if (claim.address !== undefined) {
      this.#inventory.release(claim.address, claim.request);
      this.#waiting.touch(claim.address);
    }
    this.#inventory.hold(address, claim.request);
    this.#waiting.touchTerms(claim.request);
    claim.address = address;
  }
}

/** A Service that has the address too keeps it: two controllers disagree, and traffic goes on. */
const FOREIGN_SERVICE = { by: "a Service of another load balancer class", isFinal: false };

function first<Item, Found>(
  items: readonly Item[],
  find: (item: Item) => Found | undefined,
): Found | undefined {
  for (const item of items) {
    const found = find(item);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Whether a claim has the same address as the one before it, on the same terms for others. */
function isHeldAlike(
  { address, request: before }: Claim,
  { address: now, request }: Claim,
): boolean {
  return address === now && before.sharing?.text === request.sharing?.text &&
    before.ports.join() === request.ports.join();
}

/** The reason why a Service has no address, or not the requested one. */
interface AddressRefusal {
  /** Absent for what the Service asks for by name. */
  readonly kind?: "exhausted" | "no pool";
  /** A sentence for an event on the Service. Names nothing of other namespaces. */
  readonly message: string;
}

/** The address of a Service in one family. */
interface Claim {
  readonly request: AddressRequest;
  readonly family: IpFamily;
  address?: IpAddress;
  refusal?: AddressRefusal;
  /** The changes that can help: a requested address, {@linkcode spaceOf} a pool, or terms of sharing. */
  waitsFor: readonly string[];
}

/** The oldest Service first. */
function compareClaims(
  { request: left, family: one }: Claim,
  { request: right, family: two }: Claim,
): number {
  return compareTexts(left.createdAt, right.createdAt) || compareTexts(left.key, right.key) ||
    compareTexts(one, two);
}

function compareTexts(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

/** Claims without an address, or without the requested one. A change wakes only the claims that it can help. */
class WaitingClaims {
  readonly #waiting = new Map<string, SortedList<Claim>>();
  /** Addresses that may have become free for a claim since the last wake-up. */
  #touched = new Set<IpAddress>();
  /** Terms of sharing of Services that got or gave up an address. */
  #touchedTerms = new Set<string>();

  /** Lets a claim wait. */
  add(claim: Claim, waitsFor: readonly string[]): void {
    claim.waitsFor = waitsFor;
    for (const place of waitsFor) {
      this.#waiting.getOrInsertComputed(place, () => new SortedList(compareClaims)).add(claim);
    }
  }

  /** The claim waits no more. */
  delete(claim: Claim): void {
    for (const place of claim.waitsFor) {
      const others = this.#waiting.get(place)!;
      others.delete(claim);
      if (others.items.length === 0) this.#waiting.delete(place);
    }
    claim.waitsFor = [];
  }

  /** A Service gave up an address, or it is not reserved any more. */
  touch(address: IpAddress): void {
    this.#touched.add(address);
  }

  /** A Service got or gave up an address, which others with the same terms may share. */
  touchTerms({ sharing }: AddressRequest): void {
    if (sharing) this.#touchedTerms.add(sharing.text);
  }

  /** Returns the waiting claims that the touched addresses may help. */
  *wake(inventory: AddressInventory): Generator<Claim, void, void> {
    const [touched, terms] = [this.#touched, this.#touchedTerms];
    this.#touched = new Set();
    this.#touchedTerms = new Set();
    for (const address of touched) {
      yield* this.#waiting.get(address)?.items ?? [];
      const pool = inventory.poolAt(address);
      if (!pool || !inventory.isFree(address)) continue;
      const claim = this.#waiting.get(spaceOf(pool, ipFamilyOf(address)))?.first;
      if (!claim) continue;
      yield claim;
      // The next one in line gets its turn if this one takes another address.
      this.#touched.add(address);
    }
    for (const text of terms) yield* this.#waiting.get(text)?.items ?? [];
  }
}

/** The reason why an address is not assigned. */
interface Reservation {
  /** The user of the address, in words. */
  readonly by: string;
  /** Whether a Service that has the address loses it. */
  readonly isFinal: boolean;
}

/** The Services that have one address. All have the same namespace and terms of sharing. */
interface Holders {
  readonly requests: Map<ServiceKey, AddressRequest>;
  readonly ports: Map<string, ServiceKey>;
}

/** Which addresses of the pools are free, and who has the others. */
class AddressInventory {
  readonly #pools: readonly AddressPool[];
  readonly #spaces = new Map<string, FreeSpace>();
  readonly #holders = new Map<IpAddress, Holders>();
  /** Addresses that are not given, with the reasons. */
  readonly #reserved = new Map<IpAddress, Reservation[]>();
  /** Addresses with several holders or one that shares, by terms of sharing. */
  readonly #shared = new Map<string, SortedList<IpAddress>>();

  constructor(pools: readonly AddressPool[]) {
    this.#pools = pools;
    for (const pool of pools) {
      for (const range of pool.ranges) {
        const key = spaceOf(pool, range.family);
        if (!this.#spaces.has(key)) this.#spaces.set(key, new FreeSpace(pool, range.family));
      }
    }
  }

  /** The pool of an address. */
  poolAt(address: IpAddress): AddressPool | undefined {
    return poolOf(this.#pools, address);
  }

  /** Whether a pool has addresses of a family. */
  hasFamily(pool: AddressPool, family: IpFamily): boolean {
    return this.#spaces.has(spaceOf(pool, family));
  }

  /** Returns the lowest free address of a pool. */
  firstFree(pool: AddressPool, family: IpFamily): IpAddress | undefined {
    return this.#spaces.get(spaceOf(pool, family))?.first((address) => !this.isFree(address));
  }

  /** Whether no Service has an address, and it is not reserved. */
  isFree(address: IpAddress): boolean {
    return !this.#holders.has(address) && !this.#reserved.has(address);
  }

  /** The addresses whose holders have these terms of sharing, in order. */
  sharedBy(terms: string): readonly IpAddress[] {
    return this.#shared.get(terms)?.items ?? [];
  }

  /** The Services that have an address. */
  holdersOf(address: IpAddress): readonly ServiceKey[] {
    return [...this.#holders.get(address)?.requests.keys() ?? []];
  }

  /**
   * Returns why a Service cannot get an address, or cannot keep it, next to the Services that have it, as
   * words that follow `is`.
   */
  conflict(address: IpAddress, request: AddressRequest, isKept: boolean): string | undefined {
    const reserved = this.#reserved.get(address)?.find(({ isFinal }) => isFinal || !isKept);
    if (reserved) return `in use by ${reserved.by}`;
    const holders = this.#holders.get(address);
    if (!holders) return undefined;
    // The holders have the same terms: one of them stands for all.
    const [other] = holders.requests.values();
    const { key, namespace, sharing } = other!;
    if (namespace !== request.namespace) return "taken by a Service of another namespace";
    if (sharing === undefined || request.sharing?.key !== sharing.key) {
      return `taken by ${key}, and the two Services have no sharing key in common`;
    }
    if (request.sharing.text !== sharing.text) {
      return `taken by ${key}: to share it, both Services need externalTrafficPolicy Cluster, or ` +
        "Local with the same selector";
    }
    for (const port of request.ports) {
      const user = holders.ports.get(port);
      if (user !== undefined) return `taken by ${user}, which has port ${port} too`;
    }
    return undefined;
  }

  /** Gives an address to a Service, which has no conflict with it. */
  hold(address: IpAddress, request: AddressRequest): void {
    const holders = this.#holders.getOrInsertComputed(
      address,
      (): Holders => ({ requests: new Map(), ports: new Map() }),
    );
    holders.requests.set(request.key, request);
    for (const port of request.ports) holders.ports.set(port, request.key);
    if (request.sharing === undefined) return;
    this.#shared.getOrInsertComputed(request.sharing.text, () => new SortedList(compareAddresses))
      .add(address);
  }

  /** Takes an address back. `request` is the one with which it was given. */
  release(address: IpAddress, request: AddressRequest): void {
    const holders = this.#holders.get(address)!;
    holders.requests.delete(request.key);
    for (const port of request.ports) holders.ports.delete(port);
    if (holders.requests.size > 0) return;
    this.#holders.delete(address);
    this.#noteFree(address);
    const terms = request.sharing?.text;
    if (terms === undefined) return;
    const shared = this.#shared.get(terms)!;
    shared.delete(address);
    if (shared.items.length === 0) this.#shared.delete(terms);
  }

  /** Keeps an address from being given. */
  reserve(address: IpAddress, reservation: Reservation): void {
    this.#reserved.getOrInsertComputed(address, () => []).push(reservation);
  }

  /** Takes back what {@linkcode reserve} did with the same arguments. */
  unreserve(address: IpAddress, { by }: Reservation): void {
    const known = this.#reserved.get(address)!;
    known.splice(known.findIndex((reservation) => reservation.by === by), 1);
    if (known.length > 0) return;
    this.#reserved.delete(address);
    if (this.isFree(address)) this.#noteFree(address);
  }

  #noteFree(address: IpAddress): void {
    const pool = this.poolAt(address);
    if (pool) this.#spaces.get(spaceOf(pool, ipFamilyOf(address)))!.noteFree(address);
  }
}

function compareAddresses(left: IpAddress, right: IpAddress): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

/**
 * Finds the lowest free address of a pool without a walk through the others: everything below a
 * cursor is taken, but for a list of addresses that became free.
 */
class FreeSpace {
  readonly #family: IpFamily;
  readonly #ranges: readonly AddressRange[];
  readonly #freed = new SortedList<bigint>((left, right) =>
    left < right ? -1 : left > right ? 1 : 0
  );
  #range = 0;
  #cursor: bigint;

  constructor({ ranges }: AddressPool, family: IpFamily) {
    this.#family = family;
    this.#ranges = ranges.filter((range) => range.family === family)
      .toSorted((left, right) => left.first < right.first ? -1 : 1);
    this.#cursor = this.#ranges[0]!.first;
  }

  noteFree(address: IpAddress): void {
    const number = addressNumber(address);
    if (this.#range === this.#ranges.length || number < this.#cursor) this.#freed.add(number);
  }

  first(isTaken: (address: IpAddress) => boolean): IpAddress | undefined {
    for (let number = this.#freed.first; number !== undefined; number = this.#freed.first) {
      const address = addressAt(number, this.#family);
      if (!isTaken(address)) return address;
      this.#freed.delete(number);
    }
    while (this.#range < this.#ranges.length) {
      const address = addressAt(this.#cursor, this.#family);
      if (!isTaken(address)) return address;
      if (this.#cursor < this.#ranges[this.#range]!.last) this.#cursor += 1n;
      else this.#cursor = this.#ranges[++this.#range]?.first ?? this.#cursor;
    }
    return undefined;
  }
}
