/**
 * Finds other software on this machine that serves Services, enforces NetworkPolicies, or assigns and
 * announces addresses, and what it left in the kernel.
 *
 * @module
 */
import {
  LISTENING_ARGS,
  type ListeningProgram,
  parseListeningPrograms,
} from "../../../lib/os/listening_programs.ts";
import type { Network } from "../../../lib/os/network.ts";
import {
  bySeverity,
  findingOf,
  type FindingOptions,
  type HostFinding,
  KUBE_PROXY_ALIVE,
  OR_TAKE_OVER,
  type RoutingIntent,
} from "../../../lib/proxy/host_checks.ts";
import { nameOfRuleSet } from "../iptables/iptables_rule_set.ts";
import { describeNftTable } from "../nft/nft_objects.ts";
import { askTool } from "../probe/try_tool.ts";
import {
  findOwnState,
  type HostContents,
  type HostEdges,
  type OwnState,
  readHostContents,
} from "./host_contents.ts";
import { findLiveKubeProxy, type LiveKubeProxy } from "./live_kube_proxy.ts";
import { type Owned, type Owner, OWNER_ENTRIES, OWNERS } from "./owners.ts";

export interface ForeignSoftwareEdges extends HostEdges {
  readonly network: Network;
  /** The user of this process; `undefined` = unknown. */
  readonly uid: number | undefined;
}

/** What findings depend on. */
interface Observations {
  readonly contents: HostContents;
  readonly own: OwnState;
  readonly nodeArgs: K3sNodeArgs | undefined;
  /** Whether kube-relay is to enforce NetworkPolicies here. */
  readonly networkPolicy: boolean;
  readonly routing: RoutingIntent | undefined;
  /** Listening programs; read only if kube-relay announces addresses. */
  readonly programs: readonly ListeningProgram[];
}

/**
 * Looks for a live kube-proxy, leftovers of kube-proxy in each mode, kube-router, parts of k3s,
 * other enforcers of NetworkPolicies, other load balancers, and the use of both iptables variants. Never
 * rejects for a missing tool or permission: what cannot be checked is a finding itself. The most severe
 * come first.
 */
export async function findForeignSoftware(
  edges: ForeignSoftwareEdges,
  options: FindingOptions = {},
): Promise<readonly HostFinding[]> {
  const { mode, scope = "everything", nodeAnnotations = {}, networkPolicy = false } = options;
  const { routing, signal } = options;
  const looking = signal ? { signal } : {};
  const { live, impostors } = await findLiveKubeProxy(edges, looking);
  const impostor = findingOf(impostors, {
    id: "kube-proxy-impostor",
    severity: "warning",
    software: "other",
    summary: "A program of another user answers like kube-proxy on its ports; it is ignored",
    cure: "find it with 'ss -lptn' and stop it; kube-relay cannot use the port until then",
  });
  // A check of ports starts no tool, so it comes before reading the objects.
  if (scope === "ports") return [...(live ? [liveFinding(live, [])] : []), ...impostor];
  const own = await findOwnState(edges, mode, signal);
  const contents = await readHostContents(edges, own, looking);
  const listening = routing && await askTool(edges.commands, ["ss", ...LISTENING_ARGS], looking);
  const programs = listening?.state === "seen" ? [...parseListeningPrograms(listening.value)] : [];
  const nodeArgs = parseK3sNodeArgs(nodeAnnotations[K3S_NODE_ARGS] ?? "");
  const seen = { contents, own, nodeArgs, networkPolicy, routing, programs };
  const left = leftoversOfKubeProxy(seen);
  return bySeverity([
    // Rules of a kube-proxy that runs are no leftovers: they are evidence.
    ...(live ? [liveFinding(live, left.flatMap(({ evidence }) => evidence))] : left),
    ...impostor,
    ...k3sFindings(seen),
    ...kubeRouterFindings(seen),
    ...enforcerFindings(seen),
    ...serviceLbFindings(seen),
    ...announcerFindings(seen),
    ...bgpPortFindings(seen),
    ...worldFindings(seen),
    ...relayFindings(seen),
    ...unseenFindings(seen, listening && "reason" in listening ? listening.reason : undefined),
  ]);
}

