import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { objectKey } from "../../api/kind.ts";
import { SERVICE, type Service } from "../../api/kinds/service.ts";
import { RecordingInformers } from "../../../tests/support/fakes/recording_informers.ts";
import { tryParseIpAddress } from "../../net/ip_address.ts";
import { type Clock, systemClock } from "../../os/clock.ts";
import { findJsonItems } from "../json_text.ts";
import { type ManifestFileContent, readManifestFile } from "./manifest_file.ts";
import { formatProblem } from "./manifest_problem.ts";
import { StringTable } from "../string_table.ts";
import { TimeSlice } from "../../os/time_slice.ts";
import { serviceYaml } from "../../../tests/support/stages/manifest_harness.ts";

function read(text: string, clock: Clock = systemClock): Promise<ManifestFileContent> {
  const { set: informers } = new RecordingInformers();
  const options = { file: "a.yaml", fileTimeMs: 0, informers, strings: new StringTable() };
  return readManifestFile(text, options, new TimeSlice(clock));
}

function problemsOf({ problems }: ManifestFileContent): readonly string[] {
  return problems.list.map(formatProblem);
}

/** A number of Services as objects. */
function services(count: number): readonly Record<string, unknown>[] {
  return Array.from({ length: count }, (_, index) => ({
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: `s${index}` },
    spec: { clusterIP: `10.0.${index >> 8}.${index & 255}`, ports: [{ port: 80 }] },
  }));
}

/** The same objects in each form that a file may have; all are long enough to be split. */
const FORMS: readonly { form: string; write: (items: readonly unknown[]) => string }[] = [
  {
    form: "documents",
    write: (items) => items.map((item) => `${yaml(item, "")}\n`).join("---\n"),
  },
  {
    form: "a YAML list",
    write: (items) =>
      `apiVersion: v1\nkind: List\nitems:\n${
        items.map((item) => `- ${yaml(item, "  ")}\n`).join("")
      }`,
  },
  {
    form: "a JSON list",
    write: (items) => JSON.stringify({ kind: "List", apiVersion: "v1", items }, null, 2),
  },
  {
    form: "a JSON list of one type",
    write: (items) => JSON.stringify({ kind: "ServiceList", apiVersion: "v1", items }),
  },
];

/** Block style for the outer fields, flow style inside. */
function yaml(item: unknown, indent: string): string {
  return Object.entries(item as object)
    .map(([key, value]) => `${key}: ${JSON.stringify(value)}`).join(`\n${indent}`);
}

for (const { form, write } of FORMS) {
  Deno.test(`readManifestFile() reads ${form}`, async () => {
    const content = await read(write(services(300)));
    assertEquals(problemsOf(content), []);
    assertEquals(content.objects.size, 300);
    assertEquals(
      objectKey(content.objects.get("Service default/s299")!.entry.object),
      "default/s299",
    );
  });

  Deno.test(`readManifestFile() names the line of a bad object in ${form}`, async () => {
    const items = services(300).map((item, index) =>
      index === 250 ? { ...item, spec: { clusterIP: "10.0.0.300", ports: [{ port: 80 }] } } : item
    );
    const text = write(items);
    const content = await read(text);
    const [problem] = content.problems.list;
    const lines = text.split("\n");
    assertEquals([content.objects.size, content.problems.list.length], [299, 1]);
    assertEquals([problem!.object, problem!.path], ["Service default/s250", "spec.clusterIP"]);
    const place = lines[problem!.line - 1]!.slice(problem!.column - 1);
    assert(/^"clusterIP": ?"10\.0\.0\.300"/.test(place), place.slice(0, 80));
    assertEquals([...content.refused.keys()], ["Service default/s250"]);
  });

  Deno.test(`readManifestFile() lets other tasks run while it reads ${form}`, async () => {
    const pauses = await pausesOf(write(services(300)));
    assert(pauses >= 300 / 6, `only ${pauses} pauses`);
  });
}

