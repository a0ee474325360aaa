import { assert, assertEquals } from "@std/assert";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { BLOCK_MASK, LOCAL_BIT, MAX_SLOTS, SLOT_BIT, SlotAllocator, type Slots } from "./slots.ts";

const ONE = "10.0.0.1:80" as EndpointKey;
const TWO = "10.0.0.2:80" as EndpointKey;

function plan(name: string, ...to: readonly string[]) {
  return testServicePlan({ name, to });
}

function manyEndpoints(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `10.0.${index >> 8}.${index & 255}:8080`);
}

/** The block of slots; there has to be one only. */
function blockOf(slots: Slots): number {
  const blocks = new Set([...slots.values()].map((slot) => (slot & BLOCK_MASK) >>> 0));
  assertEquals(blocks.size, 1);
  return [...blocks][0]!;
}

Deno.test("slotsOf() gives each of 20,000 ServicePorts a block of its own", () => {
  const slots = new SlotAllocator();
  const { internal: verdict } = plan("web", ONE);
  const verdicts = { internal: verdict, external: verdict, externalFromCluster: verdict };
  const name = (number: number) => `ns/web-${number}/TCP` as ServicePortKey;
  const blocks = new Set<number>();
  for (let number = 0; number < 20_000; number++) {
    blocks.add(blockOf(slots.slotsOf({ ...verdicts, key: name(number) })));
  }
  assertEquals(blocks.size, 20_000);
  const released = slots.slotsOf({ ...verdicts, key: name(7) });
  slots.release(name(7));
  assertEquals(slots.slotsOf({ ...verdicts, key: name(7) }), released);
});

Deno.test("slotsOf() lets ServicePorts share a block if none is free", () => {
  const slots = new SlotAllocator();
  const usual = blockOf(slots.slotsOf(plan("web", ONE)));
  const others = Array.from({ length: 64 }, (_, index) => {
    const key = `ns/other-${index}/TCP` as ServicePortKey;
    const block = SLOT_BIT + (usual - SLOT_BIT + index * MAX_SLOTS) % LOCAL_BIT;
    slots.adopt(key, new Map([[ONE, block + 1]]));
    return key;
  });
  slots.release(plan("web").key);
  slots.adopt(others[0]!, new Map([[ONE, usual + 1]]));
  const web = slots.slotsOf(plan("web", ONE));
  assertEquals(blockOf(web), usual);
  slots.release(others[0]!);
  assertEquals(slots.slotsOf(plan("web", ONE)), web);
  slots.adopt(others[0]!, new Map([[ONE, usual + 1]]));
  assertEquals(slots.has(others[0]!), false, "it is still taken");
  slots.release(plan("web").key);
  slots.adopt(others[0]!, new Map([[ONE, usual + 1]]));
  assertEquals(slots.has(others[0]!), true);
});

Deno.test("slotsOf() keeps the slots of endpoints that stay", () => {
  const slots = new SlotAllocator();
  const many = manyEndpoints(3_000);
  const before = slots.slotsOf(plan("web", ...many));
  const half = many.filter((_, index) => index % 2 === 0);
  const after = slots.slotsOf(plan("web", ...half, ONE));
  for (const key of half as EndpointKey[]) assertEquals(after.get(key), before.get(key));
  assertEquals(blockOf(after), blockOf(before));
  assertEquals(after.size, half.length + 1);
  const fresh = new SlotAllocator().slotsOf(plan("web", ...half, ONE));
  assert([...fresh].some(([key, slot]) => after.get(key) !== slot), "some hashes have met");
});

Deno.test("adopt() skips invalid slots, those of another ServicePort, and better known ones", () => {
  const slots = new SlotAllocator();
  const usual = new SlotAllocator().slotsOf(plan("web", ONE, TWO));
  const [one = 0, two = 0] = [usual.get(ONE), usual.get(TWO)];
  const web = plan("web").key;
  slots.adopt(web, new Map());
  assertEquals(slots.has(web), false);
  for (const bad of [one - SLOT_BIT, one + LOCAL_BIT]) {
    slots.adopt(web, new Map([[ONE, bad]]));
    assertEquals(slots.has(web), false, bad.toString(16));
  }
  slots.adopt(web, new Map([[ONE, one], [TWO, one], ["10.0.0.3:80" as EndpointKey, two]]));
  assertEquals(slots.slotsOf(plan("web", ONE, TWO)).get(ONE), one);
  slots.adopt(web, new Map([[ONE, one + MAX_SLOTS]]));
  assertEquals(slots.slotsOf(plan("web", ONE, TWO)).get(ONE), one);
  slots.adopt(plan("other").key, new Map([[ONE, one]]));
  assertEquals(slots.has(plan("other").key), false);
});
