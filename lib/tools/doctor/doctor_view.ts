/** The answer of `doctor`: findings first, then what is well in one line per mode. Pure. */
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";
import type { ProbeResult } from "../../proxy/service_mode.ts";
import type { Report, Row, Tone } from "../report.ts";
import { type DoctorMode, type DoctorReport, isBlocked } from "./doctor_report.ts";

const SEVERITY_TONES: Readonly<Record<HostFinding["severity"], Tone>> = {
  blocking: "bad",
  warning: "warning",
  info: "effect",
};

/** Makes the report. Without `isVerbose` it has no facts about the machine and no features. */
export function doctorView(report: DoctorReport, isVerbose: boolean): Report {
  const { findings } = report;
  const [title, tone] = isBlocked(report)
    ? ["kube-relay cannot run here until these problems are fixed.", "bad"] as const
    : findings.some(({ severity }) => severity === "warning")
    ? ["kube-relay can run here, with warnings.", "warning"] as const
    : ["kube-relay can run here.", "good"] as const;
  const { request, mode, reasons } = report.choice;
  const asked = request === "default"
    ? "no mode was requested, and the default is iptables"
    : `requested: ${request}`;
  const taken = mode === undefined ? "a start would fail" : `a start would choose ${mode}`;
  const rows: readonly Row[] = [
    {
      cells: ["Mode", `${taken}; ${asked}`],
      tone: mode === undefined ? "bad" : "good",
      detail: reasons,
    },
    ...report.modes.map((mode) => modeRow(mode, isVerbose)),
    ...factRows(report, isVerbose),
  ];
  return {
    title,
    tone,
    rows: [],
    parts: [
      ...(findings.length === 0 ? [] : [{
        title: "",
        rows: findings.map(({ severity, summary, evidence, cure }): Row => ({
          cells: [severity, `${summary}.`],
          tone: SEVERITY_TONES[severity],
          detail: [...evidence, ...(cure === undefined ? [] : [`remedy: ${cure}`])],
        })),
        parts: [],
      }]),
      { title: "", rows, parts: [] },
    ],
  };
}

function modeRow(
  { mode, inRelease, families, features, notTried }: DoctorMode,
  isVerbose: boolean,
): Row {
  const rows = mergeFamilies(features);
  const [tone, works] = notTried !== undefined
    ? ["warning", notTried] as const
    : families.length === 0
    ? ["bad", "does not work on this host"] as const
    : ["good", "works on this host"] as const;
  const limit = families.length === 1 ? `, for ${families[0]} only` : "";
  const namesOf = (isRequired: boolean) =>
    rows.filter(({ available, required }) => !available && required === isRequired).map(named);
  const [lacking, without] = [namesOf(true), namesOf(false)];
  const text = [
    `${works}${limit}`,
    ...(inRelease ? [] : ["not in this release"]),
    ...(lacking.length === 0 ? [] : [`lacks ${lacking.join(", ")}`]),
    ...(without.length === 0 ? [] : [`without ${without.join(", ")}`]),
  ].join("; ");
  return { cells: [mode, text], tone, ...(isVerbose && { detail: rows.flatMap(featureLines) }) };
}

function featureLines(row: MergedRow): readonly string[] {
  const { available, required, detail, lost, cure } = row;
  // The detail of a feature that works without restrictions.
  if (available) return [`has ${named(row)}${detail === "works" ? "" : `: ${detail}`}`];
  return [
    `${required ? "lacks" : "without"} ${named(row)}: ${detail}`,
    ...(lost === undefined ? [] : [`  lost: ${lost}`]),
    ...(cure === undefined ? [] : [`  remedy: ${cure}`]),
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

function factRows(
  { program, machine, api, relay, configuredBy }: DoctorReport,
  isVerbose: boolean,
): readonly Row[] {
  const { version, kubeProxy, deno, platform } = program;
  const { hostname, kernel, uid, capabilities, toolsPath } = machine;
  const user = uid === 0 ? "root" : uid === undefined ? "unknown user" : `user ${uid}`;
  const rights = capabilities === undefined
    ? "the rights of its tools could not be determined"
    : capabilities.length === 0
    ? "its tools have no capability of use here"
    : `its tools have ${capabilities.join(", ")}`;
  const facts = [
    ["API", `${api.state}: ${api.detail}`],
    ["Running", relay.state === "running" ? relay.detail : `${relay.state}: ${relay.detail}`],
    ["Checked", `the configuration of ${configuredBy}`],
    ...(isVerbose
      ? [
        ["kube-relay", `v${version} (kube-proxy ${kubeProxy}, Deno ${deno}, ${platform})`],
        ["Machine", `${hostname}, kernel ${kernel ?? "unknown"}`],
        ["User", `${user}; ${rights}`],
        ...(toolsPath.length === 0 ? [] : [["Tools", `first in ${toolsPath.join(", ")}`]]),
      ]
      : []),
  ];
  return facts.map((cells) => ({ cells }));
}
