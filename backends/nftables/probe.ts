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
import type { NftablesFeatures } from "./render_options.ts";

/** A ServicePort, and a hash of the sender. */
const CLIENT = "meta priority and 0xbfff8000 . jhash {ip} saddr mod 64";

/**
 * Features with the statements to try. Each is tried alone: none uses the objects of another. `{table}`
 * stands for family and table, `{address}` for an address, `{type}` for its type, `{ip}` for its protocol.
 */
const NFT_FEATURES: readonly (Feature & { readonly statements: readonly string[] })[] = [
  {
    feature: "base chains of type nat",
    required: true,
    statements: [
      "add chain {table} nat-pre { type nat hook prerouting priority -100 ; }",
      "add chain {table} nat-out { type nat hook output priority -100 ; }",
      "add chain {table} nat-post { type nat hook postrouting priority 100 ; }",
    ],
    lost: "Nothing can be forwarded",
    broughtBy: "modprobe nft_chain_nat, or a kernel with CONFIG_NFT_NAT",
  },
  {
    feature: "maps with concatenated keys",
    required: true,
    statements: [
      "add map {table} services { type {type} . inet_proto . inet_service : classid ; }",
      "add element {table} services { {address} . tcp . 80 : 0x80000001 }",
    ],
    lost: "Services cannot be looked up",
    broughtBy: "modprobe nft_set_hash, or a kernel with CONFIG_NF_TABLES (5.6 or newer)",
  },
  {
    feature: "numbers in the priority of packets",
    required: true,
    statements: [
      "add map {table} fronts { type {type} . inet_proto . inet_service : classid ; }",
      "add map {table} numbers { type classid : verdict ; }",
      "add chain {table} target",
      "add element {table} numbers { 0x80000001 : goto target }",
      "add rule {table} probe meta priority set {ip} daddr . meta l4proto . th dport map @fronts " +
      "meta priority vmap @numbers",
      "add rule {table} probe meta priority and 0x80000000 != 0 meta priority set 0",
    ],
    lost: "Lookups cannot be chained",
    broughtBy: "nftables 1.0.1 or newer and a kernel with CONFIG_NF_TABLES (5.13 or newer)",
  },
  {
    feature: "numgen",
    required: true,
    statements: [
      "add rule {table} probe meta priority set numgen random mod 2 offset 2147483648",
    ],
    lost: "A Service with several endpoints would use only the first",
    broughtBy: "modprobe nft_numgen, or a kernel with CONFIG_NFT_NUMGEN",
  },
  {
    feature: "dnat to an entry of a map",
    required: true,
    statements: [
      "add map {table} endpoints { type {type} . inet_proto . inet_service . classid : " +
      "{type} . inet_service ; }",
      "add rule {table} probe dnat {ip} addr . port to {ip} daddr . meta l4proto . th dport . " +
      "meta priority map @endpoints",
    ],
    lost: "Nothing can be forwarded",
    broughtBy: "nftables 1.0.1 or newer, and modprobe nft_nat or a kernel with CONFIG_NFT_NAT",
  },
  {
    feature: "masquerade",
    required: true,
    statements: ["add rule {table} probe masquerade fully-random"],
    lost: "Replies to clients outside the cluster get lost",
    broughtBy: "modprobe nft_masq, or a kernel with CONFIG_NFT_MASQ",
  },
  {
    feature: "packet marks",
    required: true,
    statements: ["add rule {table} probe meta mark set mark or 0x4000"],
    lost: "Masquerading: replies to clients outside the cluster get lost",
    broughtBy: "a kernel with CONFIG_NF_TABLES",
  },
  {
    feature: "fib",
    required: true,
    statements: ["add rule {table} probe fib daddr type local accept"],
    lost: "Node ports",
    broughtBy: "modprobe nft_fib_ipv4 (nft_fib_ipv6), or a kernel with CONFIG_NFT_FIB_IPV4 " +
      "(CONFIG_NFT_FIB_IPV6)",
  },
  {
    feature: "ct status",
    required: true,
    statements: ["add rule {table} probe ct status dnat accept"],
    lost: "An endpoint cannot be sent its own connections",
    broughtBy: "modprobe nft_ct, or a kernel with CONFIG_NFT_CT",
  },
  {
    feature: "reject",
    required: false,
    statements: [
      "add chain {table} refuse { type nat hook prerouting priority -100 ; }",
      "add rule {table} refuse reject",
    ],
    lost: "Connections to Services without endpoints time out instead of being refused",
    broughtBy: "modprobe nft_reject_ipv4 (nft_reject_ipv6), or a kernel with CONFIG_NFT_REJECT",
  },
  {
    feature: "ranges in concatenated keys",
    required: true,
    statements: [
      "add set {table} sources { type {type} . inet_service . {type} ; flags interval ; }",
      "add rule {table} probe {ip} daddr . th dport . {ip} saddr @sources accept",
    ],
    lost: "Source ranges of load balancers",
    broughtBy: "a kernel with CONFIG_NF_TABLES (5.6 or newer)",
  },
  {
    feature: "maps filled by rules",
    required: false,
    statements: [
      "add map {table} clients { typeof meta priority . numgen random mod 2 : meta priority ; " +
      "flags dynamic,timeout ; size 64 ; }",
      "add map {table} slots { type {type} . classid : {type} . inet_service ; }",
      `add rule {table} probe meta priority set ${CLIENT} map @clients ` +
      `update @clients { ${CLIENT} timeout 60s : meta priority } ` +
      "meta priority set meta priority or 0x40000000 {ip} daddr . meta priority @slots",
      `add rule {table} probe delete @clients { ${CLIENT} : meta priority }`,
    ],
    lost: "Services with sessionAffinity ClientIP are put in quarantine",
    broughtBy: "modprobe nft_hash, or a kernel with CONFIG_NFT_HASH",
  },
];

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

/**
 * Tries everything that the mode needs, in both families; leaves nothing behind. `kernelRelease` as
 * `uname -r` prints it.
 */
export async function probeNftablesMode(
  { kernelRelease, env, ...dependencies }: ProbeDependencies & {
    readonly kernelRelease: string;
    readonly env: (name: string) => string | undefined;
  },
  { signal }: { readonly signal?: AbortSignal } = {},
): Promise<readonly ProbeResult[]> {
  const [program, tools, ...families] = await Promise.all([
    probeProgram(dependencies, PROGRAM, "nft", { least: LEAST_NFT, signal }),
    probeSharedTools(dependencies, signal),
    ...IP_FAMILIES.map((family) => probeFamily(dependencies, family, signal)),
  ]);
  const kernel = probeKernel(kernelRelease, env);
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

function probeKernel(
  kernelRelease: string,
  env: (name: string) => string | undefined,
): ProbeResult {
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
