import type { LoadedConfiguration } from "../../config/load.ts";
import { createSysctl } from "../../os/sysctl.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { POLICY_ACCESS, policyKubeconfigOf } from "../../app/policy/policy_access.ts";
import { examineAccess } from "./examine_access.ts";
import { findPolicyTool } from "../../app/policy/choose_policy_tool.ts";
import { BRIDGE_SETTINGS } from "../../app/run/host_settings.ts";
import type { DoctorMode } from "./doctor_report.ts";

interface PolicyExamination {
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
  readonly signal: AbortSignal;
  /** The mode of Services that a start would choose. */
  readonly mode?: BackendMode;
  /** The results of the probes of all modes: no probe runs twice. */
  readonly modes: readonly Pick<DoctorMode, "features" | "mode">[];
}

type PolicyDependencies = Pick<Dependencies, "clock" | "process" | "commands">;

/**
 * Finds obstacles that keep a start with `--network-policy` from enforcing all policies. Returns
 * nothing without the flag.
 */
export async function examinePolicy(
  dependencies: PolicyDependencies,
  examination: PolicyExamination,
): Promise<readonly HostFinding[]> {
  if (!examination.configuration.proxy.networkPolicy.enabled) return [];
  const findings = await Promise.all([
    examineTool(examination),
    examineBridge(dependencies, examination),
    examinePolicyAccess(dependencies, examination),
  ]);
  return findings.flat();
}

async function examineTool(
  { configuration: { proxy: { networkPolicy } }, mode, modes }: PolicyExamination,
): Promise<readonly HostFinding[]> {
  const probeMode = (wanted: BackendMode) =>
    Promise.resolve(modes.find(({ mode }) => mode === wanted)?.features ?? []);
  const choice = { request: networkPolicy.mode };
  const { tool, refusal } = await findPolicyTool({ hostChecks: { probeMode } }, choice);
  if (refusal === undefined) return [];
  return [{
    id: "policy-tool",
    severity: "warning",
    summary: mode && MODE_TRAITS[mode].forwardsItself
      ? "NetworkPolicies would not cover direct pod-to-pod traffic: this machine lacks a " +
        "working tool; kube-relay judges what it relays"
      : "NetworkPolicies would not be enforced: this machine lacks a working tool",
    evidence: [`${tool}: ${refusal}`],
    cure: networkPolicy.mode === "auto"
      ? "install the missing parts"
      : "install the missing parts, or use --network-policy-mode=auto",
  }];
}

async function examineBridge(
  { commands }: PolicyDependencies,
  { signal }: PolicyExamination,
): Promise<readonly HostFinding[]> {
  const names = BRIDGE_SETTINGS.map(({ name }) => name);
  const { values, problems } = await createSysctl(commands).read(names);
  signal.throwIfAborted();
  const evidence = BRIDGE_SETTINGS.flatMap(({ name, value }) => {
    const problem = problems.get(name);
    if (problem) return [`${name}: ${problem.reason}`];
    const found = values.get(name);
    return found === value ? [] : [`${name} is ${found}, not ${value}; a start sets it`];
  });
  if (evidence.length === 0) return [];
  return [{
    id: "bridge-netfilter",
    severity: problems.size > 0 ? "warning" : "info",
    summary: "NetworkPolicies do not cover traffic between pods on one bridge of this node",
    evidence,
    cure: `modprobe br_netfilter && sysctl -w ${names.map((name) => `${name}=1`).join(" ")}; ` +
      "pods that are routed, without a bridge, do not need it",
  }];
}

function examinePolicyAccess(
  dependencies: PolicyDependencies,
  { configuration: { proxy, relay }, signal }: PolicyExamination,
): Promise<readonly HostFinding[]> {
  return examineAccess(dependencies, {
    ...{ relay, signal, needed: POLICY_ACCESS, id: "policy-access" },
    kubeconfig: policyKubeconfigOf(proxy),
    flag: { name: "policy-kubeconfig", value: proxy.networkPolicy.kubeconfig },
    summary: "NetworkPolicies would not be enforced: the API server does not let kube-relay read " +
      "pods, namespaces or NetworkPolicies",
  });
}
