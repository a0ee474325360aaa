import { assert, assertEquals } from "@std/assert";
import type { RoutedNode } from "../api/kinds/routed_node.ts";
import { parseCidr } from "../net/cidr.ts";
import { planPodNetwork, type PodNetworkPlan } from "./pod_network_plan.ts";
import { routingNodeOf } from "./routing_node.ts";
import type { PodNetworkSettings } from "./routing_settings.ts";

const SETTINGS: PodNetworkSettings = {
  routes: true,
  overlay: "off",
  portMappings: true,
  masquerade: true,
};
const OWN = node("own", ["192.0.2.1", "fd00:2::1"], ["10.244.1.0/24", "fd00:244:1::/64"]);

function node(
  name: string,
  addresses: readonly string[],
  podCIDRs: readonly string[],
  annotations: Readonly<Record<string, string>> = {},
) {
  return routingNodeOf({
    metadata: { name, annotations },
    spec: { podCIDRs },
    status: { addresses: addresses.map((address) => ({ type: "InternalIP", address })) },
  } as unknown as RoutedNode);
}

function plan(
  settings: Partial<PodNetworkSettings>,
  ...others: readonly ReturnType<typeof node>[]
): PodNetworkPlan {
  return planPodNetwork({
    settings: { ...SETTINGS, ...settings },
    own: OWN,
    nodes: [OWN, ...others],
    networks: ["192.0.2.0/24", "fd00:2::/64"].map(parseCidr),
    clusterCidrs: [],
  });
}

function routesOf({ routes, unrouted }: PodNetworkPlan): readonly string[] {
  return [
    ...routes.map(({ destination, gateway, tunnel = "", source }) =>
      `${destination} ${gateway ?? `${tunnel.slice(0, 7)} from ${source}`}`
    ),
    ...unrouted.map(({ reason }) => reason),
  ];
}

const NEAR = node("near", ["192.0.2.2", "fd00:2::2"], ["10.244.2.0/24", "fd00:244:2::/64"]);
const FAR = node("far", ["192.0.3.2", "fd00:3::2"], ["10.244.3.0/24", "fd00:244:3::/64"]);

Deno.test("planPodNetwork() routes to near nodes, and to others as the overlay says", () => {
  assertEquals(routesOf(plan({}, NEAR, FAR)), [
    "10.244.2.0/24 192.0.2.2",
    "fd00:244:2::/64 fd00:2::2",
    "10.244.3.0/24 is in another subnet",
    "fd00:244:3::/64 is in another subnet",
  ]);
  assertEquals(routesOf(plan({ overlay: "cross-subnet" }, NEAR, FAR)), [
    "10.244.2.0/24 192.0.2.2",
    "10.244.3.0/24 kr-pod- from 10.244.1.0",
    "fd00:244:2::/64 fd00:2::2",
    "fd00:244:3::/64 kr-pod- from fd00:244:1::",
  ]);
  assertEquals(
    routesOf(plan({ overlay: "always" }, NEAR)),
    ["10.244.2.0/24 kr-pod- from 10.244.1.0", "fd00:244:2::/64 kr-pod- from fd00:244:1::"],
  );
  assertEquals(routesOf(plan({ routes: false, cniConfig: "/x.conflist" }, NEAR, FAR)), []);
});

Deno.test("planPodNetwork() names a tunnel by its ends, in at most 15 bytes", () => {
  const devices = (far: ReturnType<typeof node>) =>
    plan({ overlay: "always" }, far).tunnels.map(({ device }) => device);
  assertEquals(devices(FAR), devices(node("renamed", FAR.addresses, FAR.podCidrs)));
  assertEquals(devices(FAR).filter((each) => devices(NEAR).includes(each)), []);
  assert(devices(FAR).every((each) => each.length === 15));
});

Deno.test("planPodNetwork() masquerades what leaves pods and nodes", () => {
  const { masquerade } = plan({}, FAR);
  assertEquals<readonly string[] | undefined>(masquerade?.sources, OWN.podCidrs);
  assertEquals<readonly string[] | undefined>(masquerade?.except, [
    ...["10.244.1.0/24", "10.244.3.0/24", "192.0.2.1/32", "192.0.3.2/32"],
    ...["fd00:244:1::/64", "fd00:244:3::/64", "fd00:2::1/128", "fd00:3::2/128"],
  ]);
  assertEquals(plan({ masquerade: false }, FAR).masquerade, undefined);
});

Deno.test("planPodNetwork() reports a Node without an address of the family", () => {
  const { problems, routes } = plan({}, node("four", ["192.0.2.9"], NEAR.podCidrs));
  assertEquals(problems, [{
    node: "four",
    reason: "fd00:244:2::/64 has no route: the Node has no InternalIP of IPv6",
  }]);
  assertEquals(routes.length, 1);
});

Deno.test("routingNodeOf() takes kube-router's annotation for a Node without spec.podCIDRs", () => {
  const annotations = { "kube-router.io/pod-cidrs": "10.9.0.0/24, fd00:9::/64" };
  const cidrs = (podCIDRs: readonly string[], texts = annotations) =>
    node("a", [], podCIDRs, texts).podCidrs.join(" ");
  assertEquals(cidrs([]), "10.9.0.0/24 fd00:9::/64");
  assertEquals(cidrs(["10.1.0.0/24"]), "10.1.0.0/24");
  assertEquals(node("a", [], ["10.1.0.0/240"]).invalidPodCidrs, ["10.1.0.0/240"]);
});
