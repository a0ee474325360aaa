import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { EntryId } from "./entry_id.ts";
import type { EndpointOrder, Entry } from "./entry.ts";
import type { NftablesLayout } from "./layout.ts";
import { SlotAllocator, type Slots } from "./slots.ts";

/**
 * Returns one text for each numbering of endpoints, and each set of slots, that differs from that
 * of a fresh process with the same plan. In short steps.
 */
export function* orderTexts(
  entries: Iterable<Entry>,
  layout: NftablesLayout,
): Generator<void, readonly string[]> {
  const all: string[] = [];
  const seen = new Set<Slots>();
  for (const { id, main, local, plan, slots } of entries) {
    yield;
    if (slots && !seen.has(slots)) {
      seen.add(slots);
      if (!isUsual(slots, plan)) all.push(slotText(plan.key, slots));
    }
    const usual = layout.orderedEntry(id, undefined);
    if (usual && isSame(usual.main, main) && isSame(usual.local, local)) continue;
    const text = (list: Entry["main"]) => list.map(({ key }) => key).join(" ");
    all.push(`${id} = ${text(main)} / ${text(local)}`);
  }
  return all;
}

/** Parses a text of {@linkcode orderTexts} for an entry. */
export function readOrder(text: string): readonly [EntryId, EndpointOrder] {
  const [id = "", lists = ""] = text.split(" = ", 2);
  const [main = [], local = []] = lists.split(" / ").map((list) =>
    list.split(" ").filter((key) => key !== "").map((key) => ({ key: key as EndpointKey }))
  );
  return [id as EntryId, { main, local }];
}

/** Whether a ServicePort would have the same slots if it were the only one. */
function isUsual(slots: Slots, plan: ServicePlan): boolean {
  const usual = new SlotAllocator().slotsOf(plan);
  return slots.size === usual.size && [...slots].every(([key, slot]) => usual.get(key) === slot);
}

const SLOTS = "slots ";

function slotText(key: ServicePortKey, slots: Slots): string {
  return `${SLOTS}${key} = ${[...slots].map(([key, slot]) => `${key} ${slot}`).join(" ")}`;
}

/** Parses a text of {@linkcode orderTexts} for slots; empty for other texts. */
export function readSlots(text: string): readonly (readonly [ServicePortKey, Slots])[] {
  if (!text.startsWith(SLOTS)) return [];
  const [key = "", list = ""] = text.slice(SLOTS.length).split(" = ", 2);
  const slots = [...list.matchAll(/(\S+) (\d+)/g)]
    .map(([, endpoint = "", slot]) => [endpoint as EndpointKey, Number(slot)] as const);
  return [[key as ServicePortKey, new Map(slots)]];
}

function isSame(left: Entry["main"], right: Entry["main"]): boolean {
  return left.length === right.length && left.every(({ key }, index) => key === right[index]?.key);
}
