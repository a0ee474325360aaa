/**
 * Finds other software on this machine that assigns or announces addresses of Services. Pure.
 *
 * @module
 */
import type { HostFinding, RoutingIntent } from "../../../lib/proxy/host_checks.ts";
import type { ListeningProgram } from "../../../lib/os/listening_programs.ts";
import { type ChainCount, describeCount } from "./chain_counts.ts";
import type { K3sNodeArgs } from "./k3s_node_args.ts";

/** What the search has to know. */
export interface SeenLoadBalancers {
  /** Absent if kube-relay has neither pools nor BGP here. */
  readonly routing?: RoutingIntent;
  readonly programs: readonly ListeningProgram[];
  readonly chains: readonly ChainCount[];
  readonly nodeArgs?: K3sNodeArgs;
}

const BGP_PORT = 179;

/** Software that is known by its listening sockets. */
const ANNOUNCERS: readonly {
  readonly id: string;
  readonly software: NonNullable<HostFinding["software"]>;
  readonly name: string;
  /** The process. */
  readonly program: string;
  readonly cure: string;
}[] = [
  {
    id: "metallb",
    software: "metallb",
    name: "MetalLB",
    program: "speaker",
    cure: "follow 'Replace MetalLB' in docs/load_balancer.md, or give kube-relay and MetalLB " +
      "different load balancer classes and pools",
  },
  {
    id: "kube-vip",
    software: "kube-vip",
    name: "kube-vip",
    program: "kube-vip",
    cure:
      "let kube-vip serve the control plane only (svc_enable=false), or give kube-relay another " +
      "load balancer class",
  },
  {
    id: "kube-router-bgp",
    software: "kube-router",
    name: "kube-router",
    program: "kube-router",
    cure: "start kube-router with --run-router=false, or remove its DaemonSet",
  },
];

/** Returns the findings. There are none without `routing`, except for ServiceLB with host ports. */
export function loadBalancerFindings(seen: SeenLoadBalancers): readonly HostFinding[] {
  const { routing } = seen;
  return [
    ...serviceLbFindings(seen),
    ...(routing ? announcerFindings(seen) : []),
    ...(routing?.bgpSocket === undefined ? [] : portFindings(seen, routing.bgpSocket)),
  ];
}

function serviceLbFindings({ routing, chains, nodeArgs }: SeenLoadBalancers): HostFinding[] {
  if (!nodeArgs || nodeArgs.disableServiceLb) return [];
  const hostPorts = chains.filter(({ owner }) => owner === "portmap").map(describeCount);
  const common = { id: "klipper-service-lb", software: "klipper" } as const;
  // The arguments of an agent do not show whether its server disables ServiceLB.
  if (routing?.assignsByDefault && (nodeArgs.role === "server" || hostPorts.length > 0)) {
    return [{
      ...common,
      severity: "warning",
      summary: "k3s's ServiceLB (klipper) assigns the addresses of nodes to the same Services",
      evidence: ["annotation k3s.io/node-args lacks --disable=servicelb", ...hostPorts],
      cure:
        "start k3s servers with --disable=servicelb, or set routing.defaultLoadBalancerClass to " +
        "false",
    }];
  }
  if (hostPorts.length === 0) return [];
  return [{
    ...common,
    severity: "info",
    summary: "k3s's ServiceLB (klipper) may use host ports; its pods forward them to cluster IPs",
    evidence: hostPorts,
  }];
}

function announcerFindings({ programs }: SeenLoadBalancers): HostFinding[] {
  return ANNOUNCERS.flatMap(({ id, software, name, program: wanted, cure }) => {
    const found = programs.filter(({ program }) => program?.name === wanted);
    if (found.length === 0) return [];
    return [{
      ...{ id, software, cure },
      severity: "warning",
      summary: `${name} runs on this node; both may assign or announce addresses of Services`,
      evidence: found.map(describe),
    }];
  });
}

/** The own BIRD is the program on the control socket. */
function portFindings({ programs }: SeenLoadBalancers, bgpSocket: string): HostFinding[] {
  const own = programs.find(({ address }) => address === bgpSocket)?.program;
  const others = programs.filter(({ port, program }) =>
    port === BGP_PORT && (own === undefined || program?.pid !== own.pid)
  );
  if (others.length === 0) return [];
  return [{
    id: "bgp-port",
    severity: "blocking",
    software: "other",
    summary: "Another BGP daemon listens on port 179, so the BIRD of kube-relay cannot",
    evidence: others.map(describe),
    cure: "stop it (Debian's package starts one: systemctl disable --now bird), or set " +
      "routing.bgp.enabled to false",
  }];
}

function describe({ address, program }: ListeningProgram): string {
  return program === undefined
    ? `an unknown program listens on ${address}`
    : `${program.name} (process ${program.pid}) listens on ${address}`;
}
