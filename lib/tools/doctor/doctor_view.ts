/** The findings of `doctor` as text. Pure: the same report gives the same text. */
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import type { ProbeResult } from "../../proxy/service_mode.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";
import { hangingText, type TextLook, type TextStyle, textStyle } from "../cli/terminal_text.ts";
import { type DoctorMode, type DoctorReport, isBlocked } from "./doctor_report.ts";

/** Width of the column of labels. */
const INDENT = 11;

/** Formats the machine, each mode, the findings and the verdict. */
export function renderDoctor(report: DoctorReport, look: TextLook = {}): string {
  const view = textStyle(look, { most: 110 });
  const sections = [
    factLines(report, view),
    choiceLines(report, view),
    ...report.modes.map((mode) => modeLines(mode, view)),
    findingLines(report, view),
  ];
  return sections.map((lines) => `${lines.join("\n")}\n`).join("\n");
}

function factLines(
  { program, machine, api, relay }: DoctorReport,
  view: TextStyle,
): readonly string[] {
  const { version, kubeProxy, deno, platform } = program;
  const { hostname, kernel, uid, capabilities, toolsPath } = machine;
  const user = uid === 0 ? "root" : uid === undefined ? "unknown user" : `user ${uid}`;
  const rights = capabilities === undefined
    ? "the rights of its tools could not be determined"
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

function choiceLines({ choice }: DoctorReport, view: TextStyle): readonly string[] {
  const { request, mode, reasons } = choice;
  const { colors } = view;
  const asked = request === "default"
    ? "no mode was requested, and the default is iptables"
    : `requested: ${request}`;
  const taken = mode === undefined ? "a start would fail" : `a start would choose ${mode}`;
  const mark = mode === undefined ? colors.red : colors.green;
  return [
    mark("Mode".padEnd(INDENT)) + entry("", `${taken}; ${asked}`, view).slice(INDENT),
    ...reasons.map((reason) => bullet(reason, view)),
  ];
}

function modeLines(
  { mode, inRelease, families, features, notTried }: DoctorMode,
  view: TextStyle,
): readonly string[] {
  const { colors } = view;
  const [mark, works] = notTried !== undefined
    ? [colors.yellow, notTried] as const
    : families.length === 0
    ? [colors.red, "does not work on this host"] as const
    : [colors.green, "works on this host"] as const;
  const limit = families.length === 1 ? `, for ${families[0]} only` : "";
  const release = inRelease ? "" : "; not in this release";
  const rows = mergeFamilies(features);
  const there = rows.filter(({ available }) => available);
  const absent = rows.filter(({ available }) => !available);
  return [
    colors.bold(mark(mode.padEnd(INDENT))) +
    entry("", `${works}${limit}${release}`, view).slice(INDENT),
    ...absent.filter((row) => row.required).flatMap((row) => missingLines("  lacks", row, view)),
    ...absent.filter((row) => !row.required).flatMap((row) => missingLines("  without", row, view)),
    ...(there.length === 0 ? [] : [entry("  has", there.map(named).join(", "), view)]),
    ...there.filter(({ detail }) => detail !== WORKS)
      .map((row) => bullet(`${named(row)}: ${row.detail}`, view)),
  ];
}

/** The detail of a feature that works without restrictions. */
const WORKS = "works";

function missingLines(word: string, row: MergedRow, view: TextStyle): readonly string[] {
  const { colors } = view;
  const { detail, lost, cure, required } = row;
  const mark = required ? colors.red : colors.yellow;
  return [
    mark(word.padEnd(INDENT)) + entry("", `${named(row)}: ${detail}`, view).slice(INDENT),
    ...(lost === undefined ? [] : [bullet(`lost: ${lost}`, view)]),
    ...(cure === undefined ? [] : [bullet(`remedy: ${cure}`, view)]),
  ];
}

/** The result of a feature, for all families that share it. */
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

/** Returns the name of a feature, and its family if the result is for one family only. */
function named({ feature, families }: MergedRow): string {
  const [only] = families;
  return only !== undefined && families.length < IP_FAMILIES.length
    ? `${feature} (${only})`
    : feature;
}

function findingLines(report: DoctorReport, view: TextStyle): readonly string[] {
  const { colors } = view;
  const { findings } = report;
  const verdict = isBlocked(report)
    ? colors.red("kube-relay cannot run here until these problems are fixed.")
    : findings.some(({ severity }) => severity === "warning")
    ? colors.yellow("kube-relay can run here, with warnings.")
    : colors.green("kube-relay can run here.");
  return [...findings.flatMap((finding) => oneFinding(finding, view)), verdict];
}

function oneFinding(
  { severity, summary, evidence, cure }: HostFinding,
  view: TextStyle,
): readonly string[] {
  const { colors } = view;
  const mark = { blocking: colors.red, warning: colors.yellow, info: colors.cyan }[severity];
  return [
    mark(severity.padEnd(INDENT)) + entry("", `${summary}.`, view).slice(INDENT),
    ...evidence.map((line) => bullet(line, view)),
    ...(cure === undefined ? [] : [bullet(`remedy: ${cure}`, view)]),
    "",
  ];
}

/** Formats a label and the text next to it. */
function entry(word: string, text: string, { width }: TextStyle): string {
  return hangingText(word.padEnd(INDENT), text, { width });
}

/** Formats one item of the list below a label. */
function bullet(text: string, { width }: TextStyle): string {
  return hangingText(`${" ".repeat(INDENT)}- `, text, { width });
}