/** Time passes with each look at the clock, so that every fifth part is followed by a pause. */
async function pausesOf(text: string): Promise<number> {
  let now = 0;
  let pauses = 0;
  await read(text, {
    ...systemClock,
    now: () => now++,
    yieldToEventLoop: () => {
      pauses++;
      return Promise.resolve();
    },
  });
  return pauses;
}

/** Each is one piece of work that took 0.2 to 1 s. */
const LONG_PIECES: Readonly<Record<string, string>> = {
  "lines that are almost markers": "---a\n".repeat(3_000_000),
  "signs that are no aliases": `kind: List\nitems:\n- a\n${"&".repeat(16_000_000)}`,
  "blanks before an item": `{"items":[${" ".repeat(16_000_000)}1]}`,
  "a string of escapes": `{"items":["${'\\"'.repeat(8_000_000)}"]}`,
};

for (const [what, text] of Object.entries(LONG_PIECES)) {
  Deno.test(`readManifestFile() lets other tasks run while it reads ${what}`, async () => {
    const pauses = await pausesOf(text);
    assert(pauses >= 8, `only ${pauses} pauses`);
  });
}

Deno.test("findJsonItems() finds the items behind long texts with escapes", () => {
  for (const note of ['"]}', "\\]}", '\\"]}', 'x"\\]}', '"\\\\]}']) {
    const items = [1, 2, 3].map((id) => ({ id, note: note.repeat(50_000) }));
    const text = JSON.stringify({ items });
    const finding = findJsonItems(text);
    let step = finding.next();
    while (!step.done) step = finding.next();
    const found = step.value?.items.map(({ start, end }) => JSON.parse(text.slice(start, end)));
    assertEquals(found, items, JSON.stringify(note));
  }
});

Deno.test("readManifestFile() gives items the type of their list", async () => {
  const items = services(300).map(({ metadata, spec }) => ({ metadata, spec }));
  const text = JSON.stringify({ apiVersion: "v1", kind: "ServiceList", items }, null, 1);
  assertEquals((await read(text)).objects.size, 300);
});

Deno.test("readManifestFile() reads a million comments before the items without trouble", async () => {
  const content = await read(`kind: List\nitems:\n${"#\n".repeat(1_000_000)}- a\n`);
  assert(content.isIncomplete);
});

Deno.test("readManifestFile() distinguishes syntax errors from bad objects", async () => {
  const good = serviceYaml("good", "10.0.0.1");
  const bad = serviceYaml("bad", "x");
  const nameless = serviceYaml("bad", "10.0.0.1").replace("name: bad", "labels: {}");
  for (
    const { text, isBroken, isIncomplete, refused } of [
      { text: good, isBroken: false, isIncomplete: false, refused: 0 },
      { text: `${good}---\n${bad}`, isBroken: false, isIncomplete: false, refused: 1 },
      { text: `${good}---\n${nameless}`, isBroken: false, isIncomplete: true, refused: 0 },
      { text: `${good}---\na: ]\n`, isBroken: true, isIncomplete: true, refused: 0 },
    ]
  ) {
    const content = await read(text);
    assertEquals(
      [content.isBroken, content.isIncomplete, content.refused.size, content.objects.size],
      [isBroken, isIncomplete, refused, 1],
    );
  }
});

Deno.test("readManifestFile() skips a long document of another kind without parsing it", async () => {
  const definition = `apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n` +
    `spec: "ü ${"x".repeat(2_000_000)}"\n`;
  const content = await read(`${definition}---\n${serviceYaml("web", "10.0.0.1")}`);
  assertEquals(problemsOf(content), []);
  assertEquals([...content.ignored], [["CustomResourceDefinition", 1]]);
  assertEquals(content.objects.size, 1);
});

Deno.test("readManifestFile() reads a file that begins with a byte order mark", async () => {
  const content = await read(`\ufeff${serviceYaml("web", "10.0.0.1").replaceAll("\n", "\r\n")}`);
  assertEquals(problemsOf(content), []);
  assertEquals(content.objects.size, 1);
});

