import { assert, assertEquals } from "@std/assert";
import {
  API_VERSION,
  CONFIGURATION_FIELDS,
  defaultConfiguration,
  KIND,
  parseConfiguration,
} from "./configuration.ts";

const HEAD = { apiVersion: API_VERSION, kind: KIND };

/** Every field at once with one value. */
function everyField(tree: typeof CONFIGURATION_FIELDS, value: unknown): object {
  return Object.fromEntries(
    Object.entries(tree).map(([name, below]) => [name, below ? everyField(below, value) : value]),
  );
}

Deno.test("parseConfiguration() treats null as absent in every field", () => {
  const { configuration, problems } = parseConfiguration({
    ...everyField(CONFIGURATION_FIELDS, null),
    ...HEAD,
  });
  assertEquals(problems, []);
  assertEquals(configuration, defaultConfiguration());
});

Deno.test("parseConfiguration() accepts flushFrequency also in nanoseconds", () => {
  const parse = (flushFrequency: unknown) =>
    parseConfiguration({ ...HEAD, logging: { flushFrequency } });
  assertEquals(parse(2_000_000_000).configuration?.logging.flushFrequency, 2_000);
  assertEquals(parse("2s").configuration?.logging.flushFrequency, 2_000);
  assertEquals(parse("2").problems.map(({ path }) => path), [["logging", "flushFrequency"]]);
  assertEquals(parse([]).problems.map(({ path }) => path), [["logging", "flushFrequency"]]);
  for (const nanoseconds of [Infinity, NaN, 1.5, 2 ** 63]) {
    assertEquals(parse(nanoseconds).problems.length, 1, String(nanoseconds));
  }
});

Deno.test("parseConfiguration() names every field of a wrong type", () => {
  const { problems } = parseConfiguration({ ...everyField(CONFIGURATION_FIELDS, [[]]), ...HEAD });
  const paths = problems.map(({ path }) => path.join("."));
  const isNamed = (prefix: string) => paths.some((path) => path.startsWith(prefix));
  for (const field of Object.keys(CONFIGURATION_FIELDS)) {
    assert(field in HEAD || isNamed(field), `${field} was accepted`);
  }
});

Deno.test("parseConfiguration() shows only the beginning of a text in the wrong place", () => {
  const { problems: [problem] } = parseConfiguration({ ...HEAD, iptables: "text ".repeat(100) });
  assertEquals(problem?.message, `Expected fields, found "${"text ".repeat(7)}text…`);
});

Deno.test("parseConfiguration() accepts only text for apiVersion and kind", async (t) => {
  for (const odd of [null, undefined, {}, { toString: true }, [], 5, "x".repeat(5_000)]) {
    await t.step(JSON.stringify(odd)?.slice(0, 20) ?? "nothing", () => {
      const { problems } = parseConfiguration({ ...HEAD, kind: odd });
      assertEquals(problems.map(({ path }) => path), [["kind"]]);
      assert(problems[0]!.message.length < 100);
    });
  }
});
