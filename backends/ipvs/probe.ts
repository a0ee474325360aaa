import type { ProbeResult } from "../../lib/proxy/service_mode.ts";
import { addDummyLine, deleteLinkLine } from "../iproute/ip_runner.ts";
import {
  IPTABLES_TABLES,
  RULE_FEATURES,
  type RuleFeature,
  type TableFeature,
} from "../netfilter/iptables/iptables_features.ts";
import { probeIptables } from "../netfilter/iptables/probe_iptables.ts";
import { createLine, destroyLine } from "../netfilter/ipset/ipset_text.ts";
import {
  attempt,
  type Bench,
  type Feature,
  NO_RIGHTS,
  probeProgram,
  probeResult,
  probeSharedTools,
  refusedOnce,
  tryFeatures,
} from "../netfilter/probe/try_features.ts";
import {
  firstLine,
  type ProbeDependencies,
  saysNotPermitted,
  tryTool,
} from "../netfilter/probe/try_tool.ts";
import { IP_VS_FILE } from "../netfilter/virtual_servers.ts";

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

/** Tries everything that the mode needs; leaves nothing behind. The scheduler is `rr` by default. */
export async function probeIpvsMode(
  dependencies: ProbeDependencies,
  { scheduler = "rr", signal }: {
    readonly scheduler?: string;
    readonly signal?: AbortSignal | undefined;
  } = {},
): Promise<readonly ProbeResult[]> {
  const probeIpvs = async () => {
    const answer = await tryTool(dependencies, ["ipvsadm", "--version"], { signal });
    if (answer.kind !== "ended") return [probeResult(IPVSADM, { reason: answer.reason })];
    const program = probeResult(IPVSADM, { detail: firstLine(answer.out) || "works" });
    return [program, ...await probeScheduler(dependencies, scheduler, signal)];
  };
  const groups = await Promise.all([
    probeIpvs(),
    probeSets(dependencies, signal),
    probeIptables(dependencies, { tables: TABLES, rules: RULES, signal }),
    probeDummyDevice(dependencies, signal),
    probeSharedTools(dependencies, signal),
  ]);
  // The tools were refused for the same reason, which is reported once.
  return refusedOnce(groups.flat());
}

/** An address for documentation (RFC 5737), and kube-proxy's port. */
const SCRATCH_SERVER = "198.51.100.0:20000";
const NO_IPVS = "the kernel has no IPVS (ipvsadm: Protocol not available)";

/** Tries IPVS and a scheduler by a virtual server. Throws only if the caller aborts. */
export async function probeScheduler(
  dependencies: ProbeDependencies,
  scheduler: string,
  signal?: AbortSignal,
): Promise<readonly ProbeResult[]> {
  const row = { ...SCHEDULER, feature: `scheduler ${scheduler}` };
  const found = (result: Parameters<typeof probeResult>[1]) => [
    probeResult(IPVS_OF_KERNEL),
    probeResult(row, result),
  ];
  // Much cheaper than `ipvsadm -Ln` where there are many; Deno itself can't open /proc.
  const servers = await tryTool(dependencies, ["cat", IP_VS_FILE], { signal });
  const isInUse = servers.kind === "ended" &&
    servers.out.split("\n").some((line) =>
      /^(TCP|UDP|SCTP|FWM) /.test(line) && line.split(/\s+/)[2] === scheduler
    );
  if (isInUse) return found({ detail: "in use by a virtual server" });
  const bench: Bench<string> = {
    line: ["ipvsadm", "-R"],
    input: () => `-A -t ${SCRATCH_SERVER} -s ${scheduler}\n-D -t ${SCRATCH_SERVER}\n`,
    undo: [`-D -t ${SCRATCH_SERVER}\n`],
    judge({ code, err }) {
      // The exit code is that of the last line only, so any message counts as a failure.
      if (code === 0 && err.trim() === "") return { kind: "accepted" };
      if (saysNotPermitted(err)) return { kind: "hopeless", reason: err, notPermitted: true };
      const reason = /initialize ipvs|Protocol not available/.test(err)
        ? NO_IPVS
        : /Scheduler.*not found/.test(err)
        ? `the kernel has no scheduler '${scheduler}'`
        : firstLine(err) || `ipvsadm ended with ${code}, no word why`;
      return { kind: "refused", reason };
    },
  };
  const verdict = await attempt(dependencies, bench, [], signal);
  if (verdict.kind === "accepted") return found({});
  const { reason } = verdict;
  if (verdict.kind === "hopeless" && verdict.notPermitted) return [NO_RIGHTS];
  return reason === NO_IPVS ? [probeResult(IPVS_OF_KERNEL, { reason })] : found({ reason });
}

