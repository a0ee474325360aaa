/** Services, pools and Nodes for tests of routing. */
import type { RoutedNode } from "../../../lib/api/kinds/routed_node.ts";
import type { RoutedService } from "../../../lib/api/kinds/routed_service.ts";
import { tryParseAddressRange } from "../../../lib/net/address_range.ts";
import type { AddressPool } from "../../../lib/routing/address_pool.ts";

/** A pool with these ranges, whose addresses every Service gets. */
export function pool(
  name: string,
  ranges: readonly string[],
  others: Partial<AddressPool> = {},
): AddressPool {
  return {
    name,
    ranges: ranges.map((text) => tryParseAddressRange(text)!),
    autoAssign: true,
    announce: "layer2",
    ...others,
  };
}

/** Parts of a Service of type LoadBalancer; `name` may have a namespace in front. */
export interface LoadBalancerParts {
  readonly name: string;
  readonly spec?: Partial<RoutedService["spec"]>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly labels?: Readonly<Record<string, string>>;
  /** Of the status. */
  readonly addresses?: readonly string[];
  readonly createdAt?: string;
}

/** A Service of type LoadBalancer with port 80. */
export function loadBalancer(
  { name: full, spec, annotations, labels, addresses = [], createdAt }: LoadBalancerParts,
): RoutedService {
  const [name, namespace = "default"] = full.split("/").reverse();
  return {
    metadata: {
      name: name!,
      namespace,
      ...(annotations && { annotations }),
      ...(labels && { labels }),
      ...(createdAt !== undefined && { creationTimestamp: createdAt }),
    },
    spec: {
      type: "LoadBalancer",
      ipFamilies: ["IPv4"],
      ports: [{ protocol: "TCP", port: 80 }],
      ...spec,
    },
    ...(addresses.length > 0 && {
      status: { loadBalancer: { ingress: addresses.map((ip) => ({ ip })) } },
    }),
  };
}

/** Parts of a Node. */
export interface NodeParts {
  readonly name: string;
  readonly addresses?: readonly string[];
  readonly podCidrs?: readonly string[];
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly taints?: readonly string[];
  /** The status of each condition. */
  readonly conditions?: Readonly<Record<string, string>>;
}

/** A Node. */
export function routedNode(
  { name, addresses = [], podCidrs = [], labels, annotations, taints = [], conditions }: NodeParts,
): RoutedNode {
  const found = Object.entries(conditions ?? {}).map(([type, status]) => ({ type, status }));
  return {
    metadata: { name, ...(labels && { labels }), ...(annotations && { annotations }) },
    spec: { podCIDRs: podCidrs, taints: taints.map((key) => ({ key })) },
    status: {
      addresses: addresses.map((address) => ({ type: "InternalIP", address })),
      ...(conditions && { conditions: found }),
    },
  };
}
