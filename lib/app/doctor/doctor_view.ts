/**
 * The examination as text for people. Pure: the same report gives the same text.
 *
 * @module
 */
import { createColors } from "picocolors";
import { wrapText } from "../../config/wrap_text.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import type { ProbeResult } from "../../proxy/service_mode.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";
import { printableText } from "../../log/printable_text.ts";
import { type DoctorMode, type DoctorReport, isBlocked } from "./doctor_report.ts";

/** How the text looks. */
interface DoctorViewOptions {
  /** Width of the terminal. @default {80} */
  readonly columns?: number;
  /** @default {false} */
  readonly color?: boolean;
}

type Colors = ReturnType<typeof createColors>;

interface View {
  readonly columns: number;
  readonly colors: Colors;
}

/** Narrowest text that can still be read, and the widest. */
const [MIN_COLUMNS, MAX_COLUMNS] = [60, 110];

/** Width of the words at the beginning of lines. */
const INDENT = 11;

/** Everything, in sections: what is here, each mode, what was found, and the verdict. */
export function renderDoctor(report: DoctorReport, options: DoctorViewOptions = {}): string {
  const { columns = 80, color = false } = options;
  const view: View = {
    columns: Math.min(MAX_COLUMNS, Math.max(MIN_COLUMNS, columns)),
    colors: createColors(color),
  };
  const sections = [
    factLines(report, view),
    choiceLines(report, view),
    ...report.modes.map((mode) => modeLines(mode, view)),
    findingLines(report, view),
  ];
  return sections.map((lines) => `${lines.join("\n")}\n`).join("\n");
}

function factLines({ program, machine, api, relay }: DoctorReport, view: View): readonly string[] {
  const { version, kubeProxy, deno, platform } = program;
  const { hostname, kernel, uid, capabilities, toolsPath } = machine;
  const user = uid === 0 ? "root" : uid === undefined ? "unknown user" : `user ${uid}`;
  const rights = capabilities === undefined
    ? "what its tools may do could not be found out"
    : capabilities.length === 0
    ? "its tools have no capability of use here"
    : `its tools have ${capabilities.join(", ")}`;
  return [
    view.colors.bold("kube-relay".padEnd(INDENT)) +
    entry("", `v${version} (kube-proxy ${kubeProxy}, Deno ${deno}, ${platform})`, view)
      .slice(INDENT),
    entry("Machine", `${hostname}, kernel ${kernel ?? "unknown"}`, view),
    entry("User", `${user}; ${rights}`, view),
    ...(toolsPath.length === 0 ? [] : [entry("Tools", `first in ${toolsPath.join(", ")}`, view)]),
    entry("API", `${api.state}: ${api.detail}`, view),
    entry(
      "Running",
      relay.state === "running" ? relay.detail : `${relay.state}: ${relay.detail}`,
      view,
    ),
  ];
}

function choiceLines({ choice }: DoctorReport, view: View): readonly string[] {
  const { request, mode, reasons } = choice;
  const { colors } = view;
  const asked = request === "default"
    ? "no mode was asked for, which means iptables"
    : `asked for was ${request}`;
  const taken = mode === undefined ? "a start would fail" : `a start would take ${mode}`;
  const mark = mode === undefined ? colors.red : colors.green;
  return [
    mark("Mode".padEnd(INDENT)) + entry("", `${taken}; ${asked}`, view).slice(INDENT),
    ...reasons.map((reason) => bullet(reason, view)),
  ];
}

