/**
 * What all kernel modes like to have beside their own tools.
 *
 * @module
 */
import type { ProbeResult } from "../../lib/proxy/backend.ts";
import { type Feature, probeResult } from "./probe/feature.ts";
import { firstLine, type ProbeDependencies, tryTool } from "./probe/try_tool.ts";

const CONNTRACK: Feature = {
  feature: "conntrack",
  required: false,
  lost: "UDP flows to endpoints that are gone stay until they time out",
  broughtBy: "install conntrack (Debian package conntrack); it needs CAP_NET_ADMIN and the " +
    "kernel's CONFIG_NF_CT_NETLINK",
};

const SYSCTL: Feature = {
  feature: "sysctl",
  required: false,
  lost: "Kernel settings are neither looked at nor set",
  broughtBy: "install sysctl (Debian package procps)",
};

const BRIDGE: Feature = {
  feature: "bridged traffic passes the rules",
  required: false,
  lost: "Where pods hang on a bridge, a Service whose endpoint is on the same node may not answer",
  broughtBy: "modprobe br_netfilter && sysctl -w net.bridge.bridge-nf-call-iptables=1",
};

const BRIDGE_SETTING = "net.bridge.bridge-nf-call-iptables";

/** Asks for them. Throws only when the caller gave up. */
export async function probeSharedTools(
  dependencies: ProbeDependencies,
  options: { readonly signal?: AbortSignal | undefined },
): Promise<readonly ProbeResult[]> {
  const [conntrack, sysctl] = await Promise.all([
    // Counting takes no time, and needs what deleting needs.
    tryTool(dependencies, ["conntrack", "-C"], options),
    tryTool(dependencies, ["sysctl", "-n", BRIDGE_SETTING], options),
  ]);
  return [
    conntrack.kind !== "ended"
      ? probeResult(CONNTRACK, { reason: conntrack.reason })
      : conntrack.code !== 0
      ? probeResult(CONNTRACK, {
        reason: firstLine(conntrack.err) || `exit code ${conntrack.code}`,
      })
      : probeResult(CONNTRACK, { detail: `${firstLine(conntrack.out)} entries now` }),
    ...(sysctl.kind !== "ended"
      ? [probeResult(SYSCTL, { reason: sysctl.reason })]
      : [probeResult(SYSCTL), bridgeRow(sysctl.out.trim())]),
  ];
}

function bridgeRow(value: string): ProbeResult {
  if (value === "1") return probeResult(BRIDGE, { detail: `${BRIDGE_SETTING} is 1` });
  const reason = value === "" ? "br_netfilter is not loaded" : `${BRIDGE_SETTING} is ${value}`;
  return probeResult(BRIDGE, { reason });
}
