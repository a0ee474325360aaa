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
} from "../../../lib/proxy/host_checks.ts";
import { nameOfRuleSet } from "../iptables/iptables_rule_set.ts";
import { describeNftTable } from "../nft/nft_objects.ts";
import { askTool } from "../probe/try_tool.ts";
import { findOwnState, type HostEdges, readHostContents } from "./host_contents.ts";
import { findLiveKubeProxy } from "./live_kube_proxy.ts";
import { type Owned, type Owner, OWNER_ENTRIES, OWNERS } from "./owners.ts";

export interface ForeignSoftwareEdges extends HostEdges {
  readonly network: Network;
  /** The user of this process; `undefined` = unknown. */
  readonly uid: number | undefined;
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
  const { routing, takeover = false, signal } = options;
  const looking = signal ? { signal } : {};
  const found: HostFinding[] = [];
  const report = (...finding: Parameters<typeof findingOf>) => found.push(...findingOf(...finding));
  const { live, impostors } = await findLiveKubeProxy(edges, looking);
  const reportLive = (more: readonly string[]) =>
    live && report([...live.evidence, ...more], {
      id: KUBE_PROXY_ALIVE,
      severity: takeover ? "warning" : "blocking",
      software: "kube-proxy",
      summary: "A kube-proxy, or a replacement of it, runs on this node" +
        (live.mode === undefined ? "" : ` in mode ${live.mode}`),
      cure:
        "turn it off (k3s: start it with --disable-kube-proxy, on servers and agents; kubeadm: " +
        "give its DaemonSet a node selector that no node has, and keep its ConfigMap; systemd: " +
        "systemctl disable --now kube-proxy)" +
        (takeover ? "" : ", or start kube-relay with --takeover"),
    });
  const impostor = findingOf(impostors, {
    id: "kube-proxy-impostor",
    severity: "warning",
    software: "other",
    summary: "A program of another user answers like kube-proxy on its ports; it is ignored",
    cure: "find it with 'ss -lptn' and stop it; kube-relay cannot use the port until then",
  });
  // A check of ports starts no tool, so it comes before reading the objects.
  if (scope === "ports") {
    reportLive([]);
    return [...found, ...impostor];
  }
  const own = await findOwnState(edges, mode, signal);
  const contents = await readHostContents(edges, own, looking);
  const { chains, devices, nftTables, sets, unseen, virtualServers, worlds } = contents;
  const listening = routing && await askTool(edges.commands, ["ss", ...LISTENING_ARGS], looking);
  const programs = listening?.state === "seen" ? [...parseListeningPrograms(listening.value)] : [];
  const k3s = parseK3sNodeArgs(nodeAnnotations[K3S_NODE_ARGS] ?? "");
  const tablesOf = ({ nftTable }: Owned) =>
    nftTables.filter((table) => nftTable?.(table)).map(describeNftTable);
  /** The objects of one owner, one line each. */
  const evidenceOf = (owner: Owner, owned: Owned) => {
    const count = sets.filter((each) => owned.set?.(each)).length;
    const hasDevice = owned.device !== undefined && devices.includes(owned.device);
    return [
      ...chains.get(owner) ?? [],
      ...tablesOf(owned),
      ...(count > 0 ? [`${count} ipsets of ${owned.name}`] : []),
      ...(hasDevice ? [`device ${owned.device}`] : []),
    ];
  };

