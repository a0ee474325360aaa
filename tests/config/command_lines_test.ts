/**
 * Command lines and what they come to. To add a case, add a file to `command_lines`: a title, one
 * argument in each line, and behind them
 *
 * - `=> path: value`, in JSON: `proxy.` the configuration, `relay.` our own options, `mode` what was
 *   asked for;
 * - `!! text`, a part of a warning; there must be no others;
 * - `XX text`, a part of a problem, in their order; there must be no others.
 *
 * `--config` names a file of this folder.
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { FLAG_ROWS } from "../../lib/config/flags.ts";
import { ConfigurationError } from "../../lib/config/configuration_error.ts";
import { loadConfiguration } from "../../lib/config/load.ts";
import { givenFlags, type ParsedFlags, parseFlags } from "../../lib/config/parse_flags.ts";
import { fieldOf, warningTexts } from "./expectations.ts";

const FOLDER = new URL(".", import.meta.url).pathname;

interface Case {
  readonly title: string;
  readonly parsed: ParsedFlags;
  readonly values: readonly (readonly [path: string, value: unknown])[];
  readonly warnings: readonly string[];
  readonly problems: readonly string[];
}

function readCase(text: string): Case {
  const [title = "", ...lines] = text.trimEnd().split("\n");
  const after = (sign: string) =>
    lines.filter((line) => line.startsWith(`${sign} `)).map((line) => line.slice(3));
  return {
    title: title.replace("# ", ""),
    parsed: parseFlags(lines.filter((line) => !/^(=>|!!|XX) /.test(line))),
    values: after("=>").map((line) => {
      const [, path, value] = /^([\w.]+): (.+)$/.exec(line)!;
      return [path!, JSON.parse(value!)];
    }),
    warnings: after("!!"),
    problems: after("XX"),
  };
}

const CASES = await Promise.all(
  [...Deno.readDirSync(`${FOLDER}command_lines`)].map(async ({ name }) => ({
    name,
    ...readCase(await Deno.readTextFile(`${FOLDER}command_lines/${name}`)),
  })),
);

function load({ parsed }: Case) {
  return loadConfiguration(
    { readTextFile: (file) => Deno.readTextFile(FOLDER + file), uid: 0, env: () => undefined },
    { flags: parsed.values },
  );
}

for (const each of CASES.filter(({ problems }) => problems.length === 0)) {
  Deno.test(`loadConfiguration() for ${each.name}: ${each.title}`, async () => {
    assertEquals([each.parsed.problems, each.parsed.positionals], [[], []]);
    const loaded = await load(each);
    for (const [path, value] of each.values) assertEquals(fieldOf(loaded, path), value, path);
    const found = warningTexts(loaded);
    assertEquals(found.length, each.warnings.length, found.join("\n"));
    each.warnings.forEach((warning, index) => assertStringIncludes(found[index]!, warning));
  });
}

for (const each of CASES.filter(({ problems }) => problems.length > 0)) {
  Deno.test(`loadConfiguration() refuses ${each.name}: ${each.title}`, async () => {
    const { problems: unread } = each.parsed;
    const problems = unread.length > 0
      ? unread
      : (await assertRejects(() => load(each), ConfigurationError)).problems;
    assertEquals(problems.length, each.problems.length, problems.join("\n"));
    each.problems.forEach((part, index) => assertStringIncludes(problems[index]!, part));
  });
}

Deno.test("tests/config/command_lines has a case for every flag, with the field that it sets", () => {
  const accepted = CASES.filter(({ problems }) => problems.length === 0);
  for (const { name, field, alsoField } of FLAG_ROWS) {
    const cases = accepted.filter(({ parsed }) => givenFlags(parsed.values).includes(name));
    assert(cases.length > 0, `--${name} is in no case`);
    for (const own of [field, alsoField].filter((path) => path !== undefined)) {
      const isReported = cases.some(({ values }) =>
        values.some(([path]) => path === `proxy.${own}`)
      );
      assert(isReported, `${own} appears in no case with --${name}`);
    }
  }
});
