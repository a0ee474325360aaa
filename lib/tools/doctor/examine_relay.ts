import type { HostFinding } from "../../proxy/host_checks.ts";
import { askControl, ControlError } from "../control/control_client.ts";
import { statusProblems } from "../status/status_answer.ts";
import type { StatusReport } from "../status/status_report.ts";
import type { DoctorRelay, Examined, KnownNode } from "./doctor_report.ts";

/** Lines of evidence that one finding shows. */
const MOST_EVIDENCE = 10;

/** Asks the running kube-relay over the control socket. Never rejects. */
export async function examineRelay(
  controlSocket: string,
): Promise<Examined<DoctorRelay> & KnownNode> {
  try {
    const status = await askControl(controlSocket, "/status", { brief: "" });
    const mode = status.families[0]?.mode;
    return {
      fact: {
        ...{ state: "running", detail: describe(status) },
        ...(mode !== undefined && { mode }),
        ...(enforcesPolicies(status) && { networkPolicy: true }),
      },
      findings: relayFindings(status),
      nodeAnnotations: status.node.annotations,
    };
  } catch (error) {
    const absent = error instanceof ControlError && error.kind === "not-running";
    const detail = absent
      ? `no program listens at ${controlSocket}`
      : error instanceof Error
      ? error.message
      : String(error);
    return { fact: { state: absent ? "not running" : "unknown", detail }, findings: [] };
  }
}

function describe({ version, pid, phase, families }: StatusReport): string {
  const modes = [...new Set(families.map(({ mode }) => mode))].join(", ");
  return `v${version}, process ${pid}, ${phase}, mode ${modes}`;
}

function enforcesPolicies({ controllers = [] }: StatusReport): boolean {
  return controllers.some(({ controller }) => controller === "network-policy");
}

/** The findings for the kinds of problems that a status reports; those of single Services are no finding. */
const FINDINGS: Readonly<Record<string, readonly [id: string, summary: string]>> = {
  kernel: ["relay-settings", "Settings of this machine were refused"],
  sync: ["relay-syncs-fail", "Syncs of the running kube-relay fail"],
  quarantine: [
    "relay-quarantine",
    "Parts of the running kube-relay are in quarantine; the others work",
  ],
  source: ["relay-sources", "Sources of the running kube-relay have problems"],
};

/** The problems that a status reports. */
export function relayFindings(status: StatusReport): readonly HostFinding[] {
  const time = (at: number) => new Date(at).toISOString();
  const kinds = Map.groupBy(statusProblems(status, { time }), ({ cells: [kind = ""] }) => kind);
  return Object.entries(FINDINGS).flatMap(([kind, [id, summary]]) => {
    const lines = (kinds.get(kind) ?? []).map(({ cells: [, text], detail = [] }) =>
      [text, detail.join(" ")].filter((part) => part !== "").join("; ")
    );
    if (lines.length === 0) return [];
    const more = lines.length - MOST_EVIDENCE;
    const evidence = [
      ...lines.slice(0, MOST_EVIDENCE),
      ...(more > 0 ? [`and ${more} more: kube-relay status has them all`] : []),
    ];
    return [{ id, severity: "warning", summary, evidence }];
  });
}
