import { overlap, rangeOf } from "../net/address_range.ts";
import {
  type Cidr,
  cidrContains,
  cidrFamilyOf,
  hostCidr,
  networkOf,
  prefixLengthOf,
} from "../net/cidr.ts";
import { addressNumber, type IpAddress, type IpFamily, ipFamilyOf } from "../net/ip_address.ts";
import { SortedList } from "../net/sorted_list.ts";
import { contentId } from "../policy/content_id.ts";
import type { RoutingNode } from "./routing_node.ts";
import type { PodNetworkSettings } from "./routing_settings.ts";

/** The tasks of this node for the network of pods. Deeply read-only. */
export interface PodNetworkPlan {
  /** The ranges of this node's pods. */
  readonly podCidrs: readonly Cidr[];
  /** The first InternalIP of each family. The MTU is that of their interface. */
  readonly addresses: readonly IpAddress[];
  /** Sorted by destination. */
  readonly routes: readonly PodRoute[];
  /** Sorted by device. */
  readonly tunnels: readonly PodTunnel[];
  /** Whether the MTU of pods has to leave room for the header of a tunnel. */
  readonly isOverlay: boolean;
  /** Absent = that of the node's interface, less the header of a tunnel. */
  readonly mtu?: number;
  /** Absent if no CNI configuration is written. */
  readonly cni?: { readonly path: string; readonly portMappings: boolean };
  /** Absent if traffic of pods keeps its source. */
  readonly masquerade?: {
    readonly sources: readonly Cidr[];
    /** Destinations in the cluster. */
    readonly except: readonly Cidr[];
  };
  /** Nodes without a route, because a router has to know it. */
  readonly unrouted: readonly PodNetworkProblem[];
  readonly problems: readonly PodNetworkProblem[];
}

/** A part of a Node that cannot be used. */
interface PodNetworkProblem {
  readonly node: string;
  readonly reason: string;
}

/** A route to the pods of another node. */
export interface PodRoute {
  readonly destination: Cidr;
  readonly node: string;
  /** The address of the node, which is on a network of this one; absent with a tunnel. */
  readonly gateway?: IpAddress;
  readonly tunnel?: string;
  /** The source that this node itself uses. */
  readonly source?: IpAddress;
}

/** A tunnel to another node. */
export interface PodTunnel {
  readonly device: string;
  readonly node: string;
  readonly family: IpFamily;
  readonly local: IpAddress;
  readonly remote: IpAddress;
  /** Replies of pods to this address come back through the tunnel. Absent = the node has no pods. */
  readonly source?: IpAddress;
}

/** The state that the network of pods depends on. */
interface PodNetworkInputs {
  readonly settings: PodNetworkSettings;
  readonly own: RoutingNode;
  /** All nodes; the own one may be among them. */
  readonly nodes: Iterable<RoutingNode>;
  /** The networks of the node's interfaces; empty = unknown, and every node is taken as near. */
  readonly networks: readonly Cidr[];
  /** The ranges of all pods; may be empty. */
  readonly clusterCidrs: readonly Cidr[];
}

/** Begins the names of tunnel devices, which only kube-relay uses. */
export const TUNNEL_PREFIX = "kr-pod-";

/** Makes the plan of a node. */
export function planPodNetwork(inputs: PodNetworkInputs): PodNetworkPlan {
  const { settings, own } = inputs;
  const nodes = [...inputs.nodes].filter(({ name }) => name !== own.name)
    .sort((left, right) => left.name < right.name ? -1 : 1);
  const obstacleOf = findObstacles(own, nodes);
  const problems: PodNetworkProblem[] = [...ownProblems(own)];
  const unrouted: PodNetworkProblem[] = [];
  const routes: PodRoute[] = [];
  const tunnels = new Map<string, PodTunnel>();
  for (const node of settings.routes ? nodes : []) {
    for (const text of node.invalidPodCidrs ?? []) {
      problems.push({ node: node.name, reason: `'${text}' is no CIDR such as 10.244.1.0/24` });
    }
    for (const destination of node.podCidrs) {
      const obstacle = obstacleOf(destination, node);
      const made = obstacle === undefined
        ? routeTo(destination, node, inputs)
        : { problem: obstacle };
      if (made === undefined) {
        unrouted.push({ node: node.name, reason: `${destination} is in another subnet` });
      } else if ("problem" in made) problems.push({ node: node.name, reason: made.problem });
      else {
        routes.push(made.route);
        if (made.tunnel) tunnels.set(made.tunnel.device, made.tunnel);
      }
    }
  }
  return {
    podCidrs: own.podCidrs,
    addresses: Object.values(own.primary),
    routes: routes.sort((left, right) => left.destination < right.destination ? -1 : 1),
    tunnels: [...tunnels.values()].sort((left, right) => left.device < right.device ? -1 : 1),
    isOverlay: settings.overlay !== "off",
    ...(settings.mtu !== undefined && { mtu: settings.mtu }),
    ...(settings.cniConfig !== undefined && {
      cni: { path: settings.cniConfig, portMappings: settings.portMappings },
    }),
    ...(settings.masquerade && own.podCidrs.length > 0 && {
      masquerade: masqueradeOf(inputs, nodes),
    }),
    unrouted,
    problems,
  };
}

