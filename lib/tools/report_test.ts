import { assertEquals } from "@std/assert";
import { paintText, type Report } from "./report.ts";

const SERVICES: Report = {
  title: "Services",
  columns: ["SERVICE", "ADDRESSES", "ENDPOINTS"],
  rows: [
    {
      cells: ["default/web:http TCP", "10.96.0.1:80\n203.0.113.7:80", "10.244.0.7:8080"],
      detail: ["balance: least connections"],
    },
    { cells: ["shop/api TCP", "10.96.0.2:80", "none"], tone: "bad" },
  ],
  parts: [],
};
const FACTS: Report = {
  title: "kube-relay v0.1.0",
  rows: [
    { cells: ["Node", "node-a, zone eu-1"] },
    {
      cells: [
        "Source",
        "API server: the watch of EndpointSlices was closed and is opened again soon",
      ],
      detail: [
        "a problem of this source that is too long for one line of a terminal with 80 columns",
      ],
    },
    {
      cells: [
        "A sentence that stands for itself, and that is too long for a line of this terminal.",
      ],
    },
  ],
  parts: [SERVICES],
};

Deno.test("paintText() aligns facts and tables, wraps prose, and indents what belongs to a row", () => {
  assertEquals(
    paintText(FACTS),
    `kube-relay v0.1.0
Node    node-a, zone eu-1
Source  API server: the watch of EndpointSlices was closed and is opened again
        soon
          a problem of this source that is too long for one line of a terminal
            with 80 columns
A sentence that stands for itself, and that is too long for a line of this
  terminal.

Services
  SERVICE               ADDRESSES       ENDPOINTS
  default/web:http TCP  10.96.0.1:80    10.244.0.7:8080
                        203.0.113.7:80
    balance: least connections
  shop/api TCP          10.96.0.2:80    none
`,
  );
});

Deno.test("paintText() shrinks the widest column of a table to the width, and breaks long words", () => {
  const cells = ["a".repeat(50), "b c".repeat(10), "d"];
  const report = { title: "", columns: ["ONE", "TWO", "THREE"], rows: [{ cells }], parts: [] };
  for (const columns of [20, 60, 80, 200]) {
    const lines = paintText(report, { columns }).split("\n");
    assertEquals(lines.filter((line) => line.length > Math.max(60, columns)), [], `${columns}`);
    assertEquals(lines.join("").match(/a/g)?.length, 50);
  }
});

Deno.test("paintText() colors lines by tone, and escapes what could control a terminal", () => {
  const evil = "evil\x1b[2J\u202e";
  const rows = [{ cells: [evil, evil], tone: "bad", detail: [evil] }] as const;
  const report: Report = {
    title: evil,
    tone: "warning",
    rows,
    parts: [{ title: "", columns: [evil], rows, parts: [] }],
  };
  const text = paintText(report, { color: true });
  assertEquals(text.includes("\x1b[33mevil\\u001b[2J\\u202e\x1b[39m\n"), true);
  assertEquals(text.includes("\x1b[2J"), false);
  assertEquals(text.includes("\u202e"), false);
});

Deno.test("paintText() counts the lines below a row beyond forty", () => {
  const detail = Array.from({ length: 50 }, (_, index) => `element ${index}`);
  const text = paintText({
    title: "",
    rows: [{ cells: ["Carried by", "all"], detail }],
    parts: [],
  });
  assertEquals(text.split("\n").at(-2)?.trim(), "and 10 more; --json has all");
});

Deno.test("paintText() breaks no word of a table while another column can wrap at blanks", () => {
  const name = "production/a-service-with-a-very-long-name:http";
  const cells = [name, "1 of 2 ready", "10.96.0.10:80 ExternalIP", "10.0.1.2:8080 (serving)"];
  const report = { title: "", columns: ["A", "B", "C", "D"], rows: [{ cells }], parts: [] };
  const text = paintText(report, { columns: 100 });
  for (const word of cells.flatMap((cell) => cell.split(" "))) {
    assertEquals(text.includes(word), true, `${word}\n${text}`);
  }
});

Deno.test("paintText() uses the room of a wide terminal", () => {
  const endpoints = Array.from({ length: 12 }, (_, index) => `10.0.0.${index + 10}:8080`);
  const cells = ["default/web", endpoints.join("\n")];
  const table = { title: "", columns: ["SERVICE", "ENDPOINTS"], rows: [{ cells }], parts: [] };
  const rowsAt = (columns: number) => paintText(table, { columns }).trimEnd().split("\n").length;
  assertEquals([rowsAt(80), rowsAt(200)], [1 + 12, 1 + 2]);
  const words = Array.from({ length: 40 }, () => "word").join(" ");
  const facts = { title: "", rows: [{ cells: ["Why", words] }, { cells: [words] }], parts: [] };
  const lengths = paintText(facts, { columns: 200 }).trimEnd().split("\n").map((line) =>
    line.length
  );
  assertEquals(lengths.map((length) => length > 120), [true, false, false, false]);
});
