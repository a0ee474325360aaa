import { assertEquals } from "@std/assert";
import {
  testEndpoint,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { announcedServiceOf } from "./announced_service.ts";

/** Addresses as text, with the obstacle and the nodes with endpoints. */
function texts(...plans: readonly TestServicePlan[]): readonly string[] {
  return announcedServiceOf(plans.map(testServicePlan), undefined).addresses.map((found) =>
    [
      found.kind,
      found.address,
      ...found.endpointNodes ? [`[${[...found.endpointNodes]}]`] : [],
      ...found.obstacle === undefined ? [] : [`(${found.obstacle})`],
    ].join(" ")
  );
}

const ADDRESSES = { externalIps: ["203.0.113.1"], loadBalancerVips: ["192.0.2.1"] };

Deno.test("announcedServiceOf() serves with policy Cluster while there is any endpoint", () => {
  assertEquals(texts({ ...ADDRESSES, to: ["10.1.0.1:80"] }), [
    "clusterIps 127.96.0.1",
    "externalIps 203.0.113.1",
    "loadBalancerIps 192.0.2.1",
  ]);
  assertEquals(texts({ loadBalancerVips: ["192.0.2.1"] }), [
    "clusterIps 127.96.0.1 (the Service has no usable endpoint)",
    "loadBalancerIps 192.0.2.1 (the Service has no usable endpoint)",
  ]);
});

Deno.test("announcedServiceOf() needs a ready endpoint on this node with policy Local", () => {
  const endpoint = (node: string, isLocal: boolean, ready: boolean) =>
    testEndpoint("10.1.0.1:80", { nodeName: node, isLocal, ready, terminating: !ready });
  const local = { loadBalancerVips: ["192.0.2.1"], externalTrafficPolicy: "Local" as const };
  const to = ["10.1.0.1:80"];
  assertEquals(
    texts({ ...local, to, endpoints: [endpoint("a", true, true)] })[1],
    [
      "loadBalancerIps 192.0.2.1 [a]",
    ][0],
  );
  // The terminating endpoint still gets the traffic that arrives.
  assertEquals(
    texts({ ...local, to, endpoints: [endpoint("a", true, false), endpoint("b", false, true)] })[1],
    "loadBalancerIps 192.0.2.1 [b] (policy Local, and no ready endpoint on this node)",
  );
});

Deno.test("announcedServiceOf() counts an address as served if any port is", () => {
  assertEquals(
    texts(
      { loadBalancerVips: ["192.0.2.1"], portName: "a" },
      { loadBalancerVips: ["192.0.2.1"], portName: "b", to: ["10.1.0.1:80"] },
    ),
    ["clusterIps 127.96.0.1", "loadBalancerIps 192.0.2.1"],
  );
});

Deno.test("announcedServiceOf() reads kube-router's switches", () => {
  const { switches } = announcedServiceOf([], {
    "kube-router.io/service.advertise.clusterip": "true",
    "kube-router.io/service.advertise.externalip": "false",
    "kube-router.io/service.advertise.loadbalancerip": "yes",
  });
  assertEquals(switches, { clusterIps: true, externalIps: false });
});
