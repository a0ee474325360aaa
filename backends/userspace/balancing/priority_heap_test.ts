import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { type HeapItem, PriorityHeap } from "./priority_heap.ts";

/** An item that counts how often it is compared. */
class CountedItem implements HeapItem {
  static reads = 0;
  turn = 0;
  index = 0;
  #priority: number;

  constructor(priority: number) {
    this.#priority = priority;
  }

  get priority(): number {
    CountedItem.reads++;
    return this.#priority;
  }

  set priority(value: number) {
    this.#priority = value;
  }
}

Deno.test("PriorityHeap has the item with the lowest priority first, whatever moves", () => {
  const moves = fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 20 })), { maxLength: 200 });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 40 }), moves, (count, list) => {
      const items = Array.from(
        { length: count },
        (_, turn): HeapItem => ({ priority: 10, turn, index: 0 }),
      );
      const heap = new PriorityHeap(items);
      for (const [pick, priority] of list) {
        const item = items[pick % count]!;
        item.priority = priority;
        heap.moved(item);
        const [first] = items.toSorted((left, right) =>
          left.priority - right.priority || left.turn - right.turn
        );
        assertEquals(heap.first, first);
      }
    }),
    { seed: 18 },
  );
});

Deno.test("PriorityHeap.moved() compares no more than the depth of 4,096 items demands", () => {
  const items = Array.from({ length: 4096 }, (_, priority) => new CountedItem(priority));
  const heap = new PriorityHeap(items);
  CountedItem.reads = 0;
  const first = heap.first!;
  first.priority = 1e6;
  heap.moved(first);
  // Two comparisons at each of twelve levels, each of which reads up to four times.
  assert(CountedItem.reads <= 12 * 2 * 4 + 4, String(CountedItem.reads));
});

Deno.test("PriorityHeap keeps its order while items are added and deleted", () => {
  const steps = fc.array(fc.tuple(fc.boolean(), fc.nat(), fc.integer({ min: 0, max: 20 })));
  fc.assert(
    fc.property(steps, (list) => {
      const heap = new PriorityHeap<HeapItem>([]);
      const present: HeapItem[] = [];
      for (const [turn, [adds, pick, priority]] of list.entries()) {
        if (adds || present.length === 0) {
          const item = { priority, turn, index: 0 };
          present.push(item);
          heap.add(item);
        } else heap.delete(present.splice(pick % present.length, 1)[0]!);
        const [first] = present.toSorted((left, right) =>
          left.priority - right.priority || left.turn - right.turn
        );
        assertEquals(heap.first, first);
      }
    }),
  );
});
