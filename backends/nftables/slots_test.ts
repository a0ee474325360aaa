import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { testEndpoint } from "../../tests/support/service_plans.ts";
import { SLOT_BIT, slotsOf, slotText } from "./slots.ts";

const ONE = testEndpoint("10.0.0.1:80");
const TWO = testEndpoint("10.0.0.2:80");

Deno.test("slotsOf() gives an endpoint the same slot, whoever else is there", () => {
  assertEquals(slotsOf([ONE, TWO]).get(TWO.key), slotsOf([TWO]).get(TWO.key));
  assertNotEquals(slotsOf([ONE, TWO]).get(ONE.key), slotsOf([ONE, TWO]).get(TWO.key));
  assertEquals(slotsOf([ONE, ONE]).size, 1);
});

Deno.test("slotsOf() gives each of many endpoints one of its own, with the bit that tells slots", () => {
  const many = Array.from(
    { length: 5_000 },
    (_, index) => testEndpoint(`10.0.${index >> 8}.${index & 255}:8080`),
  );
  const slots = [...slotsOf(many).values()];
  assertEquals(new Set(slots).size, many.length);
  assert(slots.every((slot) => Number(slot) >= SLOT_BIT && slot === slotText(Number(slot))));
});