/** The finding for a kube-proxy that answers; `more` lists its objects in the kernel. */
function liveFinding({ mode, evidence }: LiveKubeProxy, more: readonly string[]): HostFinding {
  return {
    id: KUBE_PROXY_ALIVE,
    severity: "blocking",
    software: "kube-proxy",
    summary: "A kube-proxy, or a replacement of it, runs on this node" +
      (mode === undefined ? "" : ` in mode ${mode}`),
    evidence: [...evidence, ...more],
    cure: "turn it off (k3s: start it with --disable-kube-proxy, on servers and agents; kubeadm: " +
      "give its DaemonSet a node selector that no node has, and keep its ConfigMap; systemd: " +
      `systemctl disable --now kube-proxy)${OR_TAKE_OVER}`,
  };
}

/** The tables of an owner, one line each. */
function tablesOf({ nftTable }: Owned, { nftTables }: HostContents): readonly string[] {
  return nftTables.filter((table) => nftTable?.(table)).map(describeNftTable);
}

/** The objects of one owner, one line each. */
function evidenceOf(owner: Owner, owned: Owned, contents: HostContents): readonly string[] {
  const sets = contents.sets.filter((each) => owned.set?.(each));
  const hasDevice = owned.device !== undefined && contents.devices.includes(owned.device);
  return [
    ...contents.chains.get(owner) ?? [],
    ...tablesOf(owned, contents),
    ...(sets.length > 0 ? [`${sets.length} ipsets of ${owned.name}`] : []),
    ...(hasDevice ? [`device ${owned.device}`] : []),
  ];
}

function leftoversOfKubeProxy({ contents, own }: Observations): readonly HostFinding[] {
  const { set, device } = OWNERS["kube-proxy"];
  const sets = contents.sets.filter(set);
  const hasDevice = contents.devices.includes(device);
  const servers = hasDevice ? contents.virtualServers : 0;
  const ofIpvs = [
    ...(hasDevice ? [`device ${device}`] : []),
    ...(sets.length > 0 ? [`${sets.length} ipsets: ${sets.join(", ")}`] : []),
    ...(servers > 0 ? [`${servers} virtual servers, of whomever`] : []),
  ];
  const astray = "which still send packets for Services to endpoints of that time";
  return ([
    ["iptables", astray, contents.chains.get("kube-proxy") ?? []],
    ["nftables", astray, tablesOf(OWNERS["kube-proxy"], contents)],
    ["ipvs", "which keep Service addresses on the node", own.mode === "ipvs" ? [] : ofIpvs],
  ] as const).flatMap(([mode, harm, evidence]) =>
    findingOf(evidence, {
      id: `kube-proxy-leftovers-${mode}`,
      severity: "warning",
      software: "kube-proxy",
      summary: `A kube-proxy that does not run any more left its ${mode} rules, ${harm}`,
      cure: "run 'kube-relay cleanup' (--dry-run lists what it removes), or start with --takeover",
    })
  );
}

/** The arguments of an agent do not show whether its server disables kube-proxy. */
function k3sFindings({ nodeArgs }: Observations): readonly HostFinding[] {
  if (nodeArgs?.role !== "server" || nodeArgs.disableKubeProxy) return [];
  return findingOf(["annotation k3s.io/node-args lacks --disable-kube-proxy"], {
    id: "k3s-kube-proxy-on",
    severity: "warning",
    software: "kube-proxy",
    summary: "k3s on this node runs its own kube-proxy, which returns with each start of k3s",
    cure: "start k3s with --disable-kube-proxy, on servers and agents",
  });
}

function kubeRouterFindings(
  { contents, nodeArgs, networkPolicy }: Observations,
): readonly HostFinding[] {
  const owned = OWNERS["kube-router"];
  const evidence = evidenceOf("kube-router", owned, contents);
  const software = "kube-router";
  const isProxy = contents.devices.includes(owned.device) ||
    contents.sets.some((name) => owned.set(name) && name.includes("kube-router-svip"));
  if (isProxy) {
    return findingOf(evidence, {
      id: "kube-router-service-proxy",
      severity: "warning",
      software,
      summary: "kube-router serves, or served, Services on this node by IPVS",
      cure: "run kube-router with --run-service-proxy=false, and --cleanup-config once",
    });
  }
  const isStale = nodeArgs?.disableNetworkPolicy === true;
  const turnOff = nodeArgs === undefined
    ? "run kube-router with --run-firewall=false, or k3s with --disable-network-policy; then "
    : isStale
    ? ""
    : "start k3s with --disable-network-policy on every server, and its agents again; then ";
  const takeOver =
    "start kube-relay once with --network-policy --takeover, which removes these rules";
  return findingOf(evidence, {
    id: "kube-router-policies",
    severity: isStale || networkPolicy ? "warning" : "info",
    software,
    summary: isStale
      ? "Rules of k3s's network policies remain, although k3s is configured not to enforce any"
      : "kube-router, or k3s by its library, enforces network policies on this node",
    cure: isStale || networkPolicy ? turnOff + takeOver : undefined,
  });
}

