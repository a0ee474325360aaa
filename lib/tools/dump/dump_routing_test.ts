import { assertEquals } from "@std/assert";
import { imported, peerImports } from "../../../tests/support/builders/bgp_plans.ts";
import { routedNode } from "../../../tests/support/builders/routed_objects.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import { DEFAULT_PEER } from "../../config/routing.ts";
import { parseCidr } from "../../net/cidr.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { dumpedRouting } from "./dump_routing.ts";
import { CONFIGURATION } from "./dump_configuration.ts";
import { pickAllowed } from "./pick_allowed.ts";

Deno.test("dumpedRouting() has no password, no path of one, and no annotation that may hold one", () => {
  const { routing } = defaultConfiguration();
  const own = routedNode({
    name: "a",
    addresses: ["192.0.2.1"],
    annotations: { "kube-router.io/peers": "- {remoteip: 192.0.2.9, remoteasn: 64601}" },
  });
  const { schema, value, settings: given } = dumpedRouting({
    routing: {
      ...routing,
      kubeconfig: "/secret/kubeconfig",
      pools: ["office=203.0.113.0/28", "office=203.0.113.32"],
      bgp: {
        ...routing.bgp,
        enabled: true,
        peers: [
          "64600@192.0.2.254",
          {
            ...DEFAULT_PEER,
            ...{ address: "192.0.2.253", as: 64_600, passwordFile: "/secret/password" },
            import: { prefixes: ["10.0.0.0/8"], clusterPrefixes: [], defaultRoute: true },
          },
        ],
      },
    },
    nodeName: "a",
    reports: undefined,
    nodes: { get: () => own, values: () => [own] },
    services: [],
    live: new Set(["a"]),
    isDraining: false,
    networks: [parseCidr("192.0.2.0/24")],
  });
  const { proxy } = CONFIGURATION.entries;
  const text = JSON.stringify([pickAllowed(value, schema), pickAllowed(given, proxy)]);
  assertEquals([text.includes("secret"), text.includes("remoteip")], [false, false]);
  const [, { routing: settings }] = JSON.parse(text);
  assertEquals(settings.pools[0].addresses, [
    "203.0.113.0-203.0.113.15",
    "203.0.113.32-203.0.113.32",
  ]);
  assertEquals(
    settings.bgp.peers.map(({ address, passwordFile }: Record<string, unknown>) => [
      address,
      passwordFile !== "",
    ]),
    // The last one is of the annotation.
    [["192.0.2.254", false], ["192.0.2.253", true], [parseIpAddress("192.0.2.9"), false]],
  );
  assertEquals(
    settings.bgp.peers[1].import,
    peerImports({ prefixes: [imported("10.0.0.0/8", 8, 32)], defaultRoute: true }),
  );
});
