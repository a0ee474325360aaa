import type { ProbeResult } from "../../lib/proxy/service_mode.ts";
import { addDummyLine, deleteLinkLine } from "../iproute/ip_text.ts";
import { RULE_FEATURES } from "../netfilter/iptables/iptables_features.ts";
import { IPTABLES_TABLES } from "../netfilter/iptables/iptables_tables.ts";
import { type Feature, NOT_PERMITTED, probeResult, RIGHTS } from "../netfilter/probe/feature.ts";
import { attemptSets, type SetFeature, setTrial } from "../netfilter/probe/ipset_trial.ts";
import type { RuleFeature } from "../netfilter/probe/iptables_trial.ts";
import { isAtLeast, parseVersion, versionText } from "../netfilter/probe/tool_version.ts";
import { tryFeatures } from "../netfilter/probe/try_features.ts";
import {
  firstLine,
  type ProbeDependencies,
  saysNotPermitted,
  tryTool,
} from "../netfilter/probe/try_tool.ts";
import { probeIptables, type TableFeature } from "../netfilter/iptables/probe_iptables.ts";
import { probeSharedTools } from "../netfilter/probe_shared_tools.ts";
import { tryScheduler } from "./scheduler_probe.ts";

interface IpvsProbeOptions {
  /** @default {"rr"} */
  readonly scheduler?: string;
  readonly signal?: AbortSignal | undefined;
}

/** Matches and targets of the mode's rules; the set match is tried by creating sets. */
const RULES: readonly RuleFeature[] = [
  RULE_FEATURES.masquerade,
  RULE_FEATURES.randomFully,
  RULE_FEATURES.markTarget,
  RULE_FEATURES.addrtype,
  RULE_FEATURES.conntrack,
  RULE_FEATURES.mark,
  RULE_FEATURES.comment,
  RULE_FEATURES.reject,
];

/** Source ranges are looked at in mangle, before any destination is changed. */
const TABLES: readonly TableFeature[] = IPTABLES_TABLES.map((row) =>
  row.table === "mangle" ? { ...row, required: true, lost: "Source ranges of load balancers" } : row
);

/** kube-proxy's own bound. */
const LEAST_IPSET = [6, 0];

/** Tries everything that the mode needs; leaves nothing behind. */
export async function probeIpvsMode(
  dependencies: ProbeDependencies,
  options: IpvsProbeOptions = {},
): Promise<readonly ProbeResult[]> {
  const { signal } = options;
  const groups = await Promise.all([
    probeIpvs(dependencies, options),
    probeSets(dependencies, options),
    probeIptables(dependencies, { tables: TABLES, rules: RULES, signal }),
    tryDummyDevice(dependencies, options),
    probeSharedTools(dependencies, { signal }),
  ]);
  const rows = groups.flat();
  // The tools were refused for the same reason, which is reported once.
  const refused = rows.filter(({ feature }) => feature === RIGHTS.feature);
  return [...rows.filter((row) => !refused.includes(row)), ...refused.slice(0, 1)];
}

async function probeIpvs(
  dependencies: ProbeDependencies,
  { scheduler = "rr", signal }: IpvsProbeOptions,
): Promise<readonly ProbeResult[]> {
  const answer = await tryTool(dependencies, ["ipvsadm", "--version"], { signal });
  if (answer.kind !== "ended") return [probeResult(IPVSADM, { reason: answer.reason })];
  const program = probeResult(IPVSADM, { detail: firstLine(answer.out) || "works" });
  const found = await tryScheduler(dependencies, { scheduler, signal });
  if (found.kind === "not permitted") {
    return [program, probeResult(RIGHTS, { reason: NOT_PERMITTED })];
  }
  if (found.kind === "no ipvs") {
    return [program, probeResult(IPVS_OF_KERNEL, { reason: found.reason })];
  }
  const { reason, detail } = found;
  return [
    program,
    probeResult(IPVS_OF_KERNEL),
    probeResult({ ...SCHEDULER, feature: `scheduler ${scheduler}` }, { reason, detail }),
  ];
}

async function probeSets(
  dependencies: ProbeDependencies,
  { signal }: IpvsProbeOptions,
): Promise<readonly ProbeResult[]> {
  const answer = await tryTool(dependencies, ["ipset", "--version"], { signal });
  if (answer.kind !== "ended") return [probeResult(IPSET, { reason: answer.reason })];
  const version = parseVersion(answer.out);
  if (version === undefined || !isAtLeast(version, LEAST_IPSET)) {
    const said = firstLine(answer.out) || firstLine(answer.err) || "no version";
    return [
      probeResult(IPSET, { reason: `expected ${versionText(LEAST_IPSET)} or newer: ${said}` }),
    ];
  }
  const program = probeResult(IPSET, { detail: `version ${versionText(version)}` });
  const trials = SET_FEATURES.map(setTrial);
  const { base, reasons, notPermitted, isLate } = await tryFeatures(
    trials,
    (some) => attemptSets(dependencies, { signal }, some),
  );
  if (notPermitted) return [program, probeResult(RIGHTS, { reason: NOT_PERMITTED })];
  return [
    program,
    ...SET_FEATURES.map((row) => probeResult(row, { reason: reasons.get(row) ?? base, isLate })),
  ];
}

