/**
 * The difference between the plan of the network of pods and the machine: routes and tunnels. Pure.
 *
 * @module
 */
import { rangeOf } from "../../lib/net/address_range.ts";
import { type Cidr, cidrFamilyOf } from "../../lib/net/cidr.ts";
import { addressAt, type IpAddress, type IpFamily, ipFamilyOf } from "../../lib/net/ip_address.ts";
import { TUNNEL_PREFIX } from "../../lib/routing/plan_pod_network.ts";
import {
  POD_ROUTE_METRIC,
  type PodNetworkPlan,
  type PodRoute,
  type PodTunnel,
} from "../../lib/routing/pod_network_plan.ts";
import {
  addressLine,
  addTunnelLine,
  type ChosenRoute,
  deleteLinkLine,
  type IpFailure,
  kindOfTunnel,
  type Link,
  type Route,
  routeLine,
  setLinkLine,
} from "../iproute/ip_text.ts";
import type { RoutingDifference } from "../../lib/routing/compare_layer2.ts";

/** Marks the routes of kube-relay in the kernel. iproute2 gives the number no name. */
export const POD_ROUTE_PROTOCOL = 75;

/** The objects of the machine. */
export interface PodMachine {
  /** All devices. */
  readonly links: readonly Link[];
  /** The routes with {@linkcode POD_ROUTE_PROTOCOL}, of both families. */
  readonly routes: readonly Route[];
}

/** One object that differs. */
export interface PodChange extends RoutingDifference {
  readonly object: "route" | "tunnel";
  /** Absent for an object that is no longer wanted. */
  readonly node?: string;
  /** For `ip -batch`. */
  readonly lines: readonly string[];
}

/** What the header of a tunnel takes from the MTU. */
const OVERHEAD: Readonly<Record<IpFamily, number>> = { IPv4: 20, IPv6: 40 };
/** Of Ethernet, in case no interface has the address of the node. */
const USUAL_MTU = 1_500;
const LONGEST_ALIAS = 255;

/** Returns the differences in the order in which they have to be carried out. */
export function machineChanges(plan: PodNetworkPlan, machine: PodMachine): readonly PodChange[] {
  const tunnels = new Map(plan.tunnels.map((tunnel) => [tunnel.device, tunnel]));
  const links = new Map(ownTunnels(machine).map((link) => [link.device, link]));
  const wanted = new Map(plan.routes.map((route) => [route.destination, route]));
  const found = new Map<Cidr | undefined, Route>();
  const others: Route[] = [];
  for (const route of machine.routes) {
    const isOurs = wanted.has(route.destination!) && route.metric === POD_ROUTE_METRIC;
    if (isOurs) found.set(route.destination, route);
    else others.push(route);
  }
  return [
    ...plan.tunnels.flatMap((tunnel) =>
      tunnelChange(tunnel, {
        link: links.get(tunnel.device),
        mtu: mtuOfTunnel(plan, { machine, family: tunnel.family }),
      }) ?? []
    ),
    ...plan.routes.flatMap((route) => routeChange(route, found.get(route.destination)) ?? []),
    ...others.map(extraRoute),
    ...[...links.values()].filter(({ device }) => !tunnels.has(device)).map(extraTunnel),
  ];
}

/** A route to pods whose packets the kernel sends elsewhere. */
export interface ShadowedRoute extends RoutingDifference {
  readonly node: string;
}

/** An address of a range that stands for all in a look at the routing of the kernel. */
export function sampleOf(destination: Cidr): IpAddress {
  const { first, last } = rangeOf(destination);
  return addressAt(first === last ? first : first + 1n, cidrFamilyOf(destination));
}

/**
 * Returns the routes that another program's route precedes. `chosen` has the routes of the kernel for
 * the samples of their destinations.
 */
export function shadowedRoutes(
  { routes }: PodNetworkPlan,
  { missing, chosen }: {
    /** Destinations whose own route the machine does not have. */
    readonly missing: ReadonlySet<string>;
    readonly chosen: ReadonlyMap<IpAddress, ChosenRoute | IpFailure>;
  },
): readonly ShadowedRoute[] {
  return routes.flatMap(({ destination, node }): readonly ShadowedRoute[] => {
    const found = chosen.get(sampleOf(destination));
    const isOurs = !found || "gateways" in found && found.protocol === `${POD_ROUTE_PROTOCOL}`;
    if (isOurs || missing.has(destination)) return [];
    const text = "gateways" in found ? chosenText(found) : `no packets: ${found.message}`;
    const place = { object: "pod route", name: destination, node };
    return [{ ...place, kind: "altered", found: `another program's route comes first: ${text}` }];
  });
}

function chosenText({ type, destination, protocol, table, metric = 0, ...path }: ChosenRoute) {
  const properties = [
    ...protocol === undefined ? [] : [`protocol ${protocol}`],
    `metric ${metric}`,
    `table ${table ?? "main"}`,
  ];
  const words = [...type === undefined ? [] : [type], destination ?? "default", pathText(path)];
  return `${words.filter((word) => word !== "").join(" ")} (${properties.join(", ")})`;
}

