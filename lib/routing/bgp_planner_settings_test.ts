/** Settings that change while a BGP planner runs. */
import { assertEquals } from "@std/assert";
import { BGP_SETTINGS, ROUTING_SETTINGS } from "../../tests/support/builders/planned_routing.ts";
import { pool, routedNode } from "../../tests/support/builders/routed_objects.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { parseCidr } from "../net/cidr.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import { announcedServiceOf } from "./announced_service.ts";
import { BgpPlanner, type BgpPlannerOptions } from "./bgp_planner.ts";
import { routingNodeOf } from "./routing_node.ts";

type Settings = Omit<BgpPlannerOptions, "nodeName">;

const KEY = "ns/web" as ServiceKey;
const SERVICE = announcedServiceOf([
  testServicePlan({
    loadBalancerVips: ["198.51.100.7"],
    externalIps: ["203.0.113.9"],
    to: ["10.244.0.9:80"],
  }),
], undefined);
const BASE: Settings = {
  settings: BGP_SETTINGS,
  pools: ROUTING_SETTINGS.pools,
  clusterCidrs: [],
};

/** Other settings, by name. */
const OTHERS: Readonly<Record<string, Settings>> = {
  "another AS, router ID and no peers": {
    ...BASE,
    settings: { ...BGP_SETTINGS, localAs: 64_999, routerId: "192.0.2.200", peers: [] },
  },
  "a mesh": { ...BASE, settings: { ...BGP_SETTINGS, mesh: true } },
  "no annotations": { ...BASE, settings: { ...BGP_SETTINGS, nodeAnnotations: false } },
  "other attributes": {
    ...BASE,
    settings: { ...BGP_SETTINGS, communities: ["64512:7"], localPreference: 7 },
  },
  "all announcements": {
    ...BASE,
    settings: {
      ...BGP_SETTINGS,
      advertise: {
        ...BGP_SETTINGS.advertise,
        externalIps: true,
        podCidrs: true,
        serviceRanges: true,
      },
      externalIpRanges: [parseCidr("203.0.113.0/24")],
    },
  },
  "imports": {
    ...BASE,
    settings: {
      ...BGP_SETTINGS,
      imports: { ...BGP_SETTINGS.imports, external: [parseCidr("10.0.0.0/8")] },
    },
  },
  "pools that layer 2 announces": { ...BASE, pools: [pool("routed", ["198.51.100.0/24"])] },
  "no pools, and ranges of pods": {
    ...BASE,
    pools: [],
    clusterCidrs: [parseCidr("10.244.0.0/16")],
  },
};

function plannerOf(settings: Settings): BgpPlanner {
  const planner = new BgpPlanner({ ...settings, nodeName: "a" });
  for (const [index, name] of ["a", "b"].entries()) {
    const node = routedNode({
      name,
      addresses: [`192.0.2.${index + 1}`],
      podCidrs: [`10.244.${index}.0/24`],
      annotations: { "kube-router.io/node.asn": "64700", "kube-router.io/peers": "nonsense" },
    });
    planner.setNode(name, routingNodeOf(node));
  }
  planner.setServiceRanges([parseCidr("10.96.0.0/12")]);
  planner.setService(KEY, SERVICE);
  planner.update();
  return planner;
}

for (const [name, settings] of Object.entries(OTHERS)) {
  Deno.test(`BgpPlanner.setSettings() gives the plan of a new planner: ${name}`, () => {
    const planner = plannerOf(BASE);
    for (const next of [settings, BASE]) {
      const before = planner.plan;
      planner.setSettings(next);
      planner.update();
      const wanted = plannerOf(next);
      assertEquals(planner.plan, wanted.plan);
      assertEquals(planner.problems, wanted.problems);
      assertEquals(planner.plan === before, false, "each of these settings changes the plan");
    }
  });
}

Deno.test("BgpPlanner.setSettings() with the same settings keeps the plan", () => {
  const planner = plannerOf(BASE);
  const { plan } = planner;
  planner.setSettings(structuredClone(BASE));
  planner.update();
  assertEquals(planner.plan === plan, true);
});
