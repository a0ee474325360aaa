import { type IpAddress, type IpFamily, ipFamilyOf } from "../net/ip_address.ts";
import type { AddressInventory } from "./address_inventory.ts";
import { spaceOf } from "./address_pool.ts";
import type { AddressRequest } from "./address_request.ts";
import { SortedList } from "./sorted_list.ts";

/** The reason why a Service has no address, or not the requested one. */
export interface AddressRefusal {
  /** Absent for what the Service asks for by name. */
  readonly kind?: "exhausted" | "no pool";
  /** A sentence for an event on the Service. Names nothing of other namespaces. */
  readonly message: string;
}

/** The address of a Service in one family. */
export interface Claim {
  readonly request: AddressRequest;
  readonly family: IpFamily;
  address?: IpAddress;
  refusal?: AddressRefusal;
  /** The changes that can help: a requested address, {@linkcode spaceOf} a pool, or terms of sharing. */
  waitsFor: readonly string[];
}

/** The oldest Service first. */
export function compareClaims(
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
export class WaitingClaims {
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
