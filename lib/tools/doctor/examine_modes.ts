import {
  AUTO_ORDER,
  chooseVerdict,
  evaluateMode,
  ModeError,
  type ModeVerdict,
} from "../../app/run/choose_mode.ts";
import { idleBackendOptions } from "../../app/run/plan_settings.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import { BACKEND_MODES, type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import { findingOf } from "../../proxy/host_checks.ts";
import type { ProbeResult } from "../../proxy/service_mode.ts";
import {
  type CollectedLine,
  collectingLogger,
  type DoctorChoice,
  type DoctorMode,
  type Edges,
  type Fact,
} from "./doctor_report.ts";

const KERNEL_MODES_OF_AUTO: readonly BackendMode[] = AUTO_ORDER
  .filter((mode) => !MODE_TRAITS[mode].forwardsItself);

/** All modes; those that `auto` tries come first. */
const ALL_MODES: readonly BackendMode[] = [...new Set([...KERNEL_MODES_OF_AUTO, ...BACKEND_MODES])];

/**
 * Tests one mode after the other: two that write the same kind of rules would interfere. Userspace mode
 * is not tested while kube-relay may be running.
 */
export async function examineModes(
  edges: Edges,
  mayRun: boolean,
): Promise<Fact<DoctorChoice> & { readonly modes: readonly DoctorMode[] }> {
  const { dependencies, configuration: { mode: request }, signal } = edges;
  const verdicts = new Map<BackendMode, ModeVerdict>();
  const modes: DoctorMode[] = [];
  for (const mode of ALL_MODES) {
    const verdict = await evaluateMode(dependencies, mode, { always: true, signal });
    verdicts.set(mode, verdict);
    const { results: features, support: { families } } = verdict;
    const inRelease = dependencies.backends[mode] !== undefined;
    const own = !inRelease || !MODE_TRAITS[mode].forwardsItself
      ? {}
      : mayRun
      ? { notTried: "not tested because kube-relay may be running" }
      : { features: await probeUserspace(edges) };
    modes.push({ mode, inRelease, families, features, ...own });
  }
  const lines: CollectedLine[] = [];
  const evaluate = (mode: BackendMode) => Promise.resolve(verdicts.get(mode)!);
  try {
    const logger = collectingLogger(lines);
    const { mode } = await chooseVerdict(logger, request, evaluate);
    const reasons = lines.filter(({ fields }) => fields.reason !== undefined)
      .map(({ fields }) => `${fields.mode ?? "iptables"}: ${fields.reason}`);
    return { modes, fact: { request, mode, reasons }, findings: [] };
  } catch (error) {
    if (!(error instanceof ModeError)) throw error;
    const findings = findingOf([error.message], {
      id: "no-mode",
      severity: "blocking",
      summary: "kube-relay would not start in the given mode",
      cure: "install the missing parts, or use --proxy-mode=auto",
    });
    return { modes, fact: { request, reasons: [error.message] }, findings };
  }
}

/** Its backend tests how addresses become local; none of these features is required. */
async function probeUserspace(
  { dependencies, configuration, logger }: Edges,
): Promise<readonly ProbeResult[]> {
  const features: ProbeResult[] = [];
  for (const family of IP_FAMILIES) {
    const options = idleBackendOptions(configuration, family);
    await using backend = dependencies.backends.userspace!({ ...dependencies, logger }, options);
    features.push(...(await backend.probe()).map((result) => ({ ...result, family })));
  }
  return features;
}
