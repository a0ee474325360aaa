import { assert, assertEquals, assertMatch } from "@std/assert";
import { systemClock } from "../../os/clock.ts";
import { jsonPieces } from "./json_stream.ts";

Deno.test("jsonPieces() writes the same text as JSON.stringify()", async () => {
  const values: readonly unknown[] = [
    null,
    7,
    "text",
    [],
    {},
    [[[[[[1, { a: undefined }]]]]]],
    { a: undefined, b: [undefined, null, { c: { d: { e: { f: [1, 2] } } } }], 'quo"te': "\n" },
  ];
  for (const value of values) {
    assertEquals((await Array.fromAsync(jsonPieces(value))).join(""), JSON.stringify(value));
  }
});

Deno.test("jsonPieces() escapes what a terminal would obey, and keeps the value", async () => {
  const value = { "\u202e": ["\u009b2J", { a: { b: { c: { d: "\x1b\u2066\u{e0001}" } } } }] };
  const text = (await Array.fromAsync(jsonPieces(value))).join("");
  assertMatch(text, /^[\x20-\x7e]+$/);
  assertEquals(JSON.parse(text), value);
});

Deno.test("jsonPieces() yields after each slow piece", async () => {
  const services = Array.from({ length: 10_000 }, (_, index) => ({ name: `ns/${index}`, index }));
  const value = { families: [{ services }] };
  for (
    const { pieceMs, piecesPerTurn } of [{ pieceMs: 5, piecesPerTurn: 1 }, {
      pieceMs: 2,
      piecesPerTurn: 2,
    }]
  ) {
    let [turns, nowMs] = [0, 0];
    const clock = {
      ...systemClock,
      now: () => nowMs,
      yieldToEventLoop: () => {
        turns++;
        return Promise.resolve();
      },
    };
    const pieces: string[] = [];
    for await (const piece of jsonPieces(value, { clock })) {
      pieces.push(piece);
      nowMs += pieceMs;
    }
    assertEquals(JSON.parse(pieces.join("")), value);
    assert(pieces.length > 4, `${pieces.length} pieces`);
    assertEquals(turns, Math.floor((pieces.length - 1) / piecesPerTurn));
    for (const piece of pieces) assert(piece.length < 70_000, String(piece.length));
  }
});

Deno.test("jsonPieces() asks for an entry of a list that can be iterated when it is its turn", async () => {
  let made = 0;
  function* entries() {
    for (; made < 10_000; made++) yield { name: `service-${made}`, inner: { deep: [made] } };
  }
  const clock = { ...systemClock, yieldToEventLoop: () => Promise.resolve() };
  const ahead: number[] = [];
  let text = "";
  for await (const piece of jsonPieces({ a: { b: { c: { d: entries() } } } }, { clock })) {
    text += piece;
    ahead.push(made);
  }
  assertEquals(JSON.parse(text).a.b.c.d.length, 10_000);
  assert(ahead[0]! < 3000, `${ahead[0]} entries were made for the first piece`);
});
