// @ts-types="./mod.d.ts"
export {
  assert,
  assertAlmostEquals,
  assertEquals,
  assertExists,
  assertInstanceOf,
  AssertionError,
  assertMatch,
  assertNotEquals,
  assertObjectMatch,
  assertRejects,
  assertStrictEquals,
  assertStringIncludes,
  assertThrows,
  equal,
  fail,
} from "npm:deno-std@1.4.0/assert/mod.js";