  const { set, device } = OWNERS["kube-proxy"];
  const setsOfIpvs = sets.filter(set);
  const hasDevice = devices.includes(device);
  const ofIpvs = [
    ...(hasDevice ? [`device ${device}`] : []),
    ...(setsOfIpvs.length > 0 ? [`${setsOfIpvs.length} ipsets: ${setsOfIpvs.join(", ")}`] : []),
    ...(hasDevice && virtualServers > 0 ? [`${virtualServers} virtual servers, of whomever`] : []),
  ];
  const astray = "which still send packets for Services to endpoints of that time";
  const left = [
    ["iptables", astray, chains.get("kube-proxy") ?? []],
    ["nftables", astray, tablesOf(OWNERS["kube-proxy"])],
    ["ipvs", "which keep Service addresses on the node", own.mode === "ipvs" ? [] : ofIpvs],
  ] as const;
  // Rules of a kube-proxy that runs are no leftovers: they are evidence.
  reportLive(left.flatMap(([, , evidence]) => evidence));
  for (const [mode, harm, evidence] of live ? [] : left) {
    report(evidence, {
      id: `kube-proxy-leftovers-${mode}`,
      severity: "warning",
      software: "kube-proxy",
      summary: `A kube-proxy that does not run any more left its ${mode} rules, ${harm}`,
      cure: "run 'kube-relay cleanup' (--dry-run lists what it removes), or start with --takeover",
    });
  }
  found.push(...impostor);

  // The arguments of an agent do not show whether its server disables kube-proxy.
  if (k3s?.role === "server" && !k3s.disableKubeProxy) {
    report(["annotation k3s.io/node-args lacks --disable-kube-proxy"], {
      id: "k3s-kube-proxy-on",
      severity: "warning",
      software: "kube-proxy",
      summary: "k3s on this node runs its own kube-proxy, which returns with each start of k3s",
      cure: "start k3s with --disable-kube-proxy, on servers and agents",
    });
  }

  const router = OWNERS["kube-router"];
  const ofRouter = evidenceOf("kube-router", router);
  const isProxy = devices.includes(router.device) ||
    sets.some((name) => router.set(name) && name.includes("kube-router-svip"));
  const isStale = k3s?.disableNetworkPolicy === true;
  const isHarmful = isStale || networkPolicy;
  const turnOff = k3s === undefined
    ? "run kube-router with --run-firewall=false, or k3s with --disable-network-policy; then "
    : isStale
    ? ""
    : "start k3s with --disable-network-policy on every server, and its agents again; then ";
  report(
    ofRouter,
    isProxy
      ? {
        id: "kube-router-service-proxy",
        severity: "warning",
        software: "kube-router",
        summary: "kube-router serves, or served, Services on this node by IPVS",
        cure: "run kube-router with --run-service-proxy=false, and --cleanup-config once",
      }
      : {
        id: "kube-router-policies",
        severity: isHarmful ? "warning" : "info",
        software: "kube-router",
        summary: isStale
          ? "Rules of k3s's network policies remain, although k3s is configured not to enforce any"
          : "kube-router, or k3s by its library, enforces network policies on this node",
        cure: isHarmful
          ? `${turnOff}start kube-relay once with --network-policy --takeover, which removes these rules`
          : undefined,
      },
  );
  // Another enforcer hinders only a start with `--network-policy`.
  for (const [owner, owned] of OWNER_ENTRIES) {
    const { name, enforcer } = owned;
    if (enforcer === undefined) continue;
    report(evidenceOf(owner, owned), {
      id: enforcer.id,
      severity: networkPolicy ? "warning" : "info",
      software: owner as NonNullable<HostFinding["software"]>,
      summary: networkPolicy
        ? `${name} filters the traffic of pods too, or left its rules: a connection has to be ` +
          "allowed by both"
        : `${name} filters the traffic of pods on this node, or left its rules`,
      cure: networkPolicy ? enforcer.cure : undefined,
    });
  }

  const hostPorts = chains.get("portmap") ?? [];
  const serviceLb = { id: "klipper-service-lb", software: "klipper" } as const;
  if (k3s === undefined || k3s.disableServiceLb) {
    // There is no ServiceLB, as far as it is known.
  } else if (routing?.assignsByDefault && (k3s.role === "server" || hostPorts.length > 0)) {
    // The arguments of an agent do not show whether its server disables ServiceLB.
    report(["annotation k3s.io/node-args lacks --disable=servicelb", ...hostPorts], {
      ...serviceLb,
      severity: "warning",
      summary: "k3s's ServiceLB (klipper) assigns the addresses of nodes to the same Services",
      cure:
        "start k3s servers with --disable=servicelb, or set routing.defaultLoadBalancerClass to " +
        "false",
    });
  } else {
    report(hostPorts, {
      ...serviceLb,
      severity: "info",
      summary: "k3s's ServiceLB (klipper) may use host ports; its pods forward them to cluster IPs",
    });
  }

