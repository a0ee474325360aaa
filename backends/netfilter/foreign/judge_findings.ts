import type { ListeningProgram } from "../../../lib/os/listening_programs.ts";
import {
  type HostFinding,
  KUBE_PROXY_ALIVE,
  type RoutingIntent,
} from "../../../lib/proxy/host_checks.ts";
import { type ChainCount, describeCount } from "./chain_counts.ts";
import { IPVS_DEVICE, KUBE_ROUTER_DEVICE } from "../../iproute/dummy_devices.ts";
import { nameOfRuleSet } from "../iptables/iptables_rule_set.ts";
import { loadBalancerFindings } from "./judge_load_balancers.ts";
import type { LiveKubeProxy } from "./live_kube_proxy.ts";
import { describeNftTable } from "./nft_tables.ts";
import type { OwnState } from "./own_state.ts";
import { isKubeProxySet, ownedBy, type Owner, OWNERS } from "./owners.ts";
import type { HostContents } from "./host_contents.ts";
import type { K3sNodeArgs } from "./k3s_node_args.ts";

/** All observations. */
export interface SeenOnHost {
  readonly look: HostContents;
  readonly chains: readonly ChainCount[];
  readonly nodeArgs?: K3sNodeArgs;
  /** Whether kube-relay is to enforce NetworkPolicies here. @default {false} */
  readonly networkPolicy?: boolean;
  readonly own: OwnState;
  readonly live?: LiveKubeProxy;
  /** Processes that pretend to be kube-proxy; see {@linkcode KubeProxyAnswers.impostors}. */
  readonly impostors: readonly string[];
  readonly routing?: RoutingIntent;
  /** Listening programs; read only if kube-relay announces addresses. @default {none} */
  readonly programs?: readonly ListeningProgram[];
}

const SEVERITIES: readonly HostFinding["severity"][] = ["blocking", "warning", "info"];

/** Tells the user how to turn off a kube-proxy of any origin. */
const TURN_OFF = [
  "k3s: start it with --disable-kube-proxy, on servers and agents",
  "kubeadm: delete DaemonSet and ConfigMap kube-proxy in kube-system",
  "systemd: systemctl disable --now kube-proxy",
].join("; ");

const REMOVE =
  "run 'kube-relay cleanup' (--dry-run lists what it removes), or start with --takeover";

/** Returns all findings, the most severe first. */
export function judgeFindings(seen: SeenOnHost): HostFinding[] {
  const findings = [
    ...liveOrLeft(seen),
    ...impostorFindings(seen.impostors),
    ...k3sFindings(seen),
    ...kubeRouterFindings(seen),
    ...policyEnforcerFindings(seen),
    ...loadBalancerFindings({ programs: [], ...seen }),
    ...worldFindings(seen),
    ...relayFindings(seen),
    ...unseenFindings(seen),
  ];
  return findings.toSorted((a, b) =>
    SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity)
  );
}

/** The finding for a kube-proxy that answers; `more` lists its objects in the kernel. */
export function liveFinding(live: LiveKubeProxy, more: readonly string[] = []): HostFinding {
  const mode = live.mode === undefined ? "" : ` in mode ${live.mode}`;
  return {
    id: KUBE_PROXY_ALIVE,
    severity: "blocking",
    software: "kube-proxy",
    summary: `A kube-proxy, or a replacement of it, runs on this node${mode}`,
    evidence: [...live.evidence, ...more],
    cure: `turn it off (${TURN_OFF}), or start kube-relay with --takeover`,
  };
}

/** The finding for a program that answers like kube-proxy but runs as another user. */
export function impostorFindings(evidence: readonly string[]): HostFinding[] {
  if (evidence.length === 0) return [];
  return [{
    id: "kube-proxy-impostor",
    severity: "warning",
    software: "other",
    summary: "A program of another user answers like kube-proxy on its ports; it is ignored",
    evidence,
    cure: "find it with 'ss -lptn' and stop it; kube-relay cannot use the port until then",
  }];
}

/** Rules of a kube-proxy that runs are no leftovers: they are evidence. */
function liveOrLeft(seen: SeenOnHost): HostFinding[] {
  const parts = leftParts(seen).filter(({ evidence }) => evidence.length > 0);
  if (seen.live) return [liveFinding(seen.live, parts.flatMap(({ evidence }) => evidence))];
  return parts.map(({ mode, harm, evidence }) => ({
    id: `kube-proxy-leftovers-${mode}`,
    severity: "warning",
    software: "kube-proxy",
    summary: `A kube-proxy that does not run any more left its ${mode} rules, ${harm}`,
    evidence,
    cure: REMOVE,
  }));
}

