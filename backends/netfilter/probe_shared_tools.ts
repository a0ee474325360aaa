import type { ProbeResult } from "../../lib/proxy/service_mode.ts";
import { type Feature, probeResult } from "./probe/feature.ts";
import {
  firstLine,
  type ProbeDependencies,
  saysNotPermitted,
  type ToolAnswer,
  tryTool,
} from "./probe/try_tool.ts";

const CONNTRACK: Feature = {
  feature: "conntrack",
  required: false,
  lost: "UDP flows to removed endpoints stay until they time out",
  broughtBy: "install conntrack (Debian package conntrack); it needs CAP_NET_ADMIN and the " +
    "kernel's CONFIG_NF_CT_NETLINK",
};

const SYSCTL: Feature = {
  feature: "sysctl",
  required: false,
  lost: "Kernel settings are neither checked nor set",
  broughtBy: "install sysctl (Debian package procps)",
};

const BRIDGE: Feature = {
  feature: "bridged traffic passes the rules",
  required: false,
  lost:
    "If pods are attached to a bridge, a Service whose endpoint is on the same node may not answer",
  broughtBy: "modprobe br_netfilter && sysctl -w net.bridge.bridge-nf-call-iptables=1",
};

const BRIDGE_SETTING = "net.bridge.bridge-nf-call-iptables";

/** Probes the optional tools of all kernel modes. Throws only if the caller cancels. */
export async function probeSharedTools(
  dependencies: ProbeDependencies,
  options: { readonly signal?: AbortSignal | undefined },
): Promise<readonly ProbeResult[]> {
  const [conntrack, sysctl] = await Promise.all([
    // Counting is fast and needs the same permission as deleting.
    tryTool(dependencies, ["conntrack", "-C"], options),
    tryTool(dependencies, ["sysctl", "-n", BRIDGE_SETTING], options),
  ]);
  return [
    ...conntrackRows(conntrack),
    ...(sysctl.kind !== "ended"
      ? [probeResult(SYSCTL, { reason: sysctl.reason })]
      : [probeResult(SYSCTL), bridgeRow(sysctl.out.trim())]),
  ];
}

/** Missing permission is reported once, by the row of the rights. */
function conntrackRows(answer: ToolAnswer): readonly ProbeResult[] {
  if (answer.kind !== "ended") return [probeResult(CONNTRACK, { reason: answer.reason })];
  const { code, out, err } = answer;
  if (code === 0) return [probeResult(CONNTRACK, { detail: `${firstLine(out)} entries now` })];
  if (saysNotPermitted(err)) return [];
  return [probeResult(CONNTRACK, { reason: firstLine(err) || `exit code ${code}, no word why` })];
}

function bridgeRow(value: string): ProbeResult {
  if (value === "1") return probeResult(BRIDGE, { detail: `${BRIDGE_SETTING} is 1` });
  const reason = value === "" ? "br_netfilter is not loaded" : `${BRIDGE_SETTING} is ${value}`;
  return probeResult(BRIDGE, { reason });
}