async function probeSets(
  dependencies: ProbeDependencies,
  signal: AbortSignal | undefined,
): Promise<readonly ProbeResult[]> {
  const program = await probeProgram(dependencies, IPSET, "ipset", { least: LEAST_IPSET, signal });
  if (!program.available) return [program];
  const bench: Bench<SetFeature> = {
    line: ["ipset", "restore"],
    input: (rows) =>
      rows.map(({ name, create }) => `${createLine(name, create)}\n${destroyLine(name)}\n`).join(
        "",
      ),
    undo: SET_FEATURES.map(({ name }) => `${destroyLine(name)}\n`),
  };
  const { base, reasons, notPermitted, isLate } = await tryFeatures(
    dependencies,
    bench,
    SET_FEATURES,
    signal,
  );
  if (notPermitted) return [program, NO_RIGHTS];
  return [
    program,
    ...SET_FEATURES.map((row) => probeResult(row, { reason: reasons.get(row) ?? base, isLate })),
  ];
}

/** The same name in all runs; the kernel allows 15 characters. */
const SCRATCH_DEVICE = "kr-probe0";

async function probeDummyDevice(
  dependencies: ProbeDependencies,
  signal: AbortSignal | undefined,
): Promise<readonly ProbeResult[]> {
  const remove = `${deleteLinkLine(SCRATCH_DEVICE)}\n`;
  const verdict = await attempt(
    dependencies,
    {
      line: ["ip", "-batch", "-"],
      input: () => `${addDummyLine(SCRATCH_DEVICE)}\n${remove}`,
      undo: [remove],
    },
    [],
    signal,
  );
  if (verdict.kind === "accepted") return [probeResult(DUMMY)];
  if (verdict.kind === "hopeless" && verdict.notPermitted) return [NO_RIGHTS];
  return [probeResult(DUMMY, { reason: verdict.reason })];
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

/** A type of set, with a set of this type that is the same in all runs. */
interface SetFeature extends Feature {
  readonly name: string;
  /** Type and options, e.g. `hash:ip,port family inet`. */
  readonly create: string;
}

/** The types of sets that rules refer to. */
const SET_FEATURES: readonly SetFeature[] = ([
  ["hash:ip,port family inet", "HASH_IPPORT", "cluster IPs, external IPs and load balancers"],
  ["hash:ip,port family inet6", "HASH_IPPORT", "IPv6 cluster IPs and load balancers"],
  ["hash:ip,port,ip family inet", "HASH_IPPORTIP", "a pod that reaches itself by its Service"],
  ["hash:ip,port,net family inet", "HASH_IPPORTNET", "source ranges of load balancers"],
  ["hash:ip family inet", "HASH_IP", "closing the node's own ports on Service addresses"],
  ["bitmap:port range 0-65535", "BITMAP_PORT", "node ports"],
] as const).map(([create, option, use], index) => ({
  feature: `set ${
    create.replace(/ family inet$| range.*$/, "").replace(" family inet6", " (IPv6)")
  }`,
  required: true,
  // Each has its own name: `-exist` takes over a set of the same type only.
  name: `KUBE-RELAY-PROBE-${index}`,
  create,
  lost: `Rules for ${use}`,
  broughtBy: `modprobe ip_set_${option.toLowerCase()}, or a kernel with CONFIG_IP_SET_${option}`,
}));
