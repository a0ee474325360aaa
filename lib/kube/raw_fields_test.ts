import { assertEquals, assertThrows } from "@std/assert";
import {
  optionalBoolean,
  optionalList,
  optionalNumber,
  optionalObject,
  optionalString,
  present,
  requiredNumber,
  requiredObject,
  requiredString,
  ShapeError,
  toFields,
  toText,
} from "./raw_fields.ts";

const RAW = { text: "a", empty: "", number: 1, yes: true, nothing: null, list: ["a"], object: {} };

Deno.test("optional readers give undefined for what is absent or null", () => {
  for (const name of ["nothing", "absent"]) {
    const read = () => "read";
    assertEquals([
      optionalString(RAW, name),
      optionalNumber(RAW, name),
      optionalBoolean(RAW, name),
      optionalObject(RAW, name, read),
      optionalList(RAW, name, read),
    ], [undefined, undefined, undefined, undefined, undefined]);
  }
});

for (
  const [name, read] of [
    ["optionalString()", () => optionalString(RAW, "number")],
    ["optionalNumber()", () => optionalNumber(RAW, "text")],
    ["optionalBoolean()", () => optionalBoolean(RAW, "text")],
    ["optionalObject()", () => optionalObject(RAW, "list", (fields) => fields)],
    ["optionalList()", () => optionalList(RAW, "object", toText)],
    ["requiredString()", () => requiredString(RAW, "empty")],
    ["requiredNumber()", () => requiredNumber(RAW, "nothing")],
    ["requiredObject()", () => requiredObject(RAW, "absent", (fields) => fields)],
    ["toFields()", () => toFields([])],
    ["toText()", () => toText(1)],
  ] as const
) {
  Deno.test(`${name} throws a ShapeError for another type`, () => {
    assertThrows(read, ShapeError);
  });
}

Deno.test("ShapeError names the path, the value and what is wanted", () => {
  const raw = { spec: { ports: [{ port: 80 }, { port: "81" }] } };
  const error = assertThrows(
    () =>
      requiredObject(
        raw,
        "spec",
        (spec) => optionalList(spec, "ports", (entry) => requiredNumber(toFields(entry), "port")),
      ),
    ShapeError,
  );
  assertEquals(error.message, `'spec.ports[1].port' is "81": it has to be a number`);
});

Deno.test("ShapeError joins the indexes of nested lists", () => {
  const raw = { rows: [[1], [2, "x"]] };
  const error = assertThrows(
    () =>
      optionalList(
        raw,
        "rows",
        (row) => optionalList({ row }, "row", (entry) => requiredNumber({ entry }, "entry")),
      ),
    ShapeError,
  );
  assertEquals(error.path, "rows[1].row[1].entry");
});

Deno.test("present() leaves out what is undefined, and keeps what is falsy", () => {
  const object = present({ a: undefined, b: 0, c: "", d: false, e: null });
  assertEquals(object, { b: 0, c: "", d: false, e: null });
  assertEquals(Object.keys(object), ["b", "c", "d", "e"]);
});
