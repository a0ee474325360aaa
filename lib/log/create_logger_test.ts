import { assert, assertEquals, assertMatch } from "@std/assert";
import { fstatSync } from "node:fs";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { createLogger, type LoggerOptions, logsToJournal } from "./create_logger.ts";

function collect(options: Partial<LoggerOptions> = {}) {
  const lines: string[] = [];
  const clock = new FakeClock();
  const logger = createLogger({
    format: "text",
    verbosity: 0,
    clock,
    sink: (line) => lines.push(line),
    ...options,
  });
  return { lines, clock, logger };
}

Deno.test("createLogger() writes time, level, sentence and fields for people", () => {
  const { lines, logger } = collect();
  logger.info("Synced proxy rules", { family: "IPv4", ms: 12, reason: "two words" });
  logger.warn("Watch out");
  logger.error("It failed", { error: new Error("no") });
  assertEquals(lines, [
    '2026-01-01T00:00:00.000Z INFO  Synced proxy rules family=IPv4 ms=12 reason="two words"',
    "2026-01-01T00:00:00.000Z WARN  Watch out",
    "2026-01-01T00:00:00.000Z ERROR It failed error=no",
  ]);
});

Deno.test("createLogger() leaves time to the journal and gives it priorities", () => {
  const { lines, logger } = collect({ journal: true, verbosity: 2 });
  logger.error("a");
  logger.warn("b");
  logger.info("c");
  logger.verbose(2, "d");
  assertEquals(lines, ["<3>a", "<4>b", "<6>c", "<7>d"]);
});

const cyclic: Record<string, unknown> = {};
cyclic["self"] = cyclic;
const CAUSED = new Error("Cannot sync", {
  cause: new Error("Cannot bind", { cause: new Error("Cannot bind") }),
});

/** Values of a field, and their texts; those of secrets are removed by name and by form. */
const VALUES: readonly (readonly [value: unknown, text: string, name?: string])[] = [
  ["ns/name:port", "ns/name:port"],
  ["two words", '"two words"'],
  ["", '""'],
  ["a=b", '"a=b"'],
  ["line\nbreak", '"line\\nbreak"'],
  ["\u001b[2J", '"\\u001b[2J"'],
  ["\u009b2J\u2028\u202e", '"\\u009b2J\\u2028\\u202e"'],
  [7, "7"],
  [true, "true"],
  [undefined, "undefined"],
  [null, "null"],
  [12n, "12"],
  [{ a: 1, b: ["x"] }, '{"a":1,"b":["x"]}'],
  [new Map([["listen", 2]]), '[["listen",2]]'],
  [cyclic, '"[object Object]"'],
  [CAUSED, '"Cannot sync: Cannot bind"'],
  ["abc", "[redacted]", "token"],
  [
    { name: "a", token: "abc", url: "https://u:p@h/" },
    '{"name":"a","token":"[redacted]","url":"https://[redacted]@h/"}',
  ],
  [new Error("Bearer abc"), '"Bearer [redacted]"'],
  ["x".repeat(5000), `"${"x".repeat(2000)}… (5000 characters)"`],
  [["x".repeat(5000)], `"[\\"${"x".repeat(1998)}… (5004 characters)"`],
];

Deno.test("createLogger() writes different values differently, shortens long ones and removes secrets", () => {
  for (const [value, text, name = "field"] of VALUES) {
    const { lines, logger } = collect({ journal: true });
    logger.info("x", { [name]: value });
    assertEquals(lines, [`<6>x ${name}=${text}`]);
  }
});

Deno.test("createLogger() writes JSON that programs can parse", () => {
  const { lines, logger } = collect({ format: "json" });
  logger.info("Synced proxy rules", { family: "IPv4", ms: 12, msg: "taken", token: "abc" });
  assertEquals(JSON.parse(lines[0]!), {
    ts: Date.UTC(2026, 0, 1),
    level: "info",
    v: 0,
    msg: "Synced proxy rules",
    family: "IPv4",
    ms: 12,
    msg_: "taken",
    token: "[redacted]",
  });
});

Deno.test("createLogger() gives JSON lines Kubernetes' keys v and err, and errors no v", () => {
  const { lines, logger } = collect({ format: "json", verbosity: 3 });
  logger.verbose(3, "Detail", { v: "taken" });
  logger.error("It failed", { error: new Error("no") });
  const ts = Date.UTC(2026, 0, 1);
  assertEquals(lines.map((line) => JSON.parse(line)), [
    { ts, level: "debug", v: 3, msg: "Detail", v_: "taken" },
    { ts, level: "error", msg: "It failed", err: "no" },
  ]);
});

