import { messageOf } from "../../log/message_of.ts";
import { findingOf, type HostFinding } from "../../proxy/host_checks.ts";
import { askControl, ControlError } from "../control/control_client.ts";
import { statusProblems } from "../status/status_answer.ts";
import type { StatusReport } from "../status/status_report.ts";
import type { DoctorRelay, Fact } from "./doctor_report.ts";

/** Lines of evidence that one finding shows. */
const MOST_EVIDENCE = 10;

/** Asks the running kube-relay over the control socket. Never rejects. */
export async function examineRelay(controlSocket: string): Promise<Fact<DoctorRelay>> {
  try {
    const status = await askControl(controlSocket, "/status", { brief: "" });
    const { version, pid, phase, families, controllers = [] } = status;
    const mode = families[0]?.mode;
    const modes = [...new Set(families.map(({ mode }) => mode))].join(", ");
    const isEnforcing = controllers.some(({ controller }) => controller === "network-policy");
    return {
      fact: {
        state: "running",
        detail: `v${version}, process ${pid}, ${phase}, mode ${modes}`,
        ...(mode !== undefined && { mode }),
        ...(isEnforcing && { networkPolicy: true }),
      },
      findings: relayFindings(status),
      nodeAnnotations: status.node.annotations,
    };
  } catch (error) {
    const isAbsent = error instanceof ControlError && error.kind === "not-running";
    const fact = isAbsent
      ? { state: "not running", detail: `no program listens at ${controlSocket}` } as const
      : { state: "unknown", detail: messageOf(error) } as const;
    return { fact, findings: [] };
  }
}

/** The findings for the kinds of problems that a status reports; those of single Services are no finding. */
const FINDINGS = [
  ["kernel", "relay-settings", "Settings of this machine were refused"],
  ["sync", "relay-syncs-fail", "Syncs of the running kube-relay fail"],
  [
    "quarantine",
    "relay-quarantine",
    "Parts of the running kube-relay are in quarantine; the others work",
  ],
  ["source", "relay-sources", "Sources of the running kube-relay have problems"],
] as const;

/** The problems that a status reports. */
export function relayFindings(status: StatusReport): readonly HostFinding[] {
  const time = (at: number) => new Date(at).toISOString();
  const kinds = Map.groupBy(statusProblems(status, { time }), ({ cells: [kind = ""] }) => kind);
  return FINDINGS.flatMap(([kind, id, summary]) => {
    const lines = (kinds.get(kind) ?? []).map(({ cells: [, text], detail = [] }) =>
      [text, detail.join(" ")].filter((part) => part !== "").join("; ")
    );
    const more = lines.length - MOST_EVIDENCE;
    return findingOf([
      ...lines.slice(0, MOST_EVIDENCE),
      ...(more > 0 ? [`and ${more} more: kube-relay status has them all`] : []),
    ], { id, severity: "warning", summary });
  });
}
