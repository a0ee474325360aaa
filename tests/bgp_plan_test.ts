/** What the planner of BGP makes is what the driver of BIRD can render. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { atOnce } from "../backends/netfilter/in_steps.ts";
import { birdConfig } from "../backends/announce/bird/bird_config.ts";
import { defaultConfiguration } from "../lib/config/configuration.ts";
import { routingSettingsOf } from "../lib/config/parse_routing.ts";
import { parseCidr } from "../lib/net/cidr.ts";
import { parseIpAddress } from "../lib/net/ip_address.ts";
import type { ServiceKey } from "../lib/proxy/service_port_name.ts";
import { BgpPlanner } from "../lib/routing/bgp_planner.ts";
import { routingNodeOf } from "../lib/routing/routing_node.ts";
import { type NodeParts, routedNode } from "./support/builders/routed_objects.ts";

const LONG = "n".repeat(63);
const NODES: readonly NodeParts[] = [
  {
    name: "own",
    addresses: ["192.0.2.1", "2001:db8::1"],
    podCidrs: ["10.1.0.0/24", "fd00:1::/64"],
    annotations: {
      "kube-router.io/rr.server": "42",
      "kube-router.io/peer.ips": "2001:db8::fe",
      "kube-router.io/peer.asns": "4200000000",
      "kube-router.io/node.bgp.communities": "64512:8",
      "kube-router.io/path-prepend.as": "64512",
      "kube-router.io/path-prepend.repeat-n": "2",
    },
  },
  {
    name: `${LONG}.${LONG}.example`,
    addresses: ["192.0.2.2", "2001:db8::2"],
    podCidrs: ["10.1.1.0/24", "fd00:2::/64"],
    annotations: { "kube-router.io/rr.client": "42" },
  },
  { name: `a-${LONG}`, addresses: ["198.18.0.2"], podCidrs: ["10.1.2.0/24"] },
];

Deno.test("birdConfig() renders all of a plan that BgpPlanner makes", () => {
  const { routing } = defaultConfiguration();
  const { bgp, pools } = routingSettingsOf({
    ...routing,
    announce: "bgp",
    pools: ["198.51.100.0/28", "2001:db8:1::/64"],
    bgp: {
      ...routing.bgp,
      enabled: true,
      mesh: true,
      peers: ["64513@192.0.2.254", "64513@[2001:db8::ff]:1790"],
      advertise: { ...routing.bgp.advertise, serviceRanges: true, podCidrs: true },
      largeCommunities: ["64512:1:100"],
      localPreference: 4_294_967_295,
    },
  });
  const planner = new BgpPlanner({ settings: bgp!, pools, nodeName: "own", clusterCidrs: [] });
  for (const node of NODES) planner.setNode(node.name, routingNodeOf(routedNode(node)));
  planner.setNetworks([parseCidr("192.0.2.0/24")]);
  planner.setServiceRanges([parseCidr("10.96.0.0/16")]);
  planner.setService("default/web" as ServiceKey, {
    addresses: ["198.51.100.1", "2001:db8:1::5"].map((address) => ({
      address: parseIpAddress(address),
      kind: "loadBalancerIps",
    })),
    switches: {},
  });
  planner.update();
  const { plan } = planner;
  assertEquals(planner.problems, []);
  const { text, quarantined } = atOnce(birdConfig(plan!, "/run/secrets.conf"));
  assertEquals(quarantined, []);
  for (const { prefix } of plan!.announced) assertStringIncludes(text, `route ${prefix} `);
  for (const { name, address } of plan!.peers) {
    assertStringIncludes(text, `protocol bgp peer_${name} `);
    assertStringIncludes(text, `neighbor ${address} `);
  }
  // BIRD's longest name.
  for (const [, name] of text.matchAll(/^protocol \w+ (\w+) /gm)) {
    assertEquals(name!.length <= 64, true);
  }
});
