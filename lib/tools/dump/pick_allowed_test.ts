import { assertEquals } from "@std/assert";
import * as v from "valibot";
import {
  fields,
  foreignText,
  list,
  number,
  optional,
  ownText,
  plainText,
  table,
} from "./dump_value.ts";
import { pickAllowed } from "./pick_allowed.ts";

const SCHEMA = fields({
  name: ownText,
  said: optional(foreignText),
  ports: optional(list(fields({ port: number }))),
  counts: optional(table(number)),
});

/** Returns a value as it appears in a dump. */
function written(value: unknown): unknown {
  return JSON.parse(JSON.stringify(pickAllowed(value, SCHEMA)));
}

Deno.test("pickAllowed() leaves out every field that is not named, at any depth", () => {
  const value = {
    name: "web",
    token: "secret",
    ports: [{ port: 80, token: "secret" }],
    counts: { a: 1 },
  };
  assertEquals(written(value), {
    name: "web",
    ports: [{ port: 80 }],
    counts: { a: 1 },
  });
});

Deno.test("pickAllowed() leaves out objects if the schema has a value, and kinds it doesn't know", () => {
  assertEquals(written({ name: { token: "secret" }, entry: { kind: "c", one: 1 } }), {});
  assertEquals(written({ name: "web", ports: { token: "secret" }, counts: { a: { b: 1 } } }), {
    name: "web",
    counts: {},
  });
});

Deno.test("pickAllowed() removes secrets from text of other programs, and from no other text", () => {
  const text = "https://me:secret@192.0.2.1";
  assertEquals(written({ name: text, said: text }), {
    name: text,
    said: "https://[redacted]@192.0.2.1",
  });
});

Deno.test("pickAllowed() writes no text that reading refuses", () => {
  const odd = "a\u001b[2Jb\u202ec\u200bd\ne";
  for (const schema of [plainText, ownText]) {
    const picked = pickAllowed({ zone: odd }, fields({ zone: schema }));
    assertEquals(picked, { zone: "a\\u001b[2Jb\\u202ec\\u200bd\\u000ae" });
    v.assert(fields({ zone: schema }), picked);
  }
});

Deno.test("pickAllowed() makes a long list only while it is walked", () => {
  let made = 0;
  function* ports() {
    for (let port = 0; port < 1000; port++) {
      made++;
      yield { port, token: "secret" };
    }
  }
  const picked = pickAllowed({ name: "web", ports: ports() }, SCHEMA) as {
    readonly ports: Iterable<unknown>;
  };
  assertEquals(made, 0);
  for (const port of picked.ports) {
    assertEquals(port, { port: 0 });
    break;
  }
  assertEquals(made, 1);
});
