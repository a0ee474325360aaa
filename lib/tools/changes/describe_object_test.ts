import { assertEquals } from "@std/assert";
import {
  testEndpoints,
  testEndpointSlice,
  testNodeState,
  testService,
} from "../../../tests/support/builders/builders.ts";
import type { EndpointSlice } from "../../api/kinds/endpoint_slice.ts";
import type { Service } from "../../api/kinds/service.ts";
import {
  describeEndpoints,
  describeEndpointSlice,
  describeNode,
  describeService,
} from "./describe_object.ts";

const WEB = { name: "http", port: 80 };

const SERVICES: readonly (readonly [string, Partial<Service["spec"]>, readonly string[]])[] = [
  ["nothing", {}, []],
  ["a type", { type: "NodePort" }, ["type ClusterIP -> NodePort"]],
  ["policies", { internalTrafficPolicy: "Local", externalTrafficPolicy: "Local" }, [
    "internal policy Cluster -> Local",
    "external policy Cluster -> Local",
  ]],
  ["a node port", { ports: [{ ...WEB, nodePort: 30080 }] }, [
    "node port of http 80/TCP none -> 30080",
  ]],
  ["external IPs", { externalIPs: ["203.0.113.1"] }, ["external IP 203.0.113.1 new"]],
  ["source ranges", { loadBalancerSourceRanges: ["10.0.0.0/8"] }, ["source range 10.0.0.0/8 new"]],
  ["affinity", {
    sessionAffinity: "ClientIP",
    sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } },
  }, ["affinity None -> ClientIP", "affinity timeout none -> 60"]],
];

for (const [what, spec, words] of SERVICES) {
  Deno.test(`describeService() names ${what}`, () => {
    const before = testService("web", { ports: [WEB] });
    assertEquals(describeService(before, testService("web", { ports: [WEB], ...spec })), words);
  });
}

Deno.test("describeService() describes an added or removed Service", () => {
  const service = testService("web", { ports: [WEB, { port: 53, protocol: "UDP" }] });
  const words = ["ClusterIP", "port http 80/TCP", "port 53/UDP"];
  assertEquals(describeService(undefined, service), words);
  assertEquals(describeService(service, undefined), words);
});

const SLICES: readonly (readonly [string, EndpointSlice, EndpointSlice, readonly string[]])[] = [
  [
    "an endpoint that is gone",
    testEndpointSlice("web", { endpoints: ["10.1.0.5", "10.1.0.6"] }),
    testEndpointSlice("web", { endpoints: ["10.1.0.6"] }),
    ["ready 2 -> 1", "endpoint 10.1.0.5:80 gone"],
  ],
  [
    "an endpoint that is ending",
    testEndpointSlice("web", { endpoints: ["10.1.0.5"] }),
    testEndpointSlice("web", {
      endpoints: [{
        addresses: ["10.1.0.5"],
        conditions: { ready: false, serving: true, terminating: true },
      }],
    }),
    ["ready 1 -> 0", "endpoint 10.1.0.5:80 ready -> serving, terminating"],
  ],
  [
    "hints",
    testEndpointSlice("web", { endpoints: ["fd00::5"], addressType: "IPv6" }),
    testEndpointSlice("web", {
      endpoints: [{ addresses: ["fd00::5"], hints: { forZones: [{ name: "a" }] } }],
      addressType: "IPv6",
    }),
    ["hints of [fd00::5]:80 none -> a"],
  ],
  [
    "a port",
    testEndpointSlice("web", { endpoints: ["10.1.0.5"] }),
    testEndpointSlice("web", {
      endpoints: ["10.1.0.5"],
      ports: [{ name: "", protocol: "TCP", port: 81 }],
    }),
    ["port 80/TCP gone", "port 81/TCP new"],
  ],
];

for (const [what, before, after, words] of SLICES) {
  Deno.test(`describeEndpointSlice() names ${what}`, () => {
    assertEquals(describeEndpointSlice(before, after), words);
  });
}

Deno.test("describeEndpointSlice() counts endpoints beyond the limit", () => {
  const addresses = Array.from({ length: 1000 }, (_, index) => `10.1.${index >> 8}.${index & 255}`);
  const large = testEndpointSlice("web", { endpoints: addresses });
  const less = testEndpointSlice("web", { endpoints: addresses.slice(1) });
  assertEquals(describeEndpointSlice(large, less), ["ready 1000 -> 999", "endpoints 1000 -> 999"]);
  const many = testEndpointSlice("web", { endpoints: addresses.slice(0, 100) });
  assertEquals(describeEndpointSlice(undefined, many), [
    "of Service web",
    "ready 0 -> 100",
    ...addresses.slice(0, 3).map((address) => `endpoint ${address}:80 new`),
    "97 more new",
  ]);
});

Deno.test("describeEndpoints() compares the addresses that are ready", () => {
  const [before, after] = [["10.1.0.5"], ["10.1.0.6", "10.1.0.7"]].map((addresses) =>
    testEndpoints("web", [{ addresses: addresses.map((ip) => ({ ip })), ports: [{ port: 80 }] }])
  );
  assertEquals(describeEndpoints(before, after), [
    "ready 1 -> 2",
    "endpoint 10.1.0.5 gone",
    "endpoint 10.1.0.6 new",
    "endpoint 10.1.0.7 new",
  ]);
});

Deno.test("describeNode() names the fields on which the plan depends", () => {
  const before = testNodeState({ zone: "a" });
  assertEquals(describeNode(before, { ...before, zone: "b" }), ["zone a -> b"]);
});

Deno.test("describeService() keeps no long text of an object", () => {
  const long = "x".repeat(100_000);
  const words = describeService(testService("web"), testService("web", { type: long }));
  assertEquals(words.length, 1);
  assertEquals(words[0]!.length, 120);
});
