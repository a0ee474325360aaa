/**
 * Which mode a run takes: what was asked for, against what this build has and the host can do.
 *
 * @module
 */
import type { ModeRequest } from "../../config/mode_request.ts";
import type { Logger } from "../../log/logger.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import { missingText } from "../../proxy/mode_support.ts";
import type { Dependencies } from "../dependencies.ts";
import { evaluateMode, type ModeVerdict } from "./evaluate_mode.ts";

/** The modes of `auto`, best first. IPVS is for those who ask for it. */
export const AUTO_ORDER: readonly BackendMode[] = ["nftables", "iptables", "userspace"];

/** The mode that a request names. No mode means iptables, as upstream. */
export function namedMode<Request extends ModeRequest>(
  request: Request,
): Exclude<Request, "default"> | "iptables" {
  return request === "default" ? "iptables" : request as Exclude<Request, "default">;
}

/** The mode that was asked for cannot be had. */
export class ModeError extends Error {
  override name = "ModeError";
}

/** What the choice depends on. */
type ModeDependencies =
  & Pick<Dependencies, "backends" | "hostChecks">
  & { readonly logger: Logger };

/** What is asked for. */
interface ModeChoiceOptions {
  readonly signal?: AbortSignal;
}

/** What was chosen. */
interface ChosenMode {
  readonly mode: BackendMode;
  /** IP families in which the host can do it. */
  readonly families: readonly IpFamily[];
}

/**
 * Chooses. A mode that was asked for by name is taken or refused with a {@linkcode ModeError}, never
 * replaced: upstream's silent fallbacks left nodes in modes that nobody had asked for.
 */
export async function chooseMode(
  dependencies: ModeDependencies,
  request: ModeRequest,
  options: ModeChoiceOptions = {},
): Promise<ChosenMode> {
  const weigh = (mode: BackendMode) => evaluateMode(dependencies, mode, options);
  const verdict = await chooseVerdict(dependencies, { request, weigh });
  logLimits(dependencies, verdict);
  return { mode: verdict.mode, families: verdict.support.families };
}

/** The families that host and mode both have. Throws a {@linkcode ModeError} when there is none. */
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

/** How a choice is made; `doctor` gives verdicts that it has already. */
interface VerdictOptions {
  readonly request: ModeRequest;
  readonly weigh: (mode: BackendMode) => Promise<ModeVerdict>;
}

/** As {@linkcode chooseMode}, with what was found of the mode. */
export async function chooseVerdict(
  { logger }: Pick<ModeDependencies, "logger">,
  { request, weigh }: VerdictOptions,
): Promise<ModeVerdict> {
  if (request === "auto") return await chooseBest(logger, { weigh, known: [] });
  const wanted = await weigh(namedMode(request));
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
  return await chooseBest(logger, { weigh, known: [wanted] });
}

/** The first of {@linkcode AUTO_ORDER} that works; one line of the log for each that is passed over. */
async function chooseBest(
  logger: Logger,
  { weigh, known }: Pick<VerdictOptions, "weigh"> & { readonly known: readonly ModeVerdict[] },
): Promise<ModeVerdict> {
  const refusals: string[] = [];
  for (const mode of AUTO_ORDER) {
    const told = known.find((verdict) => verdict.mode === mode);
    const verdict = told ?? await weigh(mode);
    if (verdict.refusal === undefined) {
      logger.info("Chose the best mode that works here", { mode });
      return verdict;
    }
    refusals.push(`${mode}: ${verdict.refusal}`);
    if (!told) logger.info("Skipped a mode", { mode, reason: verdict.refusal });
  }
  throw new ModeError(`Cannot find a mode that works here: ${refusals.join("; ")}`);
}

/** What does not work although the mode does. */
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