interface LeftPart {
  readonly mode: "iptables" | "nftables" | "ipvs";
  readonly harm: string;
  readonly evidence: readonly string[];
}

function leftParts({ look, chains, own }: SeenOnHost): LeftPart[] {
  const tables = look.nftTables.filter((table) =>
    OWNERS["kube-proxy"].nftTable(table) && !own.nftTable?.(table)
  );
  const sets = look.sets.filter((name) => isKubeProxySet(name) && !own.set?.(name));
  const device = look.devices.includes(IPVS_DEVICE) && !own.device?.(IPVS_DEVICE);
  const astray = "which still send packets for Services to endpoints of that time";
  return [
    {
      mode: "iptables",
      harm: astray,
      evidence: chains.filter(({ owner }) => owner === "kube-proxy").map(describeCount),
    },
    {
      mode: "nftables",
      harm: astray,
      evidence: tables.map(describeNftTable),
    },
    {
      mode: "ipvs",
      harm: "which keep Service addresses on the node",
      evidence: [
        ...(device ? [`device ${IPVS_DEVICE}`] : []),
        ...(sets.length > 0 ? [`${sets.length} ipsets: ${sets.join(", ")}`] : []),
        ...(device && look.virtualServers.length > 0
          ? [`${look.virtualServers.length} virtual servers, of whomever`]
          : []),
      ],
    },
  ];
}

function k3sFindings({ nodeArgs }: SeenOnHost): HostFinding[] {
  if (nodeArgs === undefined) return [];
  const findings: HostFinding[] = [];
  // The arguments of an agent do not show whether its server disables kube-proxy.
  if (nodeArgs.role === "server" && !nodeArgs.disableKubeProxy) {
    findings.push({
      id: "k3s-kube-proxy-on",
      severity: "warning",
      software: "kube-proxy",
      summary: "k3s on this node runs its own kube-proxy, which returns with each start of k3s",
      evidence: ["annotation k3s.io/node-args lacks --disable-kube-proxy"],
      cure: "start k3s with --disable-kube-proxy, on servers and agents",
    });
  }
  return findings;
}

const TAKE_OVER =
  "start kube-relay once with --network-policy --takeover, which removes these rules";

/** The enforcers whose rules kube-relay never changes. `id` is that of the finding. */
const ENFORCERS = [
  {
    id: "calico-policies",
    software: "calico",
    name: "Calico",
    cure: "leave --network-policy off where Calico runs; if it is gone, reboot the node, which " +
      "removes its rules",
  },
  {
    id: "cilium-policies",
    software: "cilium",
    name: "Cilium",
    cure: "leave --network-policy off, or run Cilium with enable-policy=never; if it is gone, " +
      "reboot the node, which removes its rules",
  },
  {
    id: "kube-network-policies",
    software: "kube-network-policies",
    name: "kube-network-policies",
    cure:
      "delete its DaemonSet, then run 'nft delete table inet kube-network-policies' on each node",
  },
] as const;

/** The objects of one owner, one line each. */
function evidenceOf(owner: Owner, name: string, { look, chains }: SeenOnHost): string[] {
  const { nftTable, set } = ownedBy(owner);
  const sets = look.sets.filter((each) => set?.(each));
  return [
    ...chains.filter((each) => each.owner === owner).map(describeCount),
    ...look.nftTables.filter((table) => nftTable?.(table)).map(describeNftTable),
    ...(sets.length > 0 ? [`${sets.length} ipsets of ${name}`] : []),
  ];
}

/** Another enforcer hinders only a start with `--network-policy`. */
function policyEnforcerFindings(seen: SeenOnHost): HostFinding[] {
  const { networkPolicy = false } = seen;
  return ENFORCERS.flatMap(({ id, software, name, cure }) => {
    const evidence = evidenceOf(software, name, seen);
    if (evidence.length === 0) return [];
    return [{
      id,
      severity: networkPolicy ? "warning" : "info",
      software,
      summary: networkPolicy
        ? `${name} filters the traffic of pods too, or left its rules: a connection has to be ` +
          "allowed by both"
        : `${name} filters the traffic of pods on this node, or left its rules`,
      evidence,
      ...(networkPolicy && { cure }),
    }];
  });
}