  for (const { name, process, ...announcer } of ANNOUNCERS) {
    report(programs.filter(({ program }) => program?.name === process).map(describeProgram), {
      ...announcer,
      severity: "warning",
      summary: `${name} runs on this node; both may assign or announce addresses of Services`,
    });
  }
  if (routing?.bgpSocket !== undefined) {
    // The own BIRD is the program on the control socket.
    const bird = programs.find(({ address }) => address === routing.bgpSocket)?.program;
    const others = programs.filter(({ port, program }) =>
      port === 179 && (bird === undefined || program?.pid !== bird.pid)
    );
    report(others.map(describeProgram), {
      id: "bgp-port",
      severity: "blocking",
      software: "other",
      summary: "Another BGP daemon listens on port 179, so the BIRD of kube-relay cannot",
      cure: "stop it (Debian's package starts one: systemctl disable --now bird), or set " +
        "routing.bgp.enabled to false",
    });
  }

  // Packets pass both engines: rules in the engine that the node does not use are easily overlooked.
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
  report(evidence, {
    id: "two-iptables-worlds",
    severity: "warning",
    summary: `iptables-nft and iptables-legacy both hold rules (${both.join(", ")})`,
    cure: "use the variant of the kubelet, and flush the other one if no program needs its rules",
  });

  const ownTables = tablesOf(OWNERS["kube-relay"]);
  const isOfPolicies = (table: string) => table.includes(" kube-relay-policy ");
  report(own.mode === "nftables" ? [] : ownTables.filter((each) => !isOfPolicies(each)), {
    id: "kube-relay-other-mode",
    severity: "warning",
    software: "other",
    summary:
      "Rules of kube-relay in another mode exist, from an earlier run or from a running process",
    cure: "stop kube-relay and run 'kube-relay cleanup'",
  });
  // With policies they are in use, and the rules of another tool are removed.
  const policies = [...ownTables.filter(isOfPolicies), ...chains.get("kube-relay") ?? []];
  report(networkPolicy ? [] : policies, {
    id: "kube-relay-policies-left",
    severity: "warning",
    software: "other",
    summary:
      "Rules of NetworkPolicies that an earlier run of kube-relay wrote still filter the traffic " +
      "of pods, and nothing updates them",
    cure: "start with --network-policy, or stop kube-relay and run 'kube-relay cleanup'",
  });

  const unreadable = worlds.flatMap(({ world, tables }) =>
    Object.entries(tables).filter(([, { isUnreadable }]) => isUnreadable)
      .map(([table]) => `table ${table} (${nameOfRuleSet(world)}): only nft can show it`)
  );
  const unlisted = listening && "reason" in listening
    ? [`listening programs: ${listening.reason}`]
    : [];
  report([...unseen, ...unlisted, ...unreadable], {
    id: "not-looked-at",
    severity: "info",
    summary: "Some sources of foreign rules could not be checked",
    cure: "run it again as root, with iptables, nftables and ipset installed",
  });
  return bySeverity(found);
}

function describeProgram({ address, program }: ListeningProgram): string {
  const who = program ? `${program.name} (process ${program.pid})` : "an unknown program";
  return `${who} listens on ${address}`;
}

/** The annotation of a Node with the arguments of k3s. */
const K3S_NODE_ARGS = "k3s.io/node-args";

/**
 * Reads the annotation's value: a JSON list of arguments, in which `--flag=value` has become two
 * (k3s pkg/nodeconfig). `undefined` for anything else.
 */
function parseK3sNodeArgs(value: string) {
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
