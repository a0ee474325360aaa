/**
 * Chooses the mode of a run from the request, the modes of this build and the features of the host.
 *
 * @module
 */
import type { ModeRequest } from "../../config/load.ts";
import type { Logger } from "../../log/logger.ts";
import { IP_FAMILIES, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { CommandRunner } from "../../os/command_runner.ts";
import type { Network } from "../../os/network.ts";
import { Sysctl } from "../../os/sysctl.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { HostCheckOptions } from "../../proxy/host_checks.ts";
import {
  missingText,
  type ModeSupport,
  type ProbeResult,
  supportOf,
} from "../../proxy/service_mode.ts";
import type { Dependencies } from "../dependencies.ts";

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

/** A mode, and the IP families in which the host supports it. */
interface ChosenMode {
  readonly mode: BackendMode;
  readonly families: readonly IpFamily[];
}

/**
 * Chooses a mode. A mode that is requested by name is used or refused with a {@linkcode ModeError},
 * never replaced: kube-proxy's silent fallbacks left nodes in modes that no administrator had chosen.
 */
export async function chooseMode(
  { logger, ...dependencies }: Pick<Dependencies, "backends" | "hostChecks"> & {
    readonly logger: Logger;
  },
  request: ModeRequest,
  options: HostCheckOptions = {},
): Promise<ChosenMode> {
  const verdict = await chooseVerdict(
    logger,
    request,
    (mode) => evaluateMode(dependencies, mode, options),
  );
  const { mode, support: { families, missing, reduced } } = verdict;
  for (const ipFamily of IP_FAMILIES.filter((family) => !families.includes(family))) {
    const reason = missingText(missing.filter(({ family }) => family === ipFamily));
    logger.warn("Mode does not work in an IP family on this host", { mode, ipFamily, reason });
  }
  if (reduced.length > 0) {
    const features = [...new Set(reduced.map(({ feature }) => feature))].join(", ");
    const message = "Some features of the mode are missing; kube-relay doctor lists them";
    logger.info(message, { mode, features });
  }
  return { mode, families };
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

/** Like {@linkcode chooseMode}; `doctor` passes verdicts that it already has. */
export async function chooseVerdict(
  logger: Logger,
  request: ModeRequest,
  evaluate: (mode: BackendMode) => Promise<ModeVerdict>,
): Promise<ModeVerdict> {
  if (request === "auto") return await chooseBest(logger, evaluate);
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
    { reason: wanted.refusal },
  );
  return await chooseBest(logger, evaluate, wanted);
}

/**
 * Returns the first of {@linkcode AUTO_ORDER} that works. Logs each mode that it skips, but not one that
 * is `known`.
 */
async function chooseBest(
  logger: Logger,
  evaluate: (mode: BackendMode) => Promise<ModeVerdict>,
  known?: ModeVerdict,
): Promise<ModeVerdict> {
  const refusals: string[] = [];
  for (const mode of AUTO_ORDER) {
    const verdict = mode === known?.mode ? known : await evaluate(mode);
    if (verdict.refusal === undefined) {
      logger.info("Chose the best mode that works here", { mode });
      return trustLateTool(logger, verdict);
    }
    refusals.push(`${mode}: ${verdict.refusal}`);
    if (verdict !== known) logger.info("Skipped a mode", { mode, reason: verdict.refusal });
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

/** The evaluation of a mode. */
export interface ModeVerdict {
  readonly mode: BackendMode;
  /** The reason why the mode is not available; absent if it is. */
  readonly refusal?: string;
  readonly results: readonly ProbeResult[];
  readonly support: ModeSupport;
}

/**
 * Evaluates one mode; `always` also one that this build lacks. Rejects only if the caller aborts.
 */
export async function evaluateMode(
  { backends, hostChecks }: Pick<Dependencies, "backends" | "hostChecks">,
  mode: BackendMode,
  { always = false, ...options }: HostCheckOptions & { readonly always?: boolean } = {},
): Promise<ModeVerdict> {
  const absent = backends[mode] === undefined;
  const results = absent && !always ? [] : await hostChecks.probeMode(mode, options);
  const support = supportOf(results);
  const refusal = absent
    ? `this release has ${Object.keys(backends).join(", ")} only`
    : support.families.length === 0
    ? missingText(support.missing)
    : undefined;
  return { mode, results, support, ...(refusal !== undefined && { refusal }) };
}

const DISABLE_IPV6 = "net.ipv6.conf.all.disable_ipv6";

/**
 * Returns both families if the kernel has both, whatever the cluster uses, as kube-proxy does; only
 * IPv4 if IPv6 is off. On a host without `sysctl`, the addresses decide.
 *
 * kube-proxy looks for `/proc/net/if_inet6`, which this process may not open. But a kernel with IPv6
 * always has `::1` on `lo`, and only such a kernel knows the setting.
 */
export async function chooseFamilies(
  { network, commands, logger }: {
    readonly network: Pick<Network, "interfaceAddresses">;
    readonly commands: CommandRunner;
    readonly logger: Logger;
  },
): Promise<readonly IpFamily[]> {
  const only = (reason: string): readonly IpFamily[] => {
    logger.info("Skipping an IP family", { ipFamily: "IPv6", reason });
    return ["IPv4"];
  };
  const addresses = network.interfaceAddresses();
  if (!addresses.some(({ address }) => ipFamilyOf(address) === "IPv6")) {
    return only("no interface has an IPv6 address, not even lo");
  }
  const { values } = await new Sysctl(commands).read([DISABLE_IPV6]);
  return values.get(DISABLE_IPV6) === "1" ? only(`${DISABLE_IPV6} is 1`) : IP_FAMILIES;
}