/** Another enforcer hinders only a start with `--network-policy`. */
function enforcerFindings({ contents, networkPolicy }: Observations): readonly HostFinding[] {
  return OWNER_ENTRIES.flatMap(([owner, owned]) => {
    const { name, enforcer } = owned;
    if (enforcer === undefined) return [];
    return findingOf(evidenceOf(owner, owned, contents), {
      id: enforcer.id,
      severity: networkPolicy ? "warning" : "info",
      software: owner as NonNullable<HostFinding["software"]>,
      summary: networkPolicy
        ? `${name} filters the traffic of pods too, or left its rules: a connection has to be ` +
          "allowed by both"
        : `${name} filters the traffic of pods on this node, or left its rules`,
      cure: networkPolicy ? enforcer.cure : undefined,
    });
  });
}

function serviceLbFindings({ routing, contents, nodeArgs }: Observations): readonly HostFinding[] {
  if (!nodeArgs || nodeArgs.disableServiceLb) return [];
  const hostPorts = contents.chains.get("portmap") ?? [];
  const common = { id: "klipper-service-lb", software: "klipper" } as const;
  // The arguments of an agent do not show whether its server disables ServiceLB.
  if (routing?.assignsByDefault && (nodeArgs.role === "server" || hostPorts.length > 0)) {
    return findingOf(["annotation k3s.io/node-args lacks --disable=servicelb", ...hostPorts], {
      ...common,
      severity: "warning",
      summary: "k3s's ServiceLB (klipper) assigns the addresses of nodes to the same Services",
      cure:
        "start k3s servers with --disable=servicelb, or set routing.defaultLoadBalancerClass to " +
        "false",
    });
  }
  return findingOf(hostPorts, {
    ...common,
    severity: "info",
    summary: "k3s's ServiceLB (klipper) may use host ports; its pods forward them to cluster IPs",
  });
}

/** Software that is known by the process of its listening sockets. */
const ANNOUNCERS = [
  {
    id: "metallb",
    software: "metallb",
    name: "MetalLB",
    process: "speaker",
    cure: "follow 'Replace MetalLB' in docs/load_balancer.md, or give kube-relay and MetalLB " +
      "different load balancer classes and pools",
  },
  {
    id: "kube-vip",
    software: "kube-vip",
    name: "kube-vip",
    process: "kube-vip",
    cure:
      "let kube-vip serve the control plane only (svc_enable=false), or give kube-relay another " +
      "load balancer class",
  },
  {
    id: "kube-router-bgp",
    software: "kube-router",
    name: "kube-router",
    process: "kube-router",
    cure: "start kube-router with --run-router=false, or remove its DaemonSet",
  },
] as const;

function announcerFindings({ programs }: Observations): readonly HostFinding[] {
  return ANNOUNCERS.flatMap(({ id, software, name, process, cure }) =>
    findingOf(programs.filter(({ program }) => program?.name === process).map(describeProgram), {
      id,
      severity: "warning",
      software,
      summary: `${name} runs on this node; both may assign or announce addresses of Services`,
      cure,
    })
  );
}

/** The own BIRD is the program on the control socket. */
function bgpPortFindings({ programs, routing }: Observations): readonly HostFinding[] {
  if (routing?.bgpSocket === undefined) return [];
  const own = programs.find(({ address }) => address === routing.bgpSocket)?.program;
  const others = programs.filter(({ port, program }) =>
    port === 179 && (own === undefined || program?.pid !== own.pid)
  );
  return findingOf(others.map(describeProgram), {
    id: "bgp-port",
    severity: "blocking",
    software: "other",
    summary: "Another BGP daemon listens on port 179, so the BIRD of kube-relay cannot",
    cure: "stop it (Debian's package starts one: systemctl disable --now bird), or set " +
      "routing.bgp.enabled to false",
  });
}

function describeProgram({ address, program }: ListeningProgram): string {
  const who = program ? `${program.name} (process ${program.pid})` : "an unknown program";
  return `${who} listens on ${address}`;
}