Deno.test("createLogger() prints more of the components that vmodule names", () => {
  const vmodule = [{ filePattern: "refl*", verbosity: 4 }];
  const { lines, logger } = collect({ journal: true, verbosity: 1, vmodule });
  const reflector = logger.with({ component: "reflector" });
  logger.verbose(2, "not mine");
  logger.with({ component: "syncer" }).verbose(2, "nor this");
  reflector.verbose(4, "in");
  reflector.with({ resource: "services" }).verbose(4, "in too");
  reflector.verbose(5, "out");
  assertEquals(lines, [
    "<7>in component=reflector",
    "<7>in too component=reflector resource=services",
  ]);
});

Deno.test("createLogger() applies other vmodule entries at run time, also for existing logs", () => {
  const { lines, logger } = collect({ journal: true, verbosity: 0 });
  const reflector = logger.with({ component: "reflector" });
  reflector.verbose(4, "out");
  logger.setVmodule([{ filePattern: "reflector", verbosity: 4 }]);
  reflector.verbose(4, "in");
  logger.verbose(1, "not mine");
  logger.setVmodule([]);
  reflector.verbose(4, "out again");
  assertEquals(lines, ["<7>in component=reflector"]);
});

Deno.test("createLogger() prints verbose lines up to its verbosity", () => {
  const { lines, logger } = collect({ verbosity: 2 });
  logger.verbose(2, "in");
  logger.verbose(3, "out");
  assertEquals(lines.length, 1);
  assert(logger.enabled(2) && !logger.enabled(3));
});

Deno.test("createLogger() has a verbosity that changes for all logs made from it", () => {
  const { lines, logger } = collect({ journal: true });
  const part = logger.with({ part: "a" });
  part.verbose(2, "too early");
  logger.setVerbosity(2);
  part.verbose(2, "in");
  assertEquals(logger.verbosity, 2);
  logger.setVerbosity(0);
  part.verbose(2, "too late");
  assertEquals(lines, ["<7>in part=a"]);
});

Deno.test("createLogger() adds the fields of with() to each line, the line's own win", () => {
  const { lines, logger } = collect({ journal: true });
  logger.with({ family: "IPv4", a: 1 }).with({ b: 2 }).info("x", { a: 3 });
  assertEquals(lines, ["<6>x family=IPv4 a=3 b=2"]);
});

Deno.test("createLogger() never lets a value begin a line or move the cursor", () => {
  for (const format of ["text", "json"] as const) {
    const { lines, logger } = collect({ format });
    logger.info("Read object", { object: "a\n<3>forged\r\u001b[2J\u009b\u2028" });
    // deno-lint-ignore no-control-regex
    assertMatch(lines[0]!, /^[^\x00-\x1f\x7f-\x9f\u2028]*$/);
  }
});

Deno.test("createLogger() suppresses repetitions, for each object, and counts them", async () => {
  const { lines, clock, logger } = collect({ journal: true });
  for (let turn = 0; turn < 25; turn++) {
    logger.warn("Cannot bind", { servicePort: "ns/a" });
    if (turn < 3) logger.warn("Cannot bind", { servicePort: "ns/b" });
  }
  assertEquals(lines.filter((line) => line.includes("ns/a")).length, 10);
  assertEquals(lines.filter((line) => line.includes("ns/b")).length, 3);
  await clock.advance(60_000);
  logger.with({}).warn("Cannot bind", { servicePort: "ns/a" });
  assertEquals(lines.slice(-2), [
    '<4>Lines like the last one were held back of="Cannot bind" suppressed=15',
    "<4>Cannot bind servicePort=ns/a",
  ]);
});

Deno.test("createLogger() holds back one message about very many objects", () => {
  const { lines, logger } = collect();
  for (let index = 0; index < 10_000; index++) {
    logger.warn("Cannot bind", { servicePort: `ns/${index}` });
  }
  assertEquals(lines.length, 100);
});

Deno.test("createLogger() never holds back verbose lines", () => {
  const { lines, logger } = collect({ verbosity: 4 });
  for (let index = 0; index < 500; index++) logger.verbose(4, "Connected");
  assertEquals(lines.length, 500);
});

function env(journalStream: string | undefined): (name: string) => string | undefined {
  return (name) => name === "JOURNAL_STREAM" ? journalStream : undefined;
}

Deno.test("logsToJournal() compares the variable with the real standard error", async () => {
  const { dev, ino } = fstatSync(2);
  assert(await logsToJournal(env(`${dev}:${ino}`)));
  assert(!await logsToJournal(env(`${dev}:${ino + 1}`)), "inherited, but led elsewhere");
  assert(!await logsToJournal(env(undefined)));
  assert(!await logsToJournal(env("")));
});

Deno.test("logsToJournal() does not mistake a closed standard error for a journal", async () => {
  assert(
    !await logsToJournal(env("1:2"), () => Promise.reject(new Error("Bad file descriptor"))),
  );
});
