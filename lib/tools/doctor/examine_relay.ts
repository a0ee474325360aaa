import { loopText } from "../../engine/loop_id.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";
import { ControlError, requestStatus } from "../control/control_client.ts";
import type { StatusReport } from "../status/status_report.ts";
import type { DoctorRelay, Examined, KnownNode } from "./doctor_report.ts";

/** Lines of evidence that one finding shows. */
const MOST_EVIDENCE = 10;

/** Asks the running kube-relay over the control socket. Never rejects. */
export async function examineRelay(
  controlSocket: string,
): Promise<Examined<DoctorRelay> & KnownNode> {
  try {
    const status = await requestStatus(controlSocket, { brief: true });
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

/** The problems that a status reports. */
export function relayFindings(
  { families, controllers = [], sources, hostSettings }: StatusReport,
): readonly HostFinding[] {
  const loops = [{ controller: "service", families } as const, ...controllers].flatMap((each) =>
    each.families.map((loop) => ({ ...loop, name: loopText({ ...each, ...loop }) }))
  );
  const quarantined = loops.flatMap(({ name, quarantined }) =>
    quarantined.map(({ key, reason }) => `${name}: ${key}: ${reason}`)
  );
  const failing = loops.flatMap(({ name, failures, lastError }) =>
    failures === 0 ? [] : [`${name}: ${failures} since the last good one: ${lastError ?? "?"}`]
  );
  const problems = sources.flatMap(({ name, problems }) =>
    problems.map((problem) => `${name}: ${problem}`)
  );
  const refused = hostSettings.filter(({ state }) => state === "refused").map((setting) => {
    const { name, wanted, found = "unknown", reason = "refused", cure } = setting;
    return `${name} is ${found}, not ${wanted}: ${reason}${cure === undefined ? "" : `; ${cure}`}`;
  });
  return [
    ...warning("relay-settings", "Settings of this machine were refused", refused),
    ...warning("relay-syncs-fail", "Syncs of the running kube-relay fail", failing),
    ...warning(
      "relay-quarantine",
      "Parts of the running kube-relay are in quarantine; the others work",
      quarantined,
    ),
    ...warning("relay-sources", "Sources of the running kube-relay have problems", problems),
  ];
}

function warning(id: string, summary: string, lines: readonly string[]): readonly HostFinding[] {
  if (lines.length === 0) return [];
  const more = lines.length - MOST_EVIDENCE;
  const evidence = [
    ...lines.slice(0, MOST_EVIDENCE),
    ...(more > 0 ? [`and ${more} more: kube-relay status has them all`] : []),
  ];
  return [{ id, severity: "warning", summary, evidence }];
}
