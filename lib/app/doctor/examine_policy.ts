import type { LoadedConfiguration } from "../../config/load.ts";
import type { KubeAuth } from "../../kube/kube_auth.ts";
import { loadKubeAuth } from "../../kube/kubeconfig.ts";
import { messageOf } from "../../log/message_of.ts";
import { createSysctl } from "../../os/sysctl.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";
import type { Dependencies } from "../dependencies.ts";
import { POLICY_ACCESS, policyKubeconfigOf } from "../policy/policy_access.ts";
import { findPolicyTool } from "../policy/choose_policy_tool.ts";
import { BRIDGE_SETTINGS } from "../run/host_setting_requests.ts";
import { findMissingAccess } from "../run/controller_access.ts";
import { CollectingLogger } from "./collecting_logger.ts";
import type { DoctorMode } from "./doctor_report.ts";
import { withApiClient } from "./examine_api.ts";

interface PolicyExamination {
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
  readonly signal: AbortSignal;
  /** The mode of Services that a start would choose. */
  readonly mode?: BackendMode;
  /** The results of the probes of all modes: no probe runs twice. */
  readonly modes: readonly Pick<DoctorMode, "features" | "mode">[];
}

type PolicyDependencies = Pick<
  Dependencies,
  "clock" | "process" | "commands" | "policyBackends"
>;

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
    examineTool(dependencies, examination),
    examineBridge(dependencies, examination),
    examineAccess(dependencies, examination),
  ]);
  return findings.flat();
}

async function examineTool(
  { policyBackends }: PolicyDependencies,
  { configuration: { proxy: { networkPolicy } }, mode, modes }: PolicyExamination,
): Promise<readonly HostFinding[]> {
  const probeMode = (wanted: BackendMode) =>
    Promise.resolve(modes.find(({ mode }) => mode === wanted)?.features ?? []);
  const dependencies = { hostChecks: { probeMode }, ...(policyBackends && { policyBackends }) };
  const { tool, refusal } = await findPolicyTool(dependencies, { request: networkPolicy.mode });
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

async function examineAccess(
  dependencies: PolicyDependencies,
  { configuration: { proxy, relay }, signal }: PolicyExamination,
): Promise<readonly HostFinding[]> {
  const { clock, commands, process: { env } } = dependencies;
  const kubeconfig = policyKubeconfigOf(proxy);
  const isGiven = kubeconfig || relay.master || env("KUBECONFIG") || env("KUBERNETES_SERVICE_HOST");
  if (relay.manifests.length > 0 || !isGiven) return [];
  try {
    const auth: KubeAuth = await loadKubeAuth(
      { clock, logger: new CollectingLogger(), commands },
      {
        ...(kubeconfig !== "" && { kubeconfig }),
        ...(relay.master !== undefined && { master: relay.master }),
        env,
      },
    );
    const missing = await withApiClient(
      dependencies,
      { auth, signal },
      (client) => findMissingAccess(client, POLICY_ACCESS, signal),
    );
    if (missing === undefined) return [];
    const { method, file } = auth.describe();
    return [{
      id: "policy-access",
      severity: "warning",
      summary:
        "NetworkPolicies would not be enforced: the API server does not let kube-relay read " +
        "pods, namespaces or NetworkPolicies",
      evidence: [
        `no right to ${missing.missing.join(", ")}, by ${method}${file ? ` of ${file}` : ""}`,
        `missing rule: ${missing.clusterRole}`,
      ],
      cure: missing.cure,
    }];
  } catch (error) {
    signal.throwIfAborted();
    return unknownAccess(proxy.networkPolicy.kubeconfig, messageOf(error));
  }
}

/** Trouble with the connection of Services is a finding of its own. */
function unknownAccess(policyKubeconfig: string, reason: string): readonly HostFinding[] {
  if (policyKubeconfig === "") return [];
  return [{
    id: "policy-access-unknown",
    severity: "warning",
    summary: "The API server could not be asked with the kubeconfig for NetworkPolicies",
    evidence: [`${policyKubeconfig}: ${reason}`],
    cure: "see that --policy-kubeconfig names a kubeconfig that this user can read",
  }];
}
