/** The status as text for a terminal. Pure: the same report at the same time gives the same text. */
import { wrapText } from "../../config/wrap_text.ts";
import { ageText } from "./number_texts.ts";
import type { StatusReport } from "./status_report.ts";
import type { StatusFamily } from "../../app/service/service_status.ts";
import {
  type ControllerView,
  type FamilyView,
  type ServiceView,
  serviceViews,
  type StatusView,
  statusView,
} from "./status_view.ts";
import { hangingText, type TextLook, type Tone, toneColors } from "../cli/terminal_text.ts";

interface StatusTextOptions extends TextLook {
  /** Milliseconds since 1970, for ages. */
  readonly now: number;
  /** Only Services that {@linkcode matchesFilter} selects. @default {""} */
  readonly filter?: string;
}

interface Layout {
  readonly now: number;
  readonly width: number;
  readonly colors: Readonly<Record<Tone, (text: string) => string>>;
  readonly filter: string;
}

/** Width of the names of facts. */
const INDENT = 9;

/** Narrowest table that can still be read. */
const MIN_COLUMNS = 60;

/** The whole status: a summary, and for each family a table of Services and the quarantine. */
export function renderStatus(
  report: StatusReport,
  { now, columns = 80, color = false, filter = "" }: StatusTextOptions,
): string {
  const width = Math.max(MIN_COLUMNS, columns);
  const layout: Layout = { now, filter, width, colors: toneColors(color) };
  const view = statusView(report, filter);
  const sections = [
    summaryLines(view, layout),
    ...view.controllers.flatMap((controller) => controllerSections(controller, report, layout)),
  ];
  return sections.map((lines) => `${lines.join("\n")}\n`).join("\n");
}

function summaryLines(view: StatusView, layout: Layout): readonly string[] {
  const { colors, now } = layout;
  const { program, process, phase, startedAt, node, sources, settings } = view;
  const state = colors[phase.tone](phase.text);
  return [
    `${colors.title(program)}  ${state}, up ${ageText(now - startedAt)}  (${process})`,
    `Node     ${node}`,
    ...sources.flatMap(({ text, problems }) => [
      fact("Source", text, layout),
      ...problems.map((problem) => colors.warning(problemText(problem, layout))),
    ]),
    ...settings.flatMap(({ text, command }) => [
      colors.warning(
        fact("Kernel", `${text}${command ? "; where that is allowed:" : ""}`, layout),
      ),
      ...(command ? [colors.warning(" ".repeat(INDENT) + command)] : []),
    ]),
  ];
}

function fact(name: string, text: string, { width }: Layout): string {
  return hangingText(name.padEnd(INDENT), text, { width });
}

function problemText(problem: string, { width }: Layout): string {
  return hangingText(`${" ".repeat(INDENT)}! `, problem, { width });
}

/** One for each family of Services, with their table; one for each other controller. */
function controllerSections(
  { name, families, facts }: ControllerView,
  report: StatusReport,
  layout: Layout,
): readonly (readonly string[])[] {
  if (name === undefined) {
    return families.map((family, index) => [
      ...familyLines(family, layout),
      ...serviceLines(report.families[index]!, layout),
      ...quarantineLines(family.quarantine, layout),
    ]);
  }
  return [[
    layout.colors.title(name),
    ...facts.map((each) => fact(`${each.name} `, each.text, layout)),
    ...families.flatMap((family) => [
      ...familyLines(family, layout),
      ...quarantineLines(family.quarantine, layout),
    ]),
  ]];
}

function familyLines(family: FamilyView, layout: Layout): readonly string[] {
  const { colors } = layout;
  const { name, dataPlane, error } = family;
  return [
    colors.title(name) + fact(name, dataPlane, layout).slice(name.length),
    syncText(family, layout),
    ...(error === undefined ? [] : [colors.bad(problemText(error, layout))]),
  ];
}

function serviceLines(report: StatusFamily, layout: Layout): readonly string[] {
  const { filter } = layout;
  const services = serviceViews(report, filter);
  if (services.length > 0) return ["", ...tableLines(services, layout)];
  return filter === "" ? ["No Services."] : [`No Service matches '${filter}'.`];
}

function syncText({ lastSync, notes }: FamilyView, layout: Layout): string {
  const done = lastSync === undefined ? [] : [
    `${ageText(layout.now - lastSync.at)} ago in ${lastSync.duration} (${lastSync.work})`,
  ];
  const plain = notes.filter(({ tone }) => tone === "plain").map(({ text }) => text);
  const others = notes.filter(({ tone }) => tone !== "plain")
    .map(({ tone, text }) => layout.colors[tone](`, ${text}`));
  return fact("Sync", [...done, ...plain].join(", "), layout) + others.join("");
}

const TITLES = ["SERVICE", "ADDRESSES", "ENDPOINTS"];

/** Blanks between two columns. */
const GAP = 2;

function tableLines(services: readonly ServiceView[], { width, colors }: Layout): string[] {
  const rows = services.map((service) => [
    serviceCell(service),
    service.addresses.join("\n") || "-",
    service.endpoints.join("\n"),
  ]);
  const widths = fitColumns([TITLES, ...rows], width);
  // Not by cli-table3, which takes two seconds for 10,000 rows.
  const fitted = rows.flatMap((row) =>
    rowLines(row.map((cell, index) => fitCell(cell, widths[index]!)), widths)
  );
  return [...rowLines(TITLES, widths).map(colors.detail), ...fitted];
}

function serviceCell({ name, protocol, traffic = [], isQuarantined }: ServiceView): string {
  const notes = [...traffic, ...(isQuarantined ? ["quarantined"] : [])].join(", ");
  return `${name} ${protocol}${notes === "" ? "" : `\n(${notes})`}`;
}

/** The lines of one row, each cell below its title. Cells are no wider than their columns. */
function rowLines(cells: readonly string[], widths: readonly number[]): readonly string[] {
  const columns = cells.map((cell) => cell.split("\n"));
  const height = Math.max(...columns.map(({ length }) => length));
  return Array.from(
    { length: height },
    (_, line) =>
      columns.map((lines, index) => (lines[line] ?? "").padEnd(widths[index]! + GAP)).join("")
        .trimEnd(),
  );
}

/** Widths by content; where they do not fit, the widest column shrinks first. */
function fitColumns(rows: readonly (readonly string[])[], width: number): number[] {
  const widths = TITLES.map((_, column) =>
    rows.flatMap((row) => row[column]!.split("\n"))
      .reduce((longest, line) => Math.max(longest, line.length), 0)
  );
  let excess = widths.reduce((sum, each) => sum + GAP + each, -GAP) - width;
  for (; excess > 0; excess--) widths[widths.indexOf(Math.max(...widths))]! -= 1;
  return widths;
}

/** Breaks at blanks, and too long words anywhere. */
function fitCell(cell: string, width: number): string {
  return cell.split("\n")
    .flatMap((line) => wrapText(line, { width }).split("\n"))
    .flatMap((line) => line.match(new RegExp(`.{1,${width}}`, "gu")) ?? [""])
    .join("\n");
}

function quarantineLines(
  quarantine: FamilyView["quarantine"],
  { width, colors, now }: Layout,
): readonly string[] {
  if (quarantine.length === 0) return [];
  return [
    "",
    colors.warning("In quarantine (the others work):"),
    ...quarantine.map(({ text, retryAt = now }) => {
      const when = retryAt > now ? `in ${ageText(retryAt - now)}` : "at each sync";
      return hangingText("  ", `${text}; tried again ${when}`, { width, indent: 4 });
    }),
  ];
}
