/**
 * The status as text for people. Pure: the same report at the same time gives the same text.
 *
 * @module
 */
import { createColors } from "picocolors";
import { wrapText } from "../../config/wrap_text.ts";
import { formatHostPort } from "../../net/port.ts";
import type { ServedAddress } from "../../proxy/service_mode.ts";
import { operationsText } from "./operations_text.ts";
import { loadNotes, trafficText } from "./traffic_text.ts";
import { printableText } from "../../log/printable_text.ts";
import type { StatusEndpoint, StatusFamily, StatusReport, StatusService } from "./status_report.ts";

/** How the text looks. */
interface StatusViewOptions {
  /** Milliseconds since 1970, for ages. */
  readonly now: number;
  /** Width of the terminal. @default {80} */
  readonly columns?: number;
  /** @default {false} */
  readonly color?: boolean;
  /** Only Services that {@linkcode matchesFilter} says. */
  readonly filter?: string;
}

type Colors = ReturnType<typeof createColors>;

interface View {
  readonly now: number;
  readonly columns: number;
  readonly colors: Colors;
  readonly filter: string;
}

/** Width of the names of facts. */
const INDENT = 9;

/** Narrowest table that can still be read. */
const MIN_COLUMNS = 60;

/** The whole status: a summary, a table of Services for each family, and what is in quarantine. */
export function renderStatus(report: StatusReport, options: StatusViewOptions): string {
  const { now, columns = 80, color = false, filter = "" } = options;
  const view: View = {
    now,
    filter,
    columns: Math.max(MIN_COLUMNS, columns),
    colors: createColors(color),
  };
  const sections = [
    summarySection(report, view),
    ...report.families.map((family) => familySection(family, view)),
  ];
  return sections.map((lines) => `${lines.join("\n")}\n`).join("\n");
}

/** Whether a filter names a Service: nothing, the start of `namespace/name`, or a whole word of it. */
export function matchesFilter({ name }: Pick<StatusService, "name">, filter: string): boolean {
  return name.startsWith(filter) || name.split(/[/:]/).includes(filter);
}

function summarySection(report: StatusReport, view: View): readonly string[] {
  const { now, colors } = view;
  const { version, pid, phase, startedAt, node, sources, hostSettings } = report;
  const up = ageText(now - Date.parse(startedAt));
  const state = phase === "serving" ? colors.green(phase) : colors.yellow(phase);
  const zone = node.zone === undefined ? "" : `, zone ${node.zone}`;
  const lines = [
    `${colors.bold(`kube-relay v${version}`)}  ${state}, up ${up}  (process ${pid})`,
    `Node     ${printableText(node.name)}${printableText(zone)}`,
  ];
  for (const { name, state, problems } of sources) {
    lines.push(...factLines("Source", `${name}: ${state}`, view));
    for (const problem of problems) {
      lines.push(...problemLines(problem, view).map((line) => colors.yellow(line)));
    }
  }
  return [...lines, ...hostSettingLines(hostSettings, view)];
}

/** Only what was refused: the others are as they should be. */
function hostSettingLines(
  hostSettings: StatusReport["hostSettings"],
  view: View,
): readonly string[] {
  const refused = hostSettings.filter(({ state }) => state === "refused");
  return refused.flatMap(({ name, wanted, found = "unknown", reason, cure }) => {
    const on = cure === undefined ? "" : "; where that is allowed:";
    const text = `${name} is ${found}, not ${wanted}: ${reason ?? "refused"}${on}`;
    const lines = [...factLines("Kernel", text, view)];
    if (cure !== undefined) lines.push(`         ${printableText(cure)}`);
    return lines.map((line) => view.colors.yellow(line));
  });
}

/** A fact under its name. */
function factLines(name: string, text: string, { columns }: View): readonly string[] {
  const [first = "", ...rest] = wrapText(printableText(text), { width: columns, indent: INDENT })
    .split("\n");
  return [name.padEnd(INDENT) + first.slice(INDENT), ...rest];
}

/** What is wrong with what stands above. */
function problemLines(problem: string, { columns }: View): readonly string[] {
  const [first = "", ...rest] = wrapText(printableText(problem), {
    width: columns,
    indent: INDENT + 2,
  }).split("\n");
  return [`${" ".repeat(INDENT)}! ${first.trimStart()}`, ...rest];
}

function familySection(family: StatusFamily, view: View): readonly string[] {
  const { colors, columns, filter } = view;
  const services = family.services
    .filter((service) => matchesFilter(service, filter))
    .toSorted((a, b) => compare(a.name, b.name) || compare(a.protocol, b.protocol));
  const lines = [
    colors.bold(family.family) +
    wrapText(`${family.mode}: ${printableText(family.summary)}`, { width: columns, indent: INDENT })
      .slice(family.family.length),
    `Sync     ${syncText(family, view)}`,
  ];
  if (family.lastError !== undefined) {
    lines.push(...problemLines(family.lastError, view).map((line) => colors.red(line)));
  }
  if (services.length === 0) {
    return [...lines, filter === "" ? "No Services." : `No Service matches '${filter}'.`];
  }
  lines.push("", serviceTable(services, view));
  const quarantined = services.filter((service) => service.quarantined !== undefined);
  if (quarantined.length === 0) return lines;
  return [...lines, "", ...quarantineLines(quarantined, view)];
}