function ownProblems({ name: node, podCidrs, invalidPodCidrs = [] }: RoutingNode) {
  const invalid = invalidPodCidrs.map((text) => ({
    node,
    reason: `'${text}' is no CIDR such as 10.244.1.0/24`,
  }));
  if (podCidrs.length + invalid.length > 0) return invalid;
  const reason = "this Node has no spec.podCIDRs; kube-controller-manager assigns them with " +
    "--allocate-node-cidrs and --cluster-cidr";
  return [{ node, reason }];
}

/** A route, the reason why there is none, or `undefined` if routers have to know it. */
type MadeRoute =
  | { readonly route: PodRoute; readonly tunnel?: PodTunnel }
  | { readonly problem: string };

function routeTo(
  destination: Cidr,
  node: RoutingNode,
  { settings: { overlay }, own, networks }: PodNetworkInputs,
): MadeRoute | undefined {
  const family = cidrFamilyOf(destination);
  const [local, remote] = [own.primary[family], node.primary[family]];
  if (remote === undefined) {
    return { problem: `${destination} has no route: the Node has no InternalIP of ${family}` };
  }
  const isNear = networks.length === 0 ||
    networks.some((network) => cidrContains(network, remote));
  if (isNear && overlay !== "always") {
    return { route: { destination, node: node.name, gateway: remote } };
  }
  if (overlay === "off") return undefined;
  if (local === undefined) {
    return { problem: `${destination} has no route: this Node has no InternalIP of ${family}` };
  }
  const range = own.podCidrs.find((each) => cidrFamilyOf(each) === family);
  const source = range && { source: networkOf(range) };
  const device = TUNNEL_PREFIX + contentId(`${local} ${remote}`).slice(0, 8);
  return {
    route: { destination, node: node.name, tunnel: device, ...source },
    tunnel: { device, node: node.name, family, local, remote, ...source },
  };
}

function masqueradeOf(
  { own, clusterCidrs }: PodNetworkInputs,
  others: readonly RoutingNode[],
): NonNullable<PodNetworkPlan["masquerade"]> {
  const except = [own, ...others].flatMap(({ podCidrs, addresses }) => [
    ...podCidrs.filter((each) => prefixLengthOf(each) > 0),
    ...addresses.map(hostCidr),
  ]);
  return {
    sources: own.podCidrs,
    except: [...new Set([...clusterCidrs, ...except])].sort(),
  };
}

/** Returns why a route to the range of a node would do harm; `undefined` = it would not. */
function findObstacles(
  own: RoutingNode,
  others: readonly RoutingNode[],
): (cidr: Cidr, node: RoutingNode) => string | undefined {
  /** The first node by name that has a range. */
  const owners = new Map<Cidr, string>();
  for (const { name, podCidrs } of others) {
    for (const cidr of podCidrs) if (!owners.has(cidr)) owners.set(cidr, name);
  }
  const ofNodes = { IPv4: new SortedList(compareNumbers), IPv6: new SortedList(compareNumbers) };
  for (const address of [own, ...others].flatMap(({ addresses }) => addresses)) {
    ofNodes[ipFamilyOf(address)].add(addressNumber(address));
  }
  return (cidr, { name }) => {
    if (prefixLengthOf(cidr) === 0) return `${cidr} is no range of pods: it contains every address`;
    const range = rangeOf(cidr);
    const ofThis = own.podCidrs.find((each) => overlap(rangeOf(each), range));
    if (ofThis !== undefined) return `${cidr} overlaps ${ofThis} of this Node`;
    const owner = owners.get(cidr);
    if (owner !== undefined && owner !== name) return `${cidr} belongs to Node ${owner} too`;
    const addresses = ofNodes[range.family];
    const next = addresses.items[addresses.indexOf(range.first)];
    return next !== undefined && next <= range.last
      ? `${cidr} contains the address of a Node`
      : undefined;
  };
}

function compareNumbers(left: bigint, right: bigint): number {
  return left < right ? -1 : left > right ? 1 : 0;
}
