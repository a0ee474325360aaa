/**
 * Chooses the mode of a run from the request, the modes of this build and the features of the host.
 *
 * @module
 */
import type { ModeRequest } from "../../config/mode_request.ts";
import type { Logger } from "../../log/logger.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { HostCheckOptions } from "../../proxy/host_checks.ts";
import { missingText, supportOf } from "../../proxy/mode_support.ts";
import type { Dependencies } from "../dependencies.ts";
import { evaluateMode, type ModeVerdict } from "./evaluate_mode.ts";

/** The modes of `auto`, best first. IPVS is only used if it is requested by name. */
export const AUTO_ORDER: readonly BackendMode[] = ["nftables", "iptables", "userspace"];

/** Returns the mode that a request names. No mode means iptables, as in kube-proxy. */
export function namedMode<Request extends ModeRequest>(
  request: Request,
): Exclude<Request, "default"> | "iptables" {
  return request === "default" ? "iptables" : request as Exclude<Request, "default">;
}

/** The requested mode is not available. */
export class ModeError extends Error {
  override name = "ModeError";
}

type ModeDependencies =
  & Pick<Dependencies, "backends" | "hostChecks">
  & { readonly logger: Logger };

/** The choice. */
interface ChosenMode {
  readonly mode: BackendMode;
  /** The IP families in which the host supports it. */
  readonly families: readonly IpFamily[];
}

/**
 * Chooses a mode. A mode that is requested by name is used or refused with a {@linkcode ModeError},
 * never replaced: kube-proxy's silent fallbacks left nodes in modes that no administrator had chosen.
 */
export async function chooseMode(
  dependencies: ModeDependencies,
  request: ModeRequest,
  options: HostCheckOptions = {},
): Promise<ChosenMode> {
  const evaluate = (mode: BackendMode) => evaluateMode(dependencies, mode, options);
  const verdict = await chooseVerdict(dependencies, { request, evaluate });
  logLimits(dependencies, verdict);
  return { mode: verdict.mode, families: verdict.support.families };
}

/** Returns the families that both host and mode support. Throws a {@linkcode ModeError} if there is none. */
export function commonFamilies(
  { mode, families }: ChosenMode,
  ofHost: readonly IpFamily[],
): readonly IpFamily[] {
  const common = ofHost.filter((family) => families.includes(family));
  if (common.length > 0) return common;
  throw new ModeError(
    `Cannot run in mode '${mode}': it works here for ${families.join(", ")} only, and this host ` +
      `has ${ofHost.join(", ")}; 'kube-relay doctor' shows more`,
  );
}

/** Settings of a choice; `doctor` passes verdicts that it already has. */
interface VerdictOptions {
  readonly request: ModeRequest;
  readonly evaluate: (mode: BackendMode) => Promise<ModeVerdict>;
}

/** Like {@linkcode chooseMode}, with the evaluation of the mode. */
export async function chooseVerdict(
  { logger }: Pick<ModeDependencies, "logger">,
  { request, evaluate }: VerdictOptions,
): Promise<ModeVerdict> {
  if (request === "auto") return await chooseBest(logger, { evaluate, known: [] });
  const wanted = trustLateTool(logger, await evaluate(namedMode(request)));
  if (wanted.refusal === undefined) return wanted;
  if (request !== "default") {
    const hint = wanted.results.length === 0
      ? ""
      : "; --proxy-mode=auto uses the best mode that works here, 'kube-relay doctor' shows more";
    throw new ModeError(`Cannot run in mode '${wanted.mode}': ${wanted.refusal}${hint}`);
  }
  logger.warn(
    "No mode is set, which means iptables; it is not available, so the best available mode is used",
    {
      reason: wanted.refusal,
    },
  );
  return await chooseBest(logger, { evaluate, known: [wanted] });
}

/** Returns the first of {@linkcode AUTO_ORDER} that works. Logs each mode that it skips. */
async function chooseBest(
  logger: Logger,
  { evaluate, known }: Pick<VerdictOptions, "evaluate"> & {
    readonly known: readonly ModeVerdict[];
  },
): Promise<ModeVerdict> {
  const refusals: string[] = [];
  for (const mode of AUTO_ORDER) {
    const evaluated = known.find((verdict) => verdict.mode === mode);
    const verdict = evaluated ?? await evaluate(mode);
    if (verdict.refusal === undefined) {
      logger.info("Chose the best mode that works here", { mode });
      return trustLateTool(logger, verdict);
    }
    refusals.push(`${mode}: ${verdict.refusal}`);
    if (!evaluated) logger.info("Skipped a mode", { mode, reason: verdict.refusal });
  }
  throw new ModeError(`Cannot find a mode that works here: ${refusals.join("; ")}`);
}

/**
 * Counts a feature as available if the tool did not answer in time. The rules that an earlier run left
 * may be so many that the tool is late. A write that fails is tried again; without the mode or one of its
 * families, the node would not follow any changes.
 */
function trustLateTool(logger: Logger, verdict: ModeVerdict): ModeVerdict {
  const { mode, results, support: { families, missing } } = verdict;
  const support = supportOf(results.filter(({ isLate }) => !isLate));
  if (results.length === 0 || support.families.length <= families.length) return verdict;
  logger.warn(
    "A tool did not answer in time when the features of the mode were tested; they are assumed to work",
    { mode, reason: missingText(missing) },
  );
  return { mode, results, support };
}

/** Returns the features that are missing although the mode works. */
function logLimits(
  { logger }: ModeDependencies,
  { mode, support: { families, missing, reduced } }: ModeVerdict,
): void {
  for (const ipFamily of IP_FAMILIES.filter((family) => !families.includes(family))) {
    const reason = missingText(missing.filter(({ family }) => family === ipFamily));
    logger.warn("Mode does not work in an IP family on this host", { mode, ipFamily, reason });
  }
  if (reduced.length === 0) return;
  const features = [...new Set(reduced.map(({ feature }) => feature))].join(", ");
  logger.info("Some features of the mode are missing; kube-relay doctor lists them", {
    mode,
    features,
  });
}