function syncText({ lastSync, pending, failures }: StatusFamily, view: View): string {
  const { now, colors, columns } = view;
  const waiting = pending ? ", changes wait" : "";
  const failed = failures === 0 ? "" : colors.red(`, ${failures} failed since`);
  if (!lastSync) return `none yet${waiting}${failed}`;
  const kind = lastSync.full ? "everything" : "changes only";
  const age = ageText(now - Date.parse(lastSync.at));
  const done = `${kind}: ${operationsText(lastSync.operations)}`;
  const text = `${age} ago in ${lastSync.durationMs} ms (${done})${waiting}`;
  return wrapText(text, { width: columns, indent: INDENT }).trimStart() + failed;
}

function serviceTable(services: readonly StatusService[], { columns, colors }: View): string {
  const rows = services.map((service) => [
    serviceCell(service),
    service.addresses.map(addressText).sort().join("\n") || "-",
    endpointsCell(service.endpoints),
  ]);
  const widths = fitColumns([TITLES, ...rows], columns);
  // Not by cli-table3, which takes two seconds for 10,000 rows.
  const fitted = rows.flatMap((row) =>
    rowLines(row.map((cell, index) => fitCell(cell, widths[index]!)), widths)
  );
  return [...rowLines(TITLES, widths).map((line) => colors.dim(line)), ...fitted].join("\n");
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

const TITLES = ["SERVICE", "ADDRESSES", "ENDPOINTS"];

/** Blanks between two columns. */
const GAP = 2;

function serviceCell(service: StatusService): string {
  const { name, protocol, connections, traffic, quarantined } = service;
  const notes = [
    ...(connections === undefined || connections === 0 ? [] : [`${connections} open`]),
    ...(traffic === undefined ? [] : [trafficText(traffic)]),
    ...(quarantined === undefined ? [] : ["quarantined"]),
  ];
  return `${printableText(name)} ${protocol}${notes.length === 0 ? "" : `\n(${notes.join(", ")})`}`;
}

function addressText({ role, address, port, state, load }: ServedAddress): string {
  const label = role === "ClusterIP" ? "" : ` ${role}`;
  const notes = [...(state === "serving" ? [] : [state]), ...(load ? loadNotes(load) : [])];
  const text = `${formatHostPort(address, port)}${label}`;
  return notes.length === 0 ? text : `${text} (${notes.join(", ")})`;
}

/** More than this many are only counted. */
const ENDPOINTS_SHOWN = 8;

function endpointsCell(endpoints: readonly StatusEndpoint[]): string {
  if (endpoints.length === 0) return "none: refused";
  const shown = endpoints.slice(0, ENDPOINTS_SHOWN).map(({ address, state, local }) => {
    const notes = [...(state === "ready" ? [] : [state]), ...(local ? ["local"] : [])];
    return notes.length === 0 ? address : `${address} (${notes.join(", ")})`;
  });
  const more = endpoints.length - shown.length;
  return [...shown, ...(more > 0 ? [`and ${more} more`] : [])].join("\n");
}

/** Widths by content; where they don't fit, the widest gives way first. */
function fitColumns(rows: readonly (readonly string[])[], columns: number): number[] {
  const widths = TITLES.map((_, column) =>
    rows.flatMap((row) => row[column]!.split("\n"))
      .reduce((longest, line) => Math.max(longest, line.length), 0)
  );
  let excess = widths.reduce((sum, width) => sum + GAP + width, -GAP) - columns;
  for (; excess > 0; excess--) widths[widths.indexOf(Math.max(...widths))]! -= 1;
  return widths;
}

/** Breaks at blanks, and words that are too long anywhere: cli-table3 would cut those off. */
function fitCell(cell: string, width: number): string {
  return cell.split("\n")
    .flatMap((line) => wrapText(line, { width }).split("\n"))
    .flatMap((line) => line.match(new RegExp(`.{1,${width}}`, "gu")) ?? [""])
    .join("\n");
}

function quarantineLines(services: readonly StatusService[], view: View): readonly string[] {
  const { columns, colors, now } = view;
  return [
    colors.yellow("In quarantine (the others work):"),
    ...services.map(({ name, protocol, quarantined = "", retryAt }) => {
      const waitMs = retryAt === undefined ? 0 : Date.parse(retryAt) - now;
      const when = waitMs > 0 ? `in ${ageText(waitMs)}` : "at each sync";
      const text = `${name} ${protocol}: ${quarantined}; tried again ${when}`;
      return `  ${wrapText(printableText(text), { width: columns, indent: 4 }).trimStart()}`;
    }),
  ];
}

/** The two largest units: `3h12m`, `45s`. */
export function ageText(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m${seconds % 60}s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours}h${minutes % 60}m` : `${Math.floor(hours / 24)}d${hours % 24}h`;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
