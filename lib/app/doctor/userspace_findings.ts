/**
 * What an admin has to know of the userspace mode before anybody relies on it.
 *
 * @module
 */
import type { RelayOptions } from "../../config/load.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";

const POLICIES: HostFinding = {
  id: "userspace-source-address",
  severity: "info",
  summary: "In userspace mode endpoints see this node as the client",
  evidence: [
    "NetworkPolicies that allow nodes allow every pod that comes by a Service",
    "client addresses are lost, also with externalTrafficPolicy: Local",
  ],
  cure: "take a kernel mode where policies or client addresses matter",
};

const ANYIP: HostFinding = {
  id: "userspace-anyip",
  severity: "info",
  summary: "An AnyIP route makes every wildcard listener of this host answer on every ClusterIP",
  evidence: ["e.g. an sshd on 0.0.0.0:22 answers on port 22 of all Services"],
  cure: "bind such programs to the node's own address, or use --address-mode=each",
};

/** For a start that would take this mode. */
export function userspaceFindings(
  { addressMode }: Pick<RelayOptions, "addressMode">,
): readonly HostFinding[] {
  if (addressMode === "anyip") return [{ ...ANYIP, severity: "warning" }, POLICIES];
  if (addressMode !== "auto") return [POLICIES];
  const when = "--address-mode=auto takes such a route from 1,000 addresses on";
  return [{ ...ANYIP, evidence: [...ANYIP.evidence, when] }, POLICIES];
}