function modeLines(
  { mode, inRelease, families, features, notTried }: DoctorMode,
  view: View,
): readonly string[] {
  const { colors } = view;
  const [mark, works] = families.length === 0
    ? [colors.red, "cannot run on this host"] as const
    : [colors.green, "this host can do it"] as const;
  const limit = families.length === 1 ? `, for ${families[0]} only` : "";
  const release = inRelease ? "" : "; this release does not have it";
  const rows = mergeFamilies(features);
  const there = rows.filter(({ available }) => available);
  const absent = rows.filter(({ available }) => !available);
  return [
    colors.bold(mark(mode.padEnd(INDENT))) +
    entry("", `${works}${limit}${release}`, view).slice(INDENT),
    ...(notTried === undefined ? [] : [entry("", notTried, view)]),
    ...absent.filter((row) => row.required).flatMap((row) => missingLines("  lacks", row, view)),
    ...absent.filter((row) => !row.required).flatMap((row) => missingLines("  without", row, view)),
    ...(there.length === 0 ? [] : [entry("  there", there.map(named).join(", "), view)]),
    ...there.filter(({ detail }) => detail !== WORKS)
      .map((row) => bullet(`${named(row)}: ${row.detail}`, view)),
  ];
}

/** What is said of a feature of which there is nothing to say. */
const WORKS = "works";

function missingLines(word: string, row: MergedRow, view: View): readonly string[] {
  const { colors } = view;
  const { detail, lost, cure, required } = row;
  const mark = required ? colors.red : colors.yellow;
  return [
    mark(word.padEnd(INDENT)) + entry("", `${named(row)}: ${detail}`, view).slice(INDENT),
    ...(lost === undefined ? [] : [bullet(`lost: ${lost}`, view)]),
    ...(cure === undefined ? [] : [bullet(`cure: ${cure}`, view)]),
  ];
}

/** Of one feature in all families that fare alike. */
interface MergedRow extends Omit<ProbeResult, "family"> {
  readonly families: readonly IpFamily[];
}

function mergeFamilies(results: readonly ProbeResult[]): readonly MergedRow[] {
  const rows = new Map<string, MergedRow>();
  for (const { family, ...result } of results) {
    const key = `${result.feature} ${result.available}`;
    const { families = [], detail } = rows.get(key) ?? {};
    rows.set(key, {
      ...result,
      detail: detail === undefined || detail === result.detail
        ? result.detail
        : `${detail}; ${result.detail}`,
      families: [...families, ...(family === undefined ? [] : [family])],
    });
  }
  return [...rows.values()];
}

/** Its name, and the family where not both are meant. */
function named({ feature, families }: MergedRow): string {
  const [only] = families;
  return only !== undefined && families.length < IP_FAMILIES.length
    ? `${feature} (${only})`
    : feature;
}

function findingLines(report: DoctorReport, view: View): readonly string[] {
  const { colors } = view;
  const { findings } = report;
  const verdict = isBlocked(report)
    ? colors.red("Something has to be done before kube-relay can work here.")
    : findings.some(({ severity }) => severity === "warning")
    ? colors.yellow("Nothing is in the way; there are warnings.")
    : colors.green("Nothing is in the way.");
  return [...findings.flatMap((finding) => oneFinding(finding, view)), verdict];
}

function oneFinding(
  { severity, summary, evidence, cure }: HostFinding,
  view: View,
): readonly string[] {
  const { colors } = view;
  const mark = { blocking: colors.red, warning: colors.yellow, info: colors.cyan }[severity];
  return [
    mark(severity.padEnd(INDENT)) + entry("", `${summary}.`, view).slice(INDENT),
    ...evidence.map((line) => bullet(line, view)),
    ...(cure === undefined ? [] : [bullet(`cure: ${cure}`, view)]),
    "",
  ];
}

/** A word and text beside it, broken to the width. */
function entry(word: string, text: string, { columns }: View): string {
  const lines = wrapText(printableText(text), { width: columns, indent: INDENT });
  return word.padEnd(INDENT) + lines.slice(INDENT);
}

/** One of several lines below a word. */
function bullet(text: string, { columns }: View): string {
  const lines = wrapText(printableText(text), { width: columns, indent: INDENT + 2 });
  return `${" ".repeat(INDENT)}- ${lines.slice(INDENT + 2)}`;
}
