/**
 * Numbers that represent the endpoints of a Service with affinity. Pure except for their own state.
 *
 * A packet carries one number of 32 bits from one look-up to the next, its priority. The memory
 * needs two numbers, the ServicePort of the client and its endpoint. A slot holds both:
 *
 * ```
 *  bit 31   1: distinguishes priorities of kube-relay from those of other programs
 *  bit 30   0: only set in keys of endpoints for clients from outside, see LOCAL_BIT
 *  29 … 15  the block: one ServicePort
 *  14 … 0   one endpoint of it
 * ```
 *
 * @module
 */
import { fnv1a } from "../../lib/net/text_hash.ts";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";

/** Every slot has this bit, by which the chain of postrouting knows that a priority is one. */
export const SLOT_BIT = 0x8000_0000;

/** Set where a slot stands for an endpoint that clients from outside may have under policy Local. */
export const LOCAL_BIT = 0x4000_0000;

/** Endpoints that a ServicePort with session affinity may have: as many as a list may. */
export const MAX_SLOTS = 2 ** 15;

/** ServicePorts of one IP family that can have a block of their own. */
const MAX_BLOCKS = 2 ** 15;

/**
 * The number of attempts from a hash on. It bounds the cost, whatever the number of ServicePorts.
 */
const MAX_TRIES = 64;

/** The part of a slot that names the ServicePort. */
export const BLOCK_MASK = (SLOT_BIT | ((MAX_BLOCKS - 1) * MAX_SLOTS)) >>> 0;

/** The slots of a ServicePort's endpoints. Never changes. */
export type Slots = ReadonlyMap<EndpointKey, number>;

/** The block of a ServicePort and its slots. */
interface Block {
  readonly number: number;
  readonly slots: Slots;
  /** The plan that the slots were assigned for; `undefined` = in another process. */
  readonly plan: StickyPlan | undefined;
}

/** The part of a plan that determines the slots. */
type StickyPlan = Pick<
  ServicePlan,
  "external" | "externalFromCluster" | "internal" | "key"
>;

/**
 * Gives each ServicePort a unique block, and each of its endpoints a unique slot. Both start from
 * hashes of names, so most are equal in every process; on a collision, the later one takes the next
 * free number. An assignment lasts as long as the ServicePort or endpoint.
 *
 * If nearly all blocks are in use, some are shared: a client of both ServicePorts is then
 * remembered only for the one it used last.
 */
export class SlotAllocator {
  readonly #blocks = new Map<ServicePortKey, Block>();
  /** The number of ServicePorts of each block. */
  readonly #users = new Map<number, number>();

  /** Whether a ServicePort has a block. */
  has(key: ServicePortKey): boolean {
    return this.#blocks.has(key);
  }

  /** The slots of all endpoints that a ServicePort may send packets to. */
  slotsOf(plan: StickyPlan): Slots {
    const { key } = plan;
    const block = this.#blocks.get(key);
    if (block?.plan === plan) return block.slots;
    const number = block?.number ?? this.#freeBlock((fnv1a(key) >>> 0) % MAX_BLOCKS);
    const slots = slotsIn(number, pickableEndpoints(plan), block?.slots);
    this.#set(key, { number, slots, plan });
    return slots;
  }

  /**
   * Gives a ServicePort the slots that it had in another process, unless it has some already. What
   * belongs to another ServicePort or is no slot is skipped.
   */
  adopt(key: ServicePortKey, found: Slots): void {
    if (this.#blocks.has(key)) return;
    const [first] = found.values();
    if (first === undefined) return;
    const number = blockOf(first);
    if (this.#users.has(number)) return;
    const slots = new Map<EndpointKey, number>();
    const taken = new Set<number>();
    for (const [endpoint, slot] of found) {
      if (blockOf(slot) !== number || slot !== slotIn(number, slot) || taken.has(slot)) continue;
      taken.add(slot);
      slots.set(endpoint, slot);
    }
    if (slots.size > 0) this.#set(key, { number, slots, plan: undefined });
  }

  /** A ServicePort has no clients to remember any more. */
  release(key: ServicePortKey): void {
    const block = this.#blocks.get(key);
    if (block === undefined) return;
    this.#blocks.delete(key);
    const users = (this.#users.get(block.number) ?? 0) - 1;
    if (users > 0) this.#users.set(block.number, users);
    else this.#users.delete(block.number);
  }

  #set(key: ServicePortKey, block: Block): void {
    if (!this.#blocks.has(key)) {
      this.#users.set(block.number, (this.#users.get(block.number) ?? 0) + 1);
    }
    this.#blocks.set(key, block);
  }

  #freeBlock(start: number): number {
    return freeNear(start, MAX_BLOCKS, (number) => this.#users.has(number)) ?? start;
  }
}

/** Every endpoint that some verdict may pick, once. */
export function pickableEndpoints(
  { internal, external, externalFromCluster }: StickyPlan,
): ReadonlySet<EndpointKey> {
  const lists = [internal, external, externalFromCluster]
    .map((verdict) => verdict.kind === "forward" ? verdict.endpoints : []);
  return new Set([...new Set(lists)].flatMap((list) => list.map(({ key }) => key)));
}

function slotsIn(
  block: number,
  endpoints: ReadonlySet<EndpointKey>,
  previous: Slots = new Map(),
): Slots {
  const slots = new Map([...previous].filter(([key]) => endpoints.has(key)));
  const taken = new Set([...slots.values()].map((slot) => slot % MAX_SLOTS));
  const isTaken = (number: number) => taken.has(number);
  let lowest = 0;
  for (const key of endpoints) {
    if (slots.has(key)) continue;
    let number = freeNear((fnv1a(key) >>> 0) % MAX_SLOTS, MAX_SLOTS, isTaken);
    if (number === undefined) {
      while (isTaken(lowest)) lowest++;
      number = lowest;
    }
    taken.add(number);
    slots.set(key, slotIn(block, number));
  }
  return slots;
}

function freeNear(
  start: number,
  count: number,
  isTaken: (number: number) => boolean,
): number | undefined {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const number = (start + tries) % count;
    if (!isTaken(number)) return number;
  }
  return undefined;
}

/** The slot of a block that ends with the bits of this number. */
function slotIn(block: number, number: number): number {
  return SLOT_BIT + block * MAX_SLOTS + number % MAX_SLOTS;
}

function blockOf(slot: number): number {
  return Math.floor((slot % LOCAL_BIT) / MAX_SLOTS);
}

/** A slot in its written form, in which a reading returns it. */
export function slotText(slot: number): string {
  return `0x${slot.toString(16)}`;
}

/**
 * The number of a name, as nft writes it. Two of the few dozen names have the same in one of 2³¹ pairs;
 * nothing looks for that.
 */
export function nameNumber(name: string): string {
  return slotText((fnv1a(name) | SLOT_BIT) >>> 0);
}
