import { IP_FAMILIES, type IpFamily } from "../../lib/net/ip_address.ts";
import type { ProbeResult } from "../../lib/proxy/service_mode.ts";
import {
  type Bench,
  type Feature,
  NO_RIGHTS,
  probeProgram,
  probeResult,
  probeSharedTools,
  refusedOnce,
  tryFeatures,
} from "../netfilter/probe/try_features.ts";
import { isAtLeast, parseVersion, versionText } from "../netfilter/probe/tool_version.ts";
import type { ProbeDependencies } from "../netfilter/probe/try_tool.ts";
import { NFT_FEATURES } from "./nft_features.ts";
import type { NftablesFeatures } from "./render_options.ts";

interface NftablesProbeDependencies extends ProbeDependencies {
  /** As `uname -r` prints it. */
  readonly kernelRelease: string;
  readonly env: (name: string) => string | undefined;
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
  { signal }: { readonly signal?: AbortSignal } = {},
): Promise<readonly ProbeResult[]> {
  const [program, tools, ...families] = await Promise.all([
    probeProgram(dependencies, PROGRAM, "nft", { least: LEAST_NFT, signal }),
    probeSharedTools(dependencies, signal),
    ...IP_FAMILIES.map((family) => probeFamily(dependencies, family, signal)),
  ]);
  const kernel = probeKernel(dependencies);
  if (!program.available) return [program, kernel, ...tools];
  const rows = families.flat();
  const crash = rows.find(({ feature }) => feature === CRASH.feature);
  if (crash !== undefined) return [crash, kernel, ...tools];
  return [program, kernel, ...refusedOnce(rows), ...tools];
}

/**
 * Returns the features that rules can use on this machine. If nothing can be tried, the first write
 * reports the reason.
 */
export async function probeRenderFeatures(
  dependencies: ProbeDependencies,
  { family }: { readonly family: IpFamily },
): Promise<NftablesFeatures> {
  const rows = NFT_FEATURES.filter(({ required }) => !required);
  const { reasons, isCrash, isLate } = await tryFeatures(dependencies, benchOf(family), rows);
  // A tool that is late with the rules of a large node, or crashes on a foreign one, has its features.
  const missing = new Set(
    isLate || isCrash ? [] : [...reasons.keys()].map(({ feature }) => feature),
  );
  return { affinity: !missing.has("maps filled by rules"), reject: !missing.has("reject") };
}

function probeKernel({ kernelRelease, env }: NftablesProbeDependencies): ProbeResult {
  const version = parseVersion(kernelRelease);
  if (version !== undefined && isAtLeast(version, LEAST_KERNEL)) {
    return probeResult(KERNEL, { detail: kernelRelease });
  }
  if (env(SKIP_KERNEL_CHECK)) {
    const detail = `${kernelRelease}; not checked, as ${SKIP_KERNEL_CHECK} is set`;
    return probeResult(KERNEL, { detail });
  }
  const reason = version === undefined
    ? `'${kernelRelease}' contains no version`
    : `${kernelRelease} is older than ${versionText(LEAST_KERNEL)}`;
  return probeResult(KERNEL, { reason });
}

async function probeFamily(
  dependencies: ProbeDependencies,
  family: IpFamily,
  signal: AbortSignal | undefined,
): Promise<readonly ProbeResult[]> {
  const { base, reasons, notPermitted, isCrash, isLate } = await tryFeatures(
    dependencies,
    benchOf(family),
    NFT_FEATURES,
    signal,
  );
  if (notPermitted) return [NO_RIGHTS];
  if (isCrash) return [probeResult(CRASH, { reason: base })];
  // Without a table nothing else could be tried.
  if (base !== undefined) return [probeResult(TABLE, { reason: base, family, isLate })];
  const tried = NFT_FEATURES.map((row) => probeResult(row, { reason: reasons.get(row), family }));
  return [probeResult(TABLE, { family }), ...tried];
}

/** The table of the statements. It is never created. */
const SCRATCH_TABLE = "kube-relay-probe";

/**
 * Checks the statements of features in one family. `nft --check` sends them to the kernel as a transaction
 * that is never committed, so nothing can be left behind, even by a killed process.
 */
function benchOf(family: IpFamily): Bench<typeof NFT_FEATURES[number]> {
  const words: Readonly<Record<string, string>> = family === "IPv4"
    ? { table: `ip ${SCRATCH_TABLE}`, type: "ipv4_addr", address: "192.0.2.1", ip: "ip" }
    : { table: `ip6 ${SCRATCH_TABLE}`, type: "ipv6_addr", address: "2001:db8::1", ip: "ip6" };
  return {
    line: ["nft", "--check", "-f", "-"],
    input: (rows) =>
      ["add table {table}", "add chain {table} probe", ...rows.flatMap((row) => row.statements)]
        .map((line) => `${line.replace(/\{(\w+)\}/g, (_, name) => words[name] ?? "")}\n`).join(""),
  };
}
