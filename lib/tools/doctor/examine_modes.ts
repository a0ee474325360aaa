import type { LoadedConfiguration } from "../../config/load.ts";
import type { ModeRequest } from "../../config/mode_request.ts";
import type { Logger } from "../../log/logger.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import { BACKEND_MODES, type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";
import type { ProbeResult } from "../../proxy/service_mode.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import {
  AUTO_ORDER,
  chooseVerdict,
  evaluateMode,
  ModeError,
  type ModeVerdict,
} from "../../app/run/choose_mode.ts";
import { idleBackendOptions } from "../../app/run/plan_settings.ts";
import { CollectingLogger } from "./collecting_logger.ts";
import type { DoctorChoice, DoctorMode } from "./doctor_report.ts";

interface ModeExamination {
  readonly request: ModeRequest;
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
  /** The reason not to test userspace mode. */
  readonly leaveUserspaceAlone?: string;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

interface ExaminedModes {
  readonly modes: readonly DoctorMode[];
  readonly choice: DoctorChoice;
  readonly findings: readonly HostFinding[];
}

const KERNEL_MODES_OF_AUTO: readonly BackendMode[] = AUTO_ORDER
  .filter((mode) => !MODE_TRAITS[mode].forwardsItself);

/** All modes; those that `auto` tries come first. */
const ALL_MODES: readonly BackendMode[] = [
  ...KERNEL_MODES_OF_AUTO,
  ...BACKEND_MODES.filter((mode) => !KERNEL_MODES_OF_AUTO.includes(mode)),
];

/** Tests one mode after the other: two that write the same kind of rules would interfere. */
export async function examineModes(
  dependencies: Dependencies,
  examination: ModeExamination,
): Promise<ExaminedModes> {
  const { signal, request } = examination;
  const verdicts: ModeVerdict[] = [];
  const modes: DoctorMode[] = [];
  for (const mode of ALL_MODES) {
    const verdict = await evaluateMode(dependencies, mode, { always: true, signal });
    verdicts.push(verdict);
    const { results, support: { families } } = verdict;
    const inRelease = dependencies.backends[mode] !== undefined;
    const own = MODE_TRAITS[mode].forwardsItself
      ? await probeUserspace(dependencies, examination)
      : {};
    modes.push({ mode, inRelease, families, features: results, ...own });
  }
  return { modes, ...await choose(request, verdicts) };
}

/** Its backend tests how addresses become local; none of these features is required. */
async function probeUserspace(
  dependencies: Dependencies,
  { configuration, leaveUserspaceAlone: notTried, logger }: ModeExamination,
): Promise<{ readonly features?: readonly ProbeResult[]; readonly notTried?: string }> {
  const create = dependencies.backends.userspace;
  if (create === undefined) return {};
  if (notTried !== undefined) return { notTried };
  const features: ProbeResult[] = [];
  for (const family of IP_FAMILIES) {
    const options = idleBackendOptions(configuration, family);
    await using backend = create({ ...dependencies, logger }, options);
    features.push(...(await backend.probe()).map((result) => ({ ...result, family })));
  }
  return { features };
}

async function choose(
  request: ModeRequest,
  verdicts: readonly ModeVerdict[],
): Promise<{ readonly choice: DoctorChoice; readonly findings: readonly HostFinding[] }> {
  const logger = new CollectingLogger();
  const evaluate = (mode: BackendMode) =>
    Promise.resolve(verdicts.find((verdict) => verdict.mode === mode)!);
  try {
    const { mode } = await chooseVerdict({ logger }, { request, evaluate });
    const reasons = logger.lines
      .filter(({ fields }) => fields.reason !== undefined)
      .map(({ fields }) => `${fields.mode ?? "iptables"}: ${fields.reason}`);
    return { choice: { request, mode, reasons }, findings: [] };
  } catch (error) {
    if (!(error instanceof ModeError)) throw error;
    const finding: HostFinding = {
      id: "no-mode",
      severity: "blocking",
      summary: "kube-relay would not start in the given mode",
      evidence: [error.message],
      cure: "install the missing parts, or use --proxy-mode=auto",
    };
    return { choice: { request, reasons: [error.message] }, findings: [finding] };
  }
}
