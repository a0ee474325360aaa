import { IP_FAMILIES, type IpFamily } from "../../lib/net/ip_address.ts";
import type { ProbeResult } from "../../lib/proxy/service_mode.ts";
import { type Feature, NOT_PERMITTED, probeResult, RIGHTS } from "../netfilter/probe/feature.ts";
import { attemptStatements, statementTrial } from "../netfilter/probe/nft_trial.ts";
import { isAtLeast, parseVersion, versionText } from "../netfilter/probe/tool_version.ts";
import { tryFeatures } from "../netfilter/probe/try_features.ts";
import { firstLine, type ProbeDependencies, tryTool } from "../netfilter/probe/try_tool.ts";
import { probeSharedTools } from "../netfilter/probe_shared_tools.ts";
import { NFT_FEATURES } from "./nft_features.ts";
import type { NftablesFeatures } from "./render_options.ts";

interface NftablesProbeDependencies extends ProbeDependencies {
  /** As `uname -r` prints it. */
  readonly kernelRelease: string;
  readonly env: (name: string) => string | undefined;
}

interface NftablesProbeOptions {
  readonly signal?: AbortSignal | undefined;
}

/**
 * Older versions misread rules of newer ones and lack features of this mode. kube-proxy has the
 * same minimum.
 */
const LEAST_NFT = [1, 0, 1];

/** Before, bugs in maps with verdicts; kube-proxy has the same bound. */
const LEAST_KERNEL = [5, 13];

/** kube-proxy's own variable for kernels with patches of newer ones. */
const SKIP_KERNEL_CHECK = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK";

const PROGRAM: Feature = {
  feature: "nft",
  required: true,
  lost: "No rule can be written",
  broughtBy: `install nftables ${versionText(LEAST_NFT)} or newer (Debian package nftables), or ` +
    "give its folder with --tools-path",
};

/** The reason says what to do about it. */
const CRASH: Feature = { ...PROGRAM, broughtBy: "an nft that reads every table of this node" };

const KERNEL: Feature = {
  feature: "kernel",
  required: true,
  lost: "Maps of verdicts are unreliable",
  broughtBy: `a kernel ${versionText(LEAST_KERNEL)} or newer; ${SKIP_KERNEL_CHECK}=1 leaves out ` +
    "this check for one with patches",
};

const TABLE: Feature = {
  feature: "table of nftables",
  required: true,
  lost: "Nothing can be forwarded",
  broughtBy: "modprobe nf_tables, or a kernel with CONFIG_NF_TABLES and CONFIG_NF_TABLES_IPV4 " +
    "(CONFIG_NF_TABLES_IPV6)",
};

/** Tries everything that the mode needs, in both families; leaves nothing behind. */
export async function probeNftablesMode(
  dependencies: NftablesProbeDependencies,
  { signal }: NftablesProbeOptions = {},
): Promise<readonly ProbeResult[]> {
  const [program, tools, ...families] = await Promise.all([
    probeProgram(dependencies, { signal }),
    probeSharedTools(dependencies, { signal }),
    ...IP_FAMILIES.map((family) => probeFamily(dependencies, { family, signal })),
  ]);
  const before = [program, probeKernel(dependencies)];
  if (!program.available) return [...before, ...tools];
  const rows = families.flat();
  const crash = rows.find(({ feature }) => feature === CRASH.feature);
  if (crash !== undefined) return [crash, probeKernel(dependencies), ...tools];
  if (!rows.includes(NO_RIGHTS)) return [...before, ...rows, ...tools];
  return [...before, NO_RIGHTS, ...tools];
}

/**
 * Returns the features that rules can use on this machine. If nothing can be tried, the first write
 * reports the reason.
 */
export async function probeRenderFeatures(
  dependencies: ProbeDependencies,
  { family }: { readonly family: IpFamily },
): Promise<NftablesFeatures> {
  const trials = NFT_FEATURES.filter(({ required }) => !required)
    .map((row) => statementTrial(row, family));
  const { reasons, isCrash, isLate } = await tryFeatures(
    trials,
    (some) => attemptStatements(dependencies, { family }, some),
  );
  // A tool that is late with the rules of a large node, or crashes on a foreign one, has its features.
  const missing = new Set(
    isLate || isCrash ? [] : [...reasons.keys()].map(({ feature }) => feature),
  );
  return { affinity: !missing.has("maps filled by rules"), reject: !missing.has("reject") };
}

const NO_RIGHTS = probeResult(RIGHTS, { reason: NOT_PERMITTED });

async function probeProgram(
  dependencies: ProbeDependencies,
  options: NftablesProbeOptions,
): Promise<ProbeResult> {
  const answer = await tryTool(dependencies, ["nft", "--version"], options);
  if (answer.kind !== "ended") return probeResult(PROGRAM, { reason: answer.reason });
  const version = parseVersion(answer.out);
  if (answer.code !== 0 || version === undefined) {
    const said = firstLine(answer.err) || firstLine(answer.out) || "nothing";
    return probeResult(PROGRAM, { reason: `nft --version printed no version, but: ${said}` });
  }
  const detail = `version ${versionText(version)}`;
  if (isAtLeast(version, LEAST_NFT)) return probeResult(PROGRAM, { detail });
  return probeResult(PROGRAM, { reason: `${detail} is older than ${versionText(LEAST_NFT)}` });
}

function probeKernel({ kernelRelease, env }: NftablesProbeDependencies): ProbeResult {
  const version = parseVersion(kernelRelease);
  if (version !== undefined && isAtLeast(version, LEAST_KERNEL)) {
    return probeResult(KERNEL, { detail: kernelRelease });
  }
  if (env(SKIP_KERNEL_CHECK)) {
    return probeResult(KERNEL, {
      detail: `${kernelRelease}; not checked, as ${SKIP_KERNEL_CHECK} is set`,
    });
  }
  const reason = version === undefined
    ? `'${kernelRelease}' contains no version`
    : `${kernelRelease} is older than ${versionText(LEAST_KERNEL)}`;
  return probeResult(KERNEL, { reason });
}

async function probeFamily(
  dependencies: ProbeDependencies,
  { family, signal }: { readonly family: IpFamily; readonly signal: AbortSignal | undefined },
): Promise<readonly ProbeResult[]> {
  const trials = NFT_FEATURES.map((row) => statementTrial(row, family));
  const { base, reasons, notPermitted, isCrash, isLate } = await tryFeatures(
    trials,
    (some) => attemptStatements(dependencies, { family, signal }, some),
  );
  if (notPermitted) return [NO_RIGHTS];
  if (isCrash) return [probeResult(CRASH, { reason: base })];
  // Without a table nothing else could be tried.
  if (base !== undefined) return [probeResult(TABLE, { reason: base, family, isLate })];
  const tried = NFT_FEATURES.map((row) => probeResult(row, { reason: reasons.get(row), family }));
  return [probeResult(TABLE, { family }), ...tried];
}
