/**
 * The text form of how endpoints are numbered and by which slots clients remember them, for dumps and
 * for comparisons by another process. Pure.
 *
 * @module
 */
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { EntryId } from "./entry_id.ts";
import type { EndpointOrder, Entry } from "./entry.ts";
import type { NftablesLayout } from "./layout.ts";
import { SlotAllocator, type Slots } from "./slots.ts";

/** Entries between two pauses: well under a millisecond. */
const SLICE_SIZE = 512;

/**
 * How the endpoints of entries are numbered, and by which slots they are remembered, where that is not
 * as in a process that begins with the plan: one text each. In short steps.
 */
export function* orderTexts(
  entries: Iterable<Entry>,
  layout: NftablesLayout,
): Generator<void, readonly string[]> {
  const all: string[] = [];
  const told = new Set<Slots>();
  let seen = 0;
  for (const { id, main, local, plan, slots } of entries) {
    if (++seen % SLICE_SIZE === 0) yield;
    if (slots && !told.has(slots)) {
      told.add(slots);
      if (!isUsual(slots, plan)) all.push(slotWords(plan.key, slots));
    }
    const usual = layout.orderedEntry(id, undefined);
    if (usual && isSame(usual.main, main) && isSame(usual.local, local)) continue;
    const words = (list: Entry["main"]) => list.map(({ key }) => key).join(" ");
    all.push(`${id} = ${words(main)} / ${words(local)}`);
  }
  return all;
}

/** What {@linkcode orderTexts} says of the endpoints of an entry. */
export function readOrder(words: string): readonly [EntryId, EndpointOrder] {
  const [id = "", lists = ""] = words.split(" = ", 2);
  const [main = [], local = []] = lists.split(" / ").map((list) =>
    list.split(" ").filter((key) => key !== "").map((key) => ({ key: key as EndpointKey }))
  );
  return [id as EntryId, { main, local }];
}

/** Whether a ServicePort that is alone would have the same slots. */
function isUsual(slots: Slots, plan: ServicePlan): boolean {
  const usual = new SlotAllocator().slotsOf(plan);
  return slots.size === usual.size && [...slots].every(([key, slot]) => usual.get(key) === slot);
}

const SLOTS = "slots ";

function slotWords(key: ServicePortKey, slots: Slots): string {
  return `${SLOTS}${key} = ${[...slots].map(([key, slot]) => `${key} ${slot}`).join(" ")}`;
}

/** What {@linkcode orderTexts} says of the slots of a ServicePort; empty for other texts. */
export function readSlots(words: string): readonly (readonly [ServicePortKey, Slots])[] {
  if (!words.startsWith(SLOTS)) return [];
  const [key = "", list = ""] = words.slice(SLOTS.length).split(" = ", 2);
  const slots = [...list.matchAll(/(\S+) (\d+)/g)]
    .map(([, endpoint = "", slot]) => [endpoint as EndpointKey, Number(slot)] as const);
  return [[key as ServicePortKey, new Map(slots)]];
}

function isSame(left: Entry["main"], right: Entry["main"]): boolean {
  return left.length === right.length && left.every(({ key }, index) => key === right[index]?.key);
}