/** The same name in all runs; the kernel allows 15 characters. */
const SCRATCH_DEVICE = "kr-probe0";

const ADD = `${addDummyLine(SCRATCH_DEVICE)}\n`;
const REMOVE = `${deleteLinkLine(SCRATCH_DEVICE)}\n`;

/** Throws only when the caller gave up; the device is removed then too. */
async function tryDummyDevice(
  dependencies: ProbeDependencies,
  { signal }: { readonly signal?: AbortSignal | undefined } = {},
): Promise<ProbeResult> {
  const run = (stdin: string, options: { signal?: AbortSignal | undefined } = {}) =>
    tryTool(dependencies, ["ip", "-batch", "-"], { ...options, stdin });
  let known = false;
  try {
    let answer = await run(ADD + REMOVE, { signal });
    if (answer.kind === "ended" && answer.err.includes("File exists")) {
      // A killed probe left it.
      await run(REMOVE);
      answer = await run(ADD + REMOVE, { signal });
    }
    known = answer.kind === "ended" || answer.kind === "missing";
    if (answer.kind !== "ended") return probeResult(DUMMY, { reason: answer.reason });
    const { code, err } = answer;
    if (code === 0) return probeResult(DUMMY);
    if (saysNotPermitted(err)) return probeResult(RIGHTS, { reason: NOT_PERMITTED });
    const reason = firstLine(err) || `ip ended with ${code} and no word why`;
    return probeResult(DUMMY, { reason });
  } finally {
    if (!known) await run(REMOVE);
  }
}

/** The tool of IPVS. */
const IPVSADM: Feature = {
  feature: "ipvsadm",
  required: true,
  lost: "No virtual server can be made",
  broughtBy: "install ipvsadm (Debian package ipvsadm), or name the folder that has it by " +
    "--tools-path",
};

/** IPVS itself. */
const IPVS_OF_KERNEL: Feature = {
  feature: "ip_vs in the kernel",
  required: true,
  lost: "No virtual server can be made",
  broughtBy: "modprobe ip_vs, or a kernel with CONFIG_IP_VS, CONFIG_IP_VS_PROTO_TCP and " +
    "CONFIG_IP_VS_PROTO_UDP",
};

/** The scheduler; its name is added. */
const SCHEDULER: Feature = {
  feature: "scheduler",
  required: true,
  lost: "Endpoints cannot be chosen",
  broughtBy: "modprobe ip_vs_NAME, or a kernel with CONFIG_IP_VS_NAME, NAME being the scheduler",
};

/** The device that holds Service addresses. */
const DUMMY: Feature = {
  feature: "dummy device",
  required: true,
  lost: "Service addresses cannot be made local",
  broughtBy: "modprobe dummy, or a kernel with CONFIG_DUMMY; install iproute2",
};

/** The tool of sets. */
const IPSET: Feature = {
  feature: "ipset",
  required: true,
  lost: "Rules cannot name Services",
  broughtBy: "install ipset 6.0 or newer (Debian package ipset), or name the folder that has it " +
    "by --tools-path",
};

/** The types of sets that rules refer to. */
export const SET_FEATURES: readonly SetFeature[] = [
  ["hash:ip,port family inet", "HASH_IPPORT", "cluster IPs, external IPs and load balancers"],
  ["hash:ip,port family inet6", "HASH_IPPORT", "IPv6 cluster IPs and load balancers"],
  ["hash:ip,port,ip family inet", "HASH_IPPORTIP", "a pod that reaches itself by its Service"],
  ["hash:ip,port,net family inet", "HASH_IPPORTNET", "source ranges of load balancers"],
  ["hash:ip family inet", "HASH_IP", "closing the node's own ports on Service addresses"],
  ["bitmap:port range 0-65535", "BITMAP_PORT", "node ports"],
].map(([create, option, use]) => ({
  feature: `set ${
    create!.replace(/ family inet$| range.*$/, "").replace(" family inet6", " (IPv6)")
  }`,
  required: true,
  create: create!,
  lost: `Rules for ${use}`,
  broughtBy: `modprobe ip_set_${option!.toLowerCase()}, or a kernel with CONFIG_IP_SET_${option}`,
}));
