/**
 * Finds other software that enforces NetworkPolicies on this machine, or left its rules. Pure.
 *
 * @module
 */
import type { HostFinding } from "../../../lib/proxy/host_checks.ts";
import { type ChainCount, describeCount } from "./chain_counts.ts";
import type { HostContents } from "./host_contents.ts";
import type { K3sNodeArgs } from "./k3s_node_args.ts";
import { KUBE_ROUTER_DEVICE } from "../../iproute/dummy_devices.ts";
import { isKubeRouterSet } from "./ip_sets.ts";
import type { ChainOwner } from "./known_chains.ts";
import { describeNftTable } from "./nft_tables.ts";
import type { NftTable } from "../nft/nft_objects.ts";
import { isKubeRouterPolicyTable } from "./policy_leftovers.ts";

const TAKE_OVER =
  "start kube-relay once with --network-policy --takeover, which removes these rules";

/** The observations that concern enforcers. */
export interface SeenEnforcers {
  readonly look: HostContents;
  readonly chains: readonly ChainCount[];
  readonly nodeArgs?: K3sNodeArgs;
  /** Whether kube-relay is to enforce NetworkPolicies here. @default {false} */
  readonly networkPolicy?: boolean;
}

/** An enforcer whose rules kube-relay never changes. */
interface Enforcer {
  /** The id of the finding. */
  readonly id: string;
  readonly software: NonNullable<HostFinding["software"]>;
  readonly name: string;
  readonly chains?: ChainOwner;
  readonly table?: (table: NftTable) => boolean;
  readonly set?: RegExp;
  readonly cure: string;
}

const ENFORCERS: readonly Enforcer[] = [
  {
    id: "calico-policies",
    software: "calico",
    name: "Calico",
    chains: "calico",
    // Its nftables mode.
    table: ({ family, name }) => name === "calico" && (family === "ip" || family === "ip6"),
    set: /^cali[46]0/,
    cure: "leave --network-policy off where Calico runs; if it is gone, reboot the node, which " +
      "removes its rules",
  },
  {
    id: "cilium-policies",
    software: "cilium",
    name: "Cilium",
    chains: "cilium",
    cure: "leave --network-policy off, or run Cilium with enable-policy=never; if it is gone, " +
      "reboot the node, which removes its rules",
  },
  {
    id: "kube-network-policies",
    software: "kube-network-policies",
    name: "kube-network-policies",
    table: ({ family, name }) => name === "kube-network-policies" && family === "inet",
    cure:
      "delete its DaemonSet, then run 'nft delete table inet kube-network-policies' on each node",
  },
];

/** Returns the findings about enforcers. Another enforcer hinders only a start with `--network-policy`. */
export function policyEnforcerFindings(seen: SeenEnforcers): HostFinding[] {
  return [
    ...kubeRouterFindings(seen),
    ...ENFORCERS.flatMap((enforcer) => enforcerFindings(enforcer, seen)),
  ];
}

function enforcerFindings(
  { id, software, name, cure, ...traces }: Enforcer,
  { look, chains, networkPolicy = false }: SeenEnforcers,
): HostFinding[] {
  const sets = look.sets.filter((set) => traces.set?.test(set));
  const evidence = [
    ...chains.filter(({ owner }) => owner === traces.chains).map(describeCount),
    ...look.nftTables.filter((table) => traces.table?.(table)).map(describeNftTable),
    ...(sets.length > 0 ? [`${sets.length} ipsets of ${name}`] : []),
  ];
  if (evidence.length === 0) return [];
  return [{
    id,
    severity: networkPolicy ? "warning" : "info",
    software,
    summary: networkPolicy
      ? `${name} filters the traffic of pods too, or left its rules: a connection has to be allowed ` +
        "by both"
      : `${name} filters the traffic of pods on this node, or left its rules`,
    evidence,
    ...(networkPolicy && { cure }),
  }];
}

function kubeRouterFindings(
  { look, chains, nodeArgs, networkPolicy = false }: SeenEnforcers,
): HostFinding[] {
  const found: readonly ChainCount[] = chains.filter(({ owner }) => owner === "kube-router");
  const sets = look.sets.filter(isKubeRouterSet);
  const tables = look.nftTables.filter(isKubeRouterPolicyTable);
  const device = look.devices.includes(KUBE_ROUTER_DEVICE);
  const proxies = device || sets.some((name) => name.includes("kube-router-svip"));
  if (found.length + sets.length + tables.length === 0 && !device) return [];
  const evidence = [
    ...found.map(describeCount),
    ...tables.map(describeNftTable),
    ...(sets.length > 0 ? [`${sets.length} ipsets of kube-router`] : []),
    ...(device ? [`device ${KUBE_ROUTER_DEVICE}`] : []),
  ];
  if (proxies) {
    return [{
      id: "kube-router-service-proxy",
      severity: "warning",
      software: "kube-router",
      summary: "kube-router serves, or served, Services on this node by IPVS",
      evidence,
      cure: "run kube-router with --run-service-proxy=false, and --cleanup-config once",
    }];
  }
  const stale = nodeArgs?.disableNetworkPolicy === true;
  const turnOff = nodeArgs === undefined
    ? "run kube-router with --run-firewall=false, or k3s with --disable-network-policy; then "
    : stale
    ? ""
    : "start k3s with --disable-network-policy on every server, and its agents again; then ";
  return [{
    id: "kube-router-policies",
    severity: stale || networkPolicy ? "warning" : "info",
    software: "kube-router",
    summary: stale
      ? "Rules of k3s's network policies remain, although k3s is configured not to enforce any"
      : "kube-router, or k3s by its library, enforces network policies on this node",
    evidence,
    ...((stale || networkPolicy) && { cure: turnOff + TAKE_OVER }),
  }];
}