/** The tunnels that any run made. A device of another kind with such a name is foreign. */
export function ownTunnels({ links }: Pick<PodMachine, "links">): readonly Link[] {
  return links.filter(({ device, kind }) =>
    device.startsWith(TUNNEL_PREFIX) && (kind === "ipip" || kind === "ip6tnl")
  );
}

/** The MTU of the node's pods. */
export function mtuOfPods(plan: PodNetworkPlan, machine: Pick<PodMachine, "links">): number {
  const families = new Set(plan.podCidrs.map(cidrFamilyOf));
  const mtus = [...families].map((family) =>
    mtuOfNode(plan, { machine, family }) - (plan.isOverlay ? OVERHEAD[family] : 0)
  );
  return plan.mtu ?? Math.min(USUAL_MTU * 100, ...mtus);
}

interface MtuInputs {
  readonly machine: Pick<PodMachine, "links">;
  readonly family: IpFamily;
}

function mtuOfTunnel(plan: PodNetworkPlan, inputs: MtuInputs): number {
  return plan.mtu ?? mtuOfNode(plan, inputs) - OVERHEAD[inputs.family];
}

function mtuOfNode({ addresses }: PodNetworkPlan, { machine, family }: MtuInputs): number {
  const own = addresses.find((each) => ipFamilyOf(each) === family);
  const link = machine.links.find((each) => own !== undefined && each.addresses.includes(own));
  return link?.mtu ?? USUAL_MTU;
}

function tunnelChange(
  tunnel: PodTunnel,
  { link, mtu }: { readonly link: Link | undefined; readonly mtu: number },
): PodChange | undefined {
  const { device, node, local, remote, source } = tunnel;
  // `ip -batch` splits at blanks.
  const alias = `kube-relay:${node}`.slice(0, LONGEST_ALIAS);
  const set = setLinkLine({ device, mtu, alias });
  const sources = source === undefined ? [] : [source];
  const text = `from ${local} to ${remote} of ${node}, MTU ${mtu}`;
  const common = { object: "tunnel", name: device, node, wanted: text } as const;
  const add = sources.map((address) => addressLine("replace", { address, device }));
  if (link?.kind !== kindOfTunnel(tunnel)) {
    return { ...common, kind: "missing", lines: [addTunnelLine(tunnel), set, ...add] };
  }
  const old = link.addresses.filter((each) => !sources.includes(each) && !each.startsWith("fe80:"));
  const isSame = link.mtu === mtu && link.isUp && link.alias === alias && old.length === 0 &&
    sources.every((each) => link.addresses.includes(each));
  if (isSame) return undefined;
  const removals = old.map((address) => addressLine("del", { address, device }));
  return {
    ...common,
    kind: "altered",
    found: `MTU ${link.mtu}, ${link.isUp ? "up" : "down"}, ` +
      (link.addresses.length > 0 ? link.addresses.join(", ") : "no address"),
    lines: [set, ...add, ...removals],
  };
}

function routeChange(route: PodRoute, found: Route | undefined): PodChange | undefined {
  const { destination, node, gateway, tunnel, source } = route;
  const next: Route = {
    destination,
    gateways: gateway === undefined ? [] : [gateway],
    ...(tunnel !== undefined && { device: tunnel }),
    ...(source !== undefined && { source }),
  };
  const isSame = found && found.type === undefined &&
    `${found.gateways}` === `${next.gateways}` &&
    (tunnel === undefined || found.device === tunnel) && found.source === source;
  if (isSame) return undefined;
  return {
    ...{ object: "route", name: destination, node, wanted: pathText(next) },
    kind: found ? "altered" : "missing",
    ...(found && { found: pathText(found) }),
    // `add` fails where another program has a route with the same metric, which stays.
    lines: [ownRouteLine(found ? "replace" : "add", next)],
  };
}

function extraRoute(route: Route): PodChange {
  const name = route.destination ?? "default";
  const lines = [ownRouteLine("del", route)];
  return { object: "route", name, kind: "extra", found: pathText(route), lines };
}

function extraTunnel({ device, alias = "" }: Link): PodChange {
  const lines = [deleteLinkLine(device)];
  return { object: "tunnel", name: device, kind: "extra", found: `a tunnel, ${alias}`, lines };
}

function ownRouteLine(verb: "add" | "replace" | "del", route: Route): string {
  const { destination, gateways, device, source } = route;
  const metric = verb === "del" ? route.metric ?? POD_ROUTE_METRIC : POD_ROUTE_METRIC;
  const protocol = POD_ROUTE_PROTOCOL;
  return routeLine(verb, {
    ...{ gateways, metric, protocol },
    ...(destination !== undefined && { destination }),
    ...(device !== undefined && { device }),
    ...(source !== undefined && verb !== "del" && { source }),
  });
}

function pathText({ gateways, device, source }: Route): string {
  const gateway = gateways.map((each) => `via ${each}`);
  // The device of a gateway follows from it.
  const through = device !== undefined && gateways.length === 0 ? [`through ${device}`] : [];
  return [...gateway, ...through, ...source ? [`from ${source}`] : []].join(" ");
}