function kubeRouterFindings(seen: SeenOnHost): HostFinding[] {
  const { look, nodeArgs, networkPolicy = false } = seen;
  const device = look.devices.includes(KUBE_ROUTER_DEVICE);
  const evidence = [
    ...evidenceOf("kube-router", "kube-router", seen),
    ...(device ? [`device ${KUBE_ROUTER_DEVICE}`] : []),
  ];
  if (evidence.length === 0) return [];
  const proxies = device ||
    look.sets.some((name) =>
      ownedBy("kube-router").set?.(name) && name.includes("kube-router-svip")
    );
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

/**
 * Packets pass both engines: rules in the engine that the node does not use are easily overlooked.
 */
function worldFindings({ look }: SeenOnHost): HostFinding[] {
  const inUse = look.worlds.filter(({ dump }) =>
    dump.tables.some(({ rules, chains }) => rules > 0 || chains.size > 0)
  );
  const both = (["IPv4", "IPv6"] as const).filter((family) =>
    inUse.filter(({ world }) => world.family === family).length > 1
  );
  if (both.length === 0) return [];
  return [{
    id: "two-iptables-worlds",
    severity: "warning",
    summary: `iptables-nft and iptables-legacy both hold rules (${both.join(", ")})`,
    evidence: inUse.filter(({ world }) => both.includes(world.family)).map(({ world, dump }) => {
      const rules = dump.tables.reduce((sum, table) => sum + table.rules, 0);
      const chains = dump.tables.flatMap((table) => [...table.chains.keys()]);
      const hint = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"].find((chain) =>
        chains.includes(chain)
      );
      const chosen = hint === undefined ? "" : `; kubelet writes here (${hint})`;
      return `${rules} rules in ${nameOfRuleSet(world)}${chosen}`;
    }),
    cure: "use the variant of the kubelet, and flush the other one if no program needs its rules",
  }];
}

/** The tables of nftables mode. Those of policies, pods and traces belong to no mode of Services. */
const SERVICE_TABLES: readonly string[] = ["kube-relay", "kube-relay-counters"];
/** The table and the first chain of policies, by tool. */
const POLICY_TABLE = "kube-relay-policy";
const POLICY_CHAIN = "KUBE-RELAY-POLICY";

function* relayFindings(
  { look, own, networkPolicy = false }: SeenOnHost,
): Generator<HostFinding> {
  const tables = look.nftTables.filter((table) =>
    SERVICE_TABLES.includes(table.name) && !own.nftTable?.(table)
  );
  if (tables.length > 0) {
    yield {
      id: "kube-relay-other-mode",
      severity: "warning",
      software: "other",
      summary:
        "Rules of kube-relay in another mode exist, from an earlier run or from a running process",
      evidence: tables.map(describeNftTable),
      cure: "stop kube-relay and run 'kube-relay cleanup'",
    };
  }
  // With policies they are in use, and the rules of another tool are removed.
  const policies = networkPolicy ? [] : [
    ...look.nftTables.filter(({ name }) => name === POLICY_TABLE).map(describeNftTable),
    ...look.worlds
      .filter(({ dump }) => dump.tables.some(({ chains }) => chains.has(POLICY_CHAIN)))
      .map(({ world }) => `chain ${POLICY_CHAIN} in ${nameOfRuleSet(world)}`),
  ];
  if (policies.length === 0) return;
  yield {
    id: "kube-relay-policies-left",
    severity: "warning",
    software: "other",
    summary:
      "Rules of NetworkPolicies that an earlier run of kube-relay wrote still filter the traffic " +
      "of pods, and nothing updates them",
    evidence: policies,
    cure: "start with --network-policy, or stop kube-relay and run 'kube-relay cleanup'",
  };
}

function unseenFindings({ look }: SeenOnHost): HostFinding[] {
  const unreadable = look.worlds.flatMap(({ world, dump }) =>
    dump.unreadable.map((table) => `table ${table} (${nameOfRuleSet(world)}): only nft can show it`)
  );
  const evidence = [...look.unseen, ...unreadable];
  if (evidence.length === 0) return [];
  return [{
    id: "not-looked-at",
    severity: "info",
    summary: "Some sources of foreign rules could not be checked",
    evidence,
    cure: "run it again as root, with iptables, nftables and ipset installed",
  }];
}