/** Packets pass both engines: rules in the engine that the node does not use are easily overlooked. */
function worldFindings({ contents: { worlds } }: Observations): readonly HostFinding[] {
  const inUse = worlds.filter(({ tables }) =>
    Object.values(tables).some(({ rules, chains }) => rules > 0 || chains.size > 0)
  );
  const both = (["IPv4", "IPv6"] as const).filter((family) =>
    inUse.filter(({ world }) => world.family === family).length > 1
  );
  const evidence = inUse.filter(({ world }) => both.includes(world.family))
    .map(({ world, tables }) => {
      const rules = Object.values(tables).reduce((sum, table) => sum + table.rules, 0);
      const hint = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"].find((chain) =>
        Object.values(tables).some(({ chains }) => chains.has(chain))
      );
      const chosen = hint === undefined ? "" : `; kubelet writes here (${hint})`;
      return `${rules} rules in ${nameOfRuleSet(world)}${chosen}`;
    });
  return findingOf(evidence, {
    id: "two-iptables-worlds",
    severity: "warning",
    summary: `iptables-nft and iptables-legacy both hold rules (${both.join(", ")})`,
    cure: "use the variant of the kubelet, and flush the other one if no program needs its rules",
  });
}

function relayFindings({ contents, own, networkPolicy }: Observations): readonly HostFinding[] {
  const tables = tablesOf(OWNERS["kube-relay"], contents);
  const isOfPolicies = (table: string) => table.includes(" kube-relay-policy ");
  // With policies they are in use, and the rules of another tool are removed.
  const policies = networkPolicy
    ? []
    : [...tables.filter(isOfPolicies), ...contents.chains.get("kube-relay") ?? []];
  const common = { severity: "warning", software: "other" } as const;
  return [
    ...findingOf(own.mode === "nftables" ? [] : tables.filter((each) => !isOfPolicies(each)), {
      ...common,
      id: "kube-relay-other-mode",
      summary:
        "Rules of kube-relay in another mode exist, from an earlier run or from a running process",
      cure: "stop kube-relay and run 'kube-relay cleanup'",
    }),
    ...findingOf(policies, {
      ...common,
      id: "kube-relay-policies-left",
      summary:
        "Rules of NetworkPolicies that an earlier run of kube-relay wrote still filter the traffic " +
        "of pods, and nothing updates them",
      cure: "start with --network-policy, or stop kube-relay and run 'kube-relay cleanup'",
    }),
  ];
}

function unseenFindings(
  { contents: { worlds, unseen } }: Observations,
  programs: string | undefined,
): readonly HostFinding[] {
  const unreadable = worlds.flatMap(({ world, tables }) =>
    Object.entries(tables).filter(([, { isUnreadable }]) => isUnreadable)
      .map(([table]) => `table ${table} (${nameOfRuleSet(world)}): only nft can show it`)
  );
  const listening = programs ? [`listening programs: ${programs}`] : [];
  const evidence = [...unseen, ...listening, ...unreadable];
  return findingOf(evidence, {
    id: "not-looked-at",
    severity: "info",
    summary: "Some sources of foreign rules could not be checked",
    cure: "run it again as root, with iptables, nftables and ipset installed",
  });
}

/** The annotation of a Node with the arguments of k3s. */
const K3S_NODE_ARGS = "k3s.io/node-args";

/** The relevant arguments. */
interface K3sNodeArgs {
  readonly role: "server" | "agent";
  readonly disableKubeProxy: boolean;
  readonly disableNetworkPolicy: boolean;
  readonly disableServiceLb: boolean;
}

/**
 * Reads the annotation's value: a JSON list of arguments, in which `--flag=value` has become two
 * (k3s pkg/nodeconfig). `undefined` for anything else.
 */
function parseK3sNodeArgs(value: string): K3sNodeArgs | undefined {
  let words: unknown;
  try {
    words = JSON.parse(value);
  } catch {
    return undefined;
  }
  if (!Array.isArray(words) || !words.every((word) => typeof word === "string")) return undefined;
  const args: readonly string[] = words.flatMap((word) =>
    /^(--[^=]*)=(.*)$/s.exec(word)?.slice(1) ?? [word]
  );
  const [role] = args;
  if (role !== "server" && role !== "agent") return undefined;
  // A switch is on if it stands alone or before `true`; the last occurrence counts.
  const isOn = (flag: string) => {
    const at = args.lastIndexOf(flag);
    return at >= 0 && args[at + 1] !== "false";
  };
  return {
    role,
    disableKubeProxy: isOn("--disable-kube-proxy"),
    disableNetworkPolicy: isOn("--disable-network-policy"),
    disableServiceLb: args.some((word, index) =>
      word === "--disable" && args[index + 1]?.split(",").includes("servicelb")
    ),
  };
}
