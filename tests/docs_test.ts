/**
 * Tests that generated pages and files match what they are made from. `UPDATE_DOCS=1` writes them.
 */
import { assert, assertEquals } from "@std/assert";
import { EDGE_ANNOTATIONS, IPVS_ANNOTATIONS } from "../lib/api/service_annotations.ts";
import { VERSION } from "../lib/config/version.ts";
import { grafanaDashboard } from "./support/docs/grafana_dashboard.ts";
import { prometheusRule } from "./support/docs/monitoring_files.ts";
import { flagsPage, metricsPage } from "./support/docs/reference_docs.ts";

/** A row of the table whose values may have any type. */
interface AnyAnnotation {
  readonly name: string;
  readonly expected: string;
  parse(text: string): unknown;
  format(value: unknown): string;
}

const ROOT = new URL("..", import.meta.url).pathname;

for (
  const [path, page] of [
    ["docs/flags.md", flagsPage],
    ["docs/metrics.md", metricsPage],
  ] as const
) {
  Deno.test(`${path} agrees with the code`, async () => {
    const made = page(await Deno.readTextFile(ROOT + path));
    if (Deno.env.get("UPDATE_DOCS") === "1") await Deno.writeTextFile(ROOT + path, made);
    assertEquals(await Deno.readTextFile(ROOT + path), made, "see the end of the introduction");
  });
}

for (
  const [path, source, make] of [
    ["deploy/monitoring/prometheus-rule.yaml", "deploy/monitoring/alerts.yaml", prometheusRule],
    ["deploy/monitoring/dashboard.json", "lib/metrics/metric_table.ts", grafanaDashboard],
  ] as const
) {
  Deno.test(`${path} agrees with ${source}`, async () => {
    const made = make(await Deno.readTextFile(ROOT + source));
    if (Deno.env.get("UPDATE_DOCS") === "1") await Deno.writeTextFile(ROOT + path, made);
    assertEquals(await Deno.readTextFile(ROOT + path), made, "run 'deno task docs'");
  });
}

Deno.test("docs/annotations.md has each annotation of the table with its values and a valid example", async () => {
  const [page] = (await Deno.readTextFile(`${ROOT}docs/annotations.md`)).split("## kube-router");
  const rows = page!.split("\n").filter((line) => line.startsWith("| `"))
    .map((line) => line.split(" | ").map((cell) => cell.replaceAll(/^\| |\|$|`/g, "").trim()));
  for (const { name, expected, parse, format } of Object.values<AnyAnnotation>(EDGE_ANNOTATIONS)) {
    const [, mode, values, example = ""] = rows.find(([each]) => each === name) ?? [];
    assertEquals([name, mode, values], [name, "userspace", expected.replace(/^has to be /, "")]);
    assertEquals(parse(format(parse(example))), parse(example), `${name}: ${example}`);
    assert(parse(example) !== undefined, `${name}: ${example}`);
  }
  const known = [...Object.values(EDGE_ANNOTATIONS).map(({ name }) => name), ...IPVS_ANNOTATIONS];
  assertEquals(rows.map(([name]) => name), known);
});

Deno.test("deno.json has the version of the program", async () => {
  assertEquals(JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`)).version, VERSION);
});

Deno.test("each decision has a number of its own, in its name and its heading", async () => {
  const pages = pagesIn("docs/decisions");
  const numbers = await Promise.all(pages.map(async (path) => {
    const [, heading] = /^# (\d+)\. /.exec(await Deno.readTextFile(ROOT + path)) ?? [];
    const number = path.split("/").at(-1)!.slice(0, 4);
    assertEquals(heading?.padStart(4, "0"), number, path);
    return number;
  }));
  assertEquals(numbers.toSorted(), [...new Set(numbers)].toSorted());
});

/** The pages that people read; code and tables are no prose. */
const PROSE = await Promise.all(
  [
    ...["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "deploy/README.md"],
    ...pagesIn("docs"),
    ...pagesIn("docs/decisions"),
  ].map(async (path) => ({
    path,
    lines: (await Deno.readTextFile(ROOT + path)).replaceAll(/^\s*```[\s\S]*?^\s*```/gm, "")
      .split("\n"),
  })),
);

function pagesIn(folder: string): readonly string[] {
  const names = [...Deno.readDirSync(ROOT + folder)].map(({ name }) => name);
  return names.filter((name) => name.endsWith(".md")).map((name) => `${folder}/${name}`);
}

function isTable(line: string): boolean {
  return line.trimStart().startsWith("|");
}

/** A page that says everything twice is not read once. */
const MOST_WORDS = 45_000;

Deno.test(`the docs have at most ${MOST_WORDS} words of prose: say it once, and link`, () => {
  const words = PROSE.flatMap(({ lines }) => lines).filter((line) => !isTable(line))
    .flatMap((line) => line.split(/\s+/)).filter((word) => /\w/.test(word));
  assert(words.length <= MOST_WORDS, `${words.length} words`);
  assert(words.length > MOST_WORDS / 2, `only ${words.length} words were found`);
});

Deno.test("no cell of a table in the docs has more than 200 characters: it is text", () => {
  const long = PROSE.flatMap(({ path, lines }) =>
    lines.filter(isTable).flatMap((line) => line.split("|")).map((cell) => cell.trim())
      .filter((cell) => cell.length > 200 && !/^:?-+:?$/.test(cell))
      .map((cell) => `${path}: ${cell}`)
  );
  assertEquals(long, []);
});
