import { assertThrows } from "@std/assert";
import { assertNever } from "./verdict.ts";

Deno.test("assertNever() throws for a value that the compiler let through, and quotes it", () => {
  const value: never = { kind: "unheard-of" } as never;
  assertThrows(() => assertNever(value), TypeError, "unheard-of");
});
