import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import type { Part } from "./policy_layout.ts";
import { RefusedParts } from "./refused_parts.ts";

Deno.test("RefusedParts forgets the oldest where there are too many, and keeps what is refused again", () => {
  const parts = new RefusedParts(new FakeClock());
  for (let index = 0; index < 1_000; index++) parts.refuse(`part ${index}` as Part, "no");
  parts.refuse("part 0" as Part, "no");
  assertEquals(parts.all.size, 1_000);

  parts.refuse("part 1000" as Part, "no");

  const { all } = parts;
  assertEquals([all.size, all.has("part 0" as Part), all.has("part 1" as Part)], [
    1_000,
    true,
    false,
  ]);
});
