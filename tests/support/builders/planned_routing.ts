/** The routing of a small cluster, for tests of its tools. */
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import type { RoutingStep } from "../../../lib/routing/explain_routing.ts";
import { SESSION_DEFAULTS } from "../../../lib/routing/node_bgp.ts";
import { PlannedRouting, type RoutingInputs } from "../../../lib/routing/planned_routing.ts";
import type { BgpSettings, RoutingSettings } from "../../../lib/routing/routing_settings.ts";
import { pool, routedNode } from "./routed_objects.ts";

/** BGP with a router of each family. */
export const BGP_SETTINGS: BgpSettings = {
  mesh: false,
  nodeAnnotations: true,
  peers: ["192.0.2.254", "2001:db8::fe"].map((address, index) => ({
    name: `tor_${index + 1}`,
    address: parseIpAddress(address),
    port: parsePort(179),
    as: 64_600,
    ...SESSION_DEFAULTS,
  })),
  advertise: {
    loadBalancerIps: true,
    externalIps: false,
    clusterIps: false,
    podCidrs: false,
    serviceRanges: false,
  },
  externalIpRanges: [],
  communities: ["64512:100"],
  largeCommunities: [],
  imports: { external: [], defaultRoute: false, table: 254, metric: 512, limitPerPeer: 1000 },
  controlSocket: "/run/bird.ctl",
  configFile: "/run/bird.conf",
};

/** Pools of both kinds; `198.51.100.0/24` is announced by BGP, `203.0.113.0/24` by layer 2. */
export const ROUTING_SETTINGS: RoutingSettings = {
  loadBalancerClasses: ["kube-relay.io/load-balancer"],
  defaultLoadBalancerClass: true,
  pools: [
    pool("routed", ["198.51.100.0/24"], { announce: "bgp" }),
    pool("office", ["203.0.113.0/24"]),
  ],
  objects: false,
  leaseNamespace: "kube-system",
  leaseDurationSeconds: 3,
  layer2: { interfaces: [], announceIntervalSeconds: 60 },
  bgp: BGP_SETTINGS,
};

/** Plans for node `a` of the nodes `a`, `b` and `c`. */
export function plannedRouting(
  { settings, hasBgp = true, ...inputs }: Partial<Omit<RoutingInputs, "settings">> & {
    readonly settings?: Partial<RoutingSettings>;
    readonly hasBgp?: boolean;
  } = {},
): PlannedRouting {
  const { bgp = BGP_SETTINGS, ...others } = { ...ROUTING_SETTINGS, ...settings };
  return new PlannedRouting({
    settings: { ...others, ...(hasBgp && { bgp }) },
    nodeName: "a",
    nodes: ["a", "b", "c"].map((name, index) =>
      routedNode({
        name,
        addresses: [`192.0.2.${index + 1}`],
        podCidrs: [`10.244.${index}.0/24`],
      })
    ),
    services: [],
    namespaces: new Map(),
    plans: [],
    serviceRanges: [],
    clusterCidrs: [],
    networks: [],
    live: new Set(["a", "b", "c"]),
    ...inputs,
  });
}

/** Steps as text, without those of other topics. */
export function stepTexts(
  steps: readonly RoutingStep[],
  ...topics: readonly string[]
): readonly string[] {
  return steps.filter(({ topic }) => topics.length === 0 || topics.includes(topic))
    .flatMap((
      { topic, text, items = [] },
    ) => [`${topic}: ${text}`, ...items.map((item) => `- ${item}`)]);
}
