import {
  findPolicyTool,
  POLICY_ACCESS,
  policyKubeconfigOf,
} from "../../app/policy/policy_settings.ts";
import { BRIDGE_SETTINGS } from "../../app/run/host_settings.ts";
import { Sysctl } from "../../os/sysctl.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import { findingOf, type HostFinding } from "../../proxy/host_checks.ts";
import type { Examined } from "./doctor_report.ts";
import { examineAccess } from "./examine_api.ts";

/**
 * Finds obstacles that keep a start with `--network-policy` from enforcing all policies. Returns
 * nothing without the flag.
 */
export async function examinePolicy(examined: Examined): Promise<readonly HostFinding[]> {
  const { configuration: { proxy }, dependencies: { commands }, mode, modes, signal } = examined;
  const { networkPolicy } = proxy;
  if (!networkPolicy.enabled) return [];
  // The results of the probes of all modes: no probe runs twice.
  const probeMode = (wanted: BackendMode) =>
    Promise.resolve(modes.find(({ mode }) => mode === wanted)?.features ?? []);
  const { tool, refusal } = await findPolicyTool({ probeMode }, networkPolicy.mode);
  const names = BRIDGE_SETTINGS.map(({ name }) => name);
  const { values, problems } = await new Sysctl(commands).read(names);
  signal.throwIfAborted();
  const bridge = BRIDGE_SETTINGS.flatMap(({ name, value }) => {
    const problem = problems.get(name);
    if (problem) return [`${name}: ${problem.reason}`];
    const found = values.get(name);
    return found === value ? [] : [`${name} is ${found}, not ${value}; a start sets it`];
  });
  return [
    ...findingOf(refusal === undefined ? [] : [`${tool}: ${refusal}`], {
      id: "policy-tool",
      severity: "warning",
      summary: mode && MODE_TRAITS[mode].forwardsItself
        ? "NetworkPolicies would not cover direct pod-to-pod traffic: this machine lacks a " +
          "working tool; kube-relay judges what it relays"
        : "NetworkPolicies would not be enforced: this machine lacks a working tool",
      cure: networkPolicy.mode === "auto"
        ? "install the missing parts"
        : "install the missing parts, or use --network-policy-mode=auto",
    }),
    ...findingOf(bridge, {
      id: "bridge-netfilter",
      severity: problems.size > 0 ? "warning" : "info",
      summary: "NetworkPolicies do not cover traffic between pods on one bridge of this node",
      cure: `modprobe br_netfilter && sysctl -w ${names.map((name) => `${name}=1`).join(" ")}; ` +
        "pods that are routed, without a bridge, do not need it",
    }),
    ...await examineAccess(examined, {
      id: "policy-access",
      needed: POLICY_ACCESS,
      kubeconfig: policyKubeconfigOf(proxy),
      flag: "policy-kubeconfig",
      given: networkPolicy.kubeconfig,
      summary:
        "NetworkPolicies would not be enforced: the API server does not let kube-relay read " +
        "pods, namespaces or NetworkPolicies",
    }),
  ];
}
