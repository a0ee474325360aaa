/**
 * Numbers by which the endpoints of a sticky Service are remembered. Pure.
 *
 * @module
 */
import type { Endpoint, EndpointKey } from "../../lib/proxy/endpoint.ts";

/** Every slot has this bit, by which the chain of postrouting knows that a priority is one. */
export const SLOT_BIT = 0x8000_0000;

/**
 * A slot for each endpoint, as nft writes a number. An endpoint has the same one in every process
 * and beside any others (but for one in 2³¹, where two meet), so that clients stay with it.
 */
export function slotsOf(endpoints: Iterable<Endpoint>): ReadonlyMap<EndpointKey, string> {
  const slots = new Map<EndpointKey, string>();
  const taken = new Set<number>();
  for (const { key } of endpoints) {
    if (slots.has(key)) continue;
    let slot = hash(key);
    while (taken.has(slot)) slot = ((slot + 1) | SLOT_BIT) >>> 0;
    taken.add(slot);
    slots.set(key, slotText(slot));
  }
  return slots;
}

/** A slot as it is written, and as a reading of the table has to come to. */
export function slotText(slot: number): string {
  return `0x${slot.toString(16)}`;
}

/**
 * The number of a name, as nft writes it. Where two names have the same, in one of 2³¹, the kernel
 * refuses the second.
 */
export function nameNumber(name: string): string {
  return slotText(hash(name));
}

/** FNV-1a. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    value = Math.imul(value ^ text.charCodeAt(index), 0x01000193);
  }
  return (value | SLOT_BIT) >>> 0;
}
