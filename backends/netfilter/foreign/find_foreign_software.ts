import type { Network } from "../../../lib/os/network.ts";
import type { FindingOptions, HostFinding } from "../../../lib/proxy/host_checks.ts";
import { LISTENING_ARGS, parseListeningPrograms } from "../../../lib/os/listening_programs.ts";
import { askTool, type Seen } from "../probe/try_tool.ts";
import { inSteps } from "../in_steps.ts";
import { countChains } from "./chain_counts.ts";
import { type HostEdges, readHostContents } from "./host_contents.ts";
import { impostorFindings, judgeFindings, liveFinding } from "./judge_findings.ts";
import { K3S_NODE_ARGS, parseK3sNodeArgs } from "./k3s_node_args.ts";
import { findLiveKubeProxy } from "./live_kube_proxy.ts";
import { type OwnState, ownStateOfMode } from "./own_state.ts";

export interface ForeignSoftwareEdges extends HostEdges {
  readonly network: Network;
  /** The user of this process; `undefined` = unknown. */
  readonly uid: number | undefined;
}

/**
 * Looks for a live kube-proxy, leftovers of kube-proxy in each mode, kube-router, parts of k3s,
 * other enforcers of NetworkPolicies, and the use of both iptables variants. Never rejects for a
 * missing tool or permission: what cannot be checked is a finding itself. The most severe come
 * first. `own`: the objects of the running mode.
 */
export async function findForeignSoftware(
  edges: ForeignSoftwareEdges,
  options: FindingOptions & { readonly own?: OwnState } = {},
): Promise<readonly HostFinding[]> {
  const { mode, scope = "everything", nodeAnnotations = {}, signal } = options;
  const { networkPolicy = false, routing } = options;
  const looking = signal ? { signal } : {};
  const { live, impostors } = await findLiveKubeProxy(edges, looking);
  if (scope === "ports") {
    return [...(live ? [liveFinding(live)] : []), ...impostorFindings(impostors)];
  }
  // A check of ports starts no tool, so it comes before reading the objects.
  const own = options.own ?? await ownStateOfMode(edges, { mode, ...looking });
  const look = await readHostContents(edges, looking);
  const chains = await inSteps(edges, countChains(look.worlds, own));
  const programs = routing ? await readListeningPrograms(edges, looking) : undefined;
  const nodeArgs = parseK3sNodeArgs(nodeAnnotations[K3S_NODE_ARGS] ?? "");
  return judgeFindings({
    look: programs?.state === "refused" || programs?.state === "absent"
      ? { ...look, unseen: [...look.unseen, `listening programs: ${programs.reason}`] }
      : look,
    chains,
    own,
    impostors,
    networkPolicy,
    ...(live && { live }),
    ...(nodeArgs && { nodeArgs }),
    ...(routing && { routing }),
    ...(programs?.state === "seen" && { programs: [...parseListeningPrograms(programs.value)] }),
  });
}

function readListeningPrograms(
  { commands }: ForeignSoftwareEdges,
  options: { readonly signal?: AbortSignal },
): Promise<Seen<string>> {
  return askTool(commands, ["ss", ...LISTENING_ARGS], options);
}
