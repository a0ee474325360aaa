/**
 * The section of a dump for the routing controller. It has its own Services and Nodes, with more
 * fields than those of Services.
 *
 * @module
 */
import * as v from "valibot";
import { ROUTED_NODE, type RoutedNode } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE, type RoutedService } from "../../api/kinds/routed_service.ts";
import { routingSettingsOf } from "../../config/parse_routing.ts";
import type {
  PeerConfiguration,
  PoolConfiguration,
  RoutingConfiguration,
  SelectorConfiguration,
} from "../../config/routing.ts";
import type { Cidr } from "../../net/cidr.ts";
import { addressAt } from "../../net/ip_address.ts";
import { nodeBgpOf } from "../../routing/node_bgp.ts";
import { type MemberReport, REPORT_SCHEMA } from "../../routing/layer2_member.ts";
import { routingNodeOf } from "../../routing/routing_node.ts";
import type { ConfiguredPeer } from "../../routing/routing_settings.ts";
import { dumpedObjects } from "./dump_objects.ts";
import { cidr, type DumpSection, fields, flag, list, objectName, optional } from "./dump_value.ts";

/** The section. */
export const DUMPED_ROUTING = fields({
  objects: dumpedObjects([ROUTED_SERVICE, ROUTED_NODE]),
  /** Nodes with a valid Lease; absent if none are followed. */
  live: optional(list(objectName)),
  /** What these nodes say of themselves. Absent in dumps of older versions. */
  reports: optional(list(v.object({ node: objectName, ...REPORT_SCHEMA.entries }))),
  isDraining: flag,
  /** The networks of the node's interfaces. */
  networks: list(cidr),
});

/** The section as it is read. */
export type DumpedRouting = v.InferOutput<typeof DUMPED_ROUTING>;

/** Names no file: the configuration needs one, and whether there is a password matters. */
const PASSWORD_FILE = "/password-is-not-in-the-dump";

/** The inputs of a plan of addresses and routes. */
interface RoutingInputsOfRun {
  readonly routing: RoutingConfiguration;
  readonly nodeName: string;
  readonly nodes: { get(name: string): RoutedNode | undefined; values(): Iterable<RoutedNode> };
  readonly services: { values(): Iterable<RoutedService> };
  readonly live: ReadonlySet<string> | undefined;
  readonly reports: ReadonlyMap<string, MemberReport> | undefined;
  readonly isDraining: boolean;
  readonly networks: readonly Cidr[];
}

/** Returns the section of a dump. */
export function dumpedRouting(
  { routing, nodeName, nodes, services, live, reports, isDraining, networks }: RoutingInputsOfRun,
): DumpSection {
  const settings = { routing: dumpedRoutingSettings(routing, nodes.get(nodeName)) };
  const value = {
    objects: {
      [ROUTED_SERVICE.plural]: [...services.values()],
      [ROUTED_NODE.plural]: [...nodes.values()],
    },
    ...(live && { live: [...live].sort() }),
    ...(reports && { reports: [...reports].map(([node, { json }]) => ({ node, ...json })) }),
    isDraining,
    networks,
  };
  return { schema: DUMPED_ROUTING, value, settings };
}

/**
 * The settings as they are dumped: pools and peers that were given as text become fields. The peers of
 * the own Node's annotation are among them, because the annotation may hold passwords.
 */
export function dumpedRoutingSettings(
  routing: RoutingConfiguration,
  own: RoutedNode | undefined,
): RoutingConfiguration {
  const { pools, bgp } = routingSettingsOf({ ...routing, bgp: { ...routing.bgp, enabled: true } });
  const { peers, nodeAnnotations } = bgp!;
  const annotated = own && nodeAnnotations ? nodeBgpOf(routingNodeOf(own)).bgp.peers : [];
  const names = new Set(peers.flatMap(({ name, address, port }) => [name, `${address} ${port}`]));
  const others = annotated.filter(({ name, address, port }) =>
    !names.has(name) && !names.has(`${address} ${port}`)
  );
  return {
    ...routing,
    pools: pools.map(({ name, ranges, autoAssign, announce }) => ({
      ...{ name, autoAssign, announce },
      addresses: ranges.map(({ family, first, last }) =>
        `${addressAt(first, family)}-${addressAt(last, family)}`
      ),
      ...selectorsOf(routing.pools.find((pool) => typeof pool !== "string" && pool.name === name)),
    })),
    bgp: {
      ...routing.bgp,
      peers: [
        ...peers.map((peer, index) => dumpedPeer(peer, routing.bgp.peers[index])),
        ...others.map((peer) => dumpedPeer(peer, undefined)),
      ],
    },
  };
}

function dumpedPeer(
  { passwordFile, nodeSelector: _, ...peer }: ConfiguredPeer,
  given: string | PeerConfiguration | undefined,
) {
  return {
    localAddress: "",
    multihopTtl: 0,
    gracefulRestartSeconds: 0,
    ...{ bothFamilies: false, otherNextHop: "" },
    ...peer,
    passwordFile: passwordFile === undefined ? "" : PASSWORD_FILE,
    ...selectorsOf(given),
  };
}

/** A selector that is `null` selects everything, as an absent one does. */
function selectorsOf(
  given: string | PoolConfiguration | PeerConfiguration | undefined,
): Readonly<Record<string, SelectorConfiguration>> {
  if (typeof given !== "object") return {};
  const { namespaceSelector, serviceSelector, nodeSelector } = given as Partial<PoolConfiguration>;
  return {
    ...(namespaceSelector && { namespaceSelector }),
    ...(serviceSelector && { serviceSelector }),
    ...(nodeSelector && { nodeSelector }),
  };
}