Deno.test("readManifestFile() refuses a bomb and reads the documents next to it", async () => {
  const bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" +
    [..."bcdefgh"].map((name, index) =>
      `${name}: &${name} [${Array(9).fill(`*${"abcdefg"[index]}`).join(",")}]\n`
    ).join("");
  const content = await read(`${bomb}---\n${serviceYaml("web", "10.0.0.1")}`);
  assertEquals([content.isBroken, content.objects.size], [true, 1]);
});

Deno.test("readManifestFile() names the line of a fault around the items of a list", async () => {
  const text = FORMS[1]!.write(services(300));
  const content = await read(`${text}kind: ]\n`);
  assert(content.isBroken);
  assertEquals(content.problems.list[0]!.line, text.split("\n").length);
});

const SEEDS = [
  serviceYaml("web", "10.0.0.1"),
  FORMS[1]!.write(services(3)),
  FORMS[2]!.write(services(3)),
  "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: web-1\n  labels:\n" +
  "    kubernetes.io/service-name: web\naddressType: IPv4\nendpoints:\n- addresses: [10.1.0.1]\n" +
  "  conditions: {ready: true}\nports:\n- {name: http, port: 80}\n",
];
const SPLINTERS = [
  ..."\n\t \"'{}[]:,-&*!|>%@`#0~\\",
  ...[
    "---\n",
    "- ",
    "null",
    "__proto__",
    "\u0000",
    "\u2028",
    "99999999999999999999",
    "items:",
    "<<: ",
  ],
];

Deno.test("readManifestFile() reads random garbage without an exception, and never an invalid address", async () => {
  const mutation = fc.record({
    at: fc.nat(1_000),
    cut: fc.nat(8),
    put: fc.constantFrom(...SPLINTERS),
  });
  const text = fc.tuple(
    fc.constantFrom(...SEEDS),
    fc.array(mutation, { minLength: 1, maxLength: 6 }),
  )
    .map(([seed, mutations]) =>
      mutations.reduce((text, { at, cut, put }) => {
        const place = at % text.length;
        return text.slice(0, place) + put + text.slice(place + cut);
      }, seed)
    );
  let objects = 0;
  await fc.assert(
    fc.asyncProperty(text, async (text) => {
      const content = await read(text);
      objects += content.objects.size;
      const length = text.split("\n").length;
      for (const { line, column } of content.problems.list) {
        assert(line >= 1 && line <= length && column >= 1, `line ${line} of ${length}`);
      }
      for (const { entry } of content.objects.values()) {
        if (entry.spec !== SERVICE) continue;
        const { spec } = entry.object as Service;
        assert(tryParseIpAddress(spec.clusterIP!) !== undefined);
        for (const { port } of spec.ports!) assert(port >= 1 && port <= 65535);
      }
    }),
    { numRuns: 3_000, seed: 20261121 },
  );
  assert(objects > 100, `only ${objects} objects survived`);
});

Deno.test("readManifestFile() reads bytes that are not text without an exception", async () => {
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), async (bytes) => {
      await read(new TextDecoder().decode(bytes));
    }),
    { numRuns: 500, seed: 20261121 },
  );
});

const EXAMPLES = new URL("../../../examples/", import.meta.url);

for (const folder of ["demo", "manifests"]) {
  Deno.test(`the manifests in examples/${folder} have no problems`, async () => {
    let files = 0;
    for await (const { name } of Deno.readDir(new URL(folder, EXAMPLES))) {
      if (!name.endsWith(".yaml")) continue;
      const content = await read(await Deno.readTextFile(new URL(`${folder}/${name}`, EXAMPLES)));
      assertEquals(problemsOf(content), [], name);
      assert(content.objects.size > 0, name);
      files++;
    }
    assert(files >= 4);
  });
}
