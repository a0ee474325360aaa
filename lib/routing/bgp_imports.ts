import { blocksOfRange } from "../net/address_range.ts";
import { type Cidr, hostCidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import type { AddressPool } from "./address_pool.ts";
import type { BgpNode } from "./bgp_peers.ts";
import type { BgpImports } from "./bgp_plan.ts";
import type { BgpSettings } from "./routing_settings.ts";

/** The state of the cluster that imports depend on. */
interface ImportInputs {
  readonly own: BgpNode;
  /** With the own node. */
  readonly nodes: Iterable<BgpNode>;
  readonly nodeAddresses: Iterable<IpAddress>;
  readonly serviceRanges: readonly Cidr[];
}

/** Returns what a node accepts from its peers. */
export function importsOf(
  { settings, pools, clusterCidrs }: {
    readonly settings: BgpSettings;
    readonly pools: readonly AddressPool[];
    readonly clusterCidrs: readonly Cidr[];
  },
  { own, nodes, nodeAddresses, serviceRanges }: ImportInputs,
): BgpImports {
  const { imports, mesh, externalIpRanges } = settings;
  const others = [...nodes].filter(({ node }) => node.name !== own.node.name);
  const podCidrs = others.flatMap(({ node }) => node.podCidrs);
  const refused = [
    ...own.node.podCidrs,
    ...own.bgp.refused,
    ...serviceRanges,
    ...externalIpRanges,
    ...pools.flatMap(({ ranges }) => ranges.flatMap((range) => [...blocksOfRange(range)])),
    ...[...nodeAddresses].map(hostCidr),
  ];
  return {
    ...imports,
    mesh: mesh ? unique(clusterCidrs.length > 0 ? clusterCidrs : podCidrs) : [],
    refused: unique(refused),
    limitPerPeer: mesh
      ? Math.max(imports.limitPerPeer, roomFor(podCidrs.length))
      : imports.limitPerPeer,
  };
}

/** A reflector sends the ranges of all nodes. Powers of two, because a new limit may end sessions. */
function roomFor(count: number): number {
  return 2 ** Math.ceil(Math.log2(2 * count + 1));
}

function unique(cidrs: readonly Cidr[]): readonly Cidr[] {
  return [...new Set(cidrs)].sort();
}
