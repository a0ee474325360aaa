/**
 * Whatever a dump looks like, reading, planning and rendering it ends with text or with a clear
 * refusal.
 */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { BACKENDS } from "../backends/mod.ts";
import { formatProblem } from "../lib/kube/manifests/manifest_problem.ts";
import { DUMP_SCHEMA } from "../lib/tools/dump/dump_schema.ts";
import { changesReport } from "../lib/tools/changes/changes_view.ts";
import { DumpError, parseDump } from "../lib/tools/dump/read_dump.ts";
import { planDump } from "../lib/tools/offline/plan_node.ts";
import { paintText } from "../lib/tools/report.ts";
import { agesAt, statusAnswer } from "../lib/tools/status/status_answer.ts";
import { relayOptionsOf } from "../lib/config/relay_options.ts";
import { SILENT_LOGGER } from "../lib/log/silent_logger.ts";
import { IP_FAMILIES } from "../lib/net/ip_address.ts";
import { BACKEND_MODES } from "../lib/proxy/backend.ts";
import { createMachine } from "../main.ts";
import { testDump } from "./support/builders/test_dump.ts";

const SOURCE = "the dump";
const DEPENDENCIES = {
  ...await createMachine().loadAll(),
  backends: BACKENDS,
  logger: SILENT_LOGGER,
  commands: { run: () => Promise.reject(new Error("A program was started")) },
};
const RELAY = relayOptionsOf({ uid: 0, env: () => undefined }, { flags: {}, problems: [] });

/** Returns the result for a text: `refused`, or the length of the rendered rules. */
async function fate(text: string): Promise<"refused" | number> {
  try {
    const dump = parseDump(text, SOURCE, DUMP_SCHEMA);
    const options = { families: IP_FAMILIES, relay: RELAY };
    const planned = await planDump(DEPENDENCIES, dump, SOURCE, options);
    for (const problem of planned.problems) assertPrintable(formatProblem(problem));
    let length = 0;
    for (const [family, plan] of planned.plans) {
      await using backend = planned.createBackend(family);
      for (const piece of backend.render(plan)) {
        assertPrintable(piece);
        length += piece.length;
      }
    }
    if (dump.status) assertPrintable(paintText(statusAnswer(dump.status, { time: agesAt(0) })));
    if (dump.changes) assertPrintable(paintText(changesReport(dump.changes)));
    return length;
  } catch (error) {
    assert(error instanceof DumpError, `${error}\n${error instanceof Error ? error.stack : ""}`);
    assertPrintable(error.message);
    assert(error.message.length < 1000, error.message);
    return "refused";
  }
}

/** Nothing that moves a cursor. */
function assertPrintable(text: string): void {
  // deno-lint-ignore no-control-regex
  assertEquals(/[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]/.exec(text), null, JSON.stringify(text));
}

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** The n-th value of a tree, counted in depth, is made another. */
function replaceNth(value: Json, n: number, change: (old: Json) => Json | undefined): Json {
  let count = 0;
  const walk = (inner: Json): Json | undefined => {
    if (count++ === n) return change(inner);
    if (Array.isArray(inner)) return inner.map(walk).filter((each) => each !== undefined);
    if (typeof inner !== "object" || inner === null) return inner;
    const entries = Object.entries(inner).map(([name, each]) => [name, walk(each)] as const);
    return Object.fromEntries(entries.filter(([, each]) => each !== undefined)) as Json;
  };
  return walk(value) ?? null;
}

function sizeOf(value: Json): number {
  if (typeof value !== "object" || value === null) return 1;
  return Object.values(value).reduce<number>((sum, inner) => sum + sizeOf(inner as Json), 1);
}

const WRONG_VALUES: readonly Json[] = [
  ...[null, true, 0, -1, 1e400, 65_536, 2 ** 53, 0.5, "", "\u001b[2J", "\u009b31m", "\u202eabc"],
  ...["__proto__", "constructor", "10.0.0.1", "::1", "10.0.0.0/8", "None", "primary", "Local"],
  ...["a\nb", "x".repeat(100_000), "ClientIP", "SCTP", [], {}, [[]], [null], ["\u0000"]],
  { toString: 1, valueOf: null },
  JSON.parse('{"__proto__": {"name": "x"}, "constructor": 1}'),
];

const mutation = fc.record({
  at: fc.nat(),
  value: fc.oneof(fc.constantFrom(...WRONG_VALUES), fc.jsonValue() as fc.Arbitrary<Json>),
  isRemoved: fc.boolean(),
});

Deno.test("a dump with any values changed is rendered or refused, in every mode", async () => {
  const fates = new Map<string, number>();
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...BACKEND_MODES),
      fc.array(mutation, { minLength: 1, maxLength: 3 }),
      async (mode, mutations) => {
        let dump: Json = JSON.parse(testDump({ mode }));
        for (const { at, value, isRemoved } of mutations) {
          dump = replaceNth(dump, at % sizeOf(dump), () => isRemoved ? undefined : value);
        }
        const what = await fate(JSON.stringify(dump)) === "refused" ? "refused" : "rendered";
        fates.set(what, (fates.get(what) ?? 0) + 1);
      },
    ),
    { numRuns: 1000 },
  );
  // Otherwise it would have tried one of the two only.
  for (const what of ["refused", "rendered"]) assert((fates.get(what) ?? 0) > 50, what);
});

Deno.test("a dump that is cut off anywhere is refused", async () => {
  const text = testDump();
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 0, max: text.length - 1 }), async (length) => {
      assertEquals(await fate(text.slice(0, length)), "refused");
    }),
    { numRuns: 300 },
  );
});

Deno.test("a dump with letters changed is rendered or refused", async () => {
  const text = testDump();
  await fc.assert(
    fc.asyncProperty(
      fc.nat({ max: text.length - 1 }),
      fc.string({ unit: "binary", minLength: 0, maxLength: 4 }),
      async (at, letters) => {
        await fate(text.slice(0, at) + letters + text.slice(at + letters.length));
      },
    ),
    { numRuns: 1000 },
  );
});

Deno.test("any text is refused", async () => {
  await fc.assert(
    fc.asyncProperty(fc.oneof(fc.string(), fc.json()), async (text) => {
      assertEquals(await fate(text), "refused");
    }),
    { numRuns: 500 },
  );
});

Deno.test("a dump is rendered in every mode as it is", async () => {
  for (const mode of BACKEND_MODES) assert(Number(await fate(testDump({ mode }))) > 20, mode);
});
