import type { EndpointSlice, SliceEndpoint } from "../api/kinds/endpoint_slice.ts";
import type { IpFamily } from "../net/ip_address.ts";
import { assertEquals, assertStrictEquals } from "@std/assert";
import fc from "fast-check";
import { ADDRESSES, OTHER_NODE, THIS_NODE } from "../../tests/support/builders/address_plan.ts";
import { testEndpoint, testEndpointSlice } from "../../tests/support/builders/builders.ts";
import {
  compareEndpoints,
  endpointsFromSlice,
  mergeEndpoints,
  reuseEndpoints,
} from "./endpoint.ts";
import { ProblemCollector } from "../api/problem.ts";

function read(slice: EndpointSlice, family: IpFamily = "IPv4", nodeName = THIS_NODE) {
  const problems = new ProblemCollector("EndpointSlice", "ns1/web-1");
  const service = { namespace: "ns1", name: "web" };
  const ports = endpointsFromSlice(slice, { family, nodeName, service, problems });
  return { ports, paths: problems.problems.map(({ path }) => path) };
}

Deno.test("endpointsFromSlice() treats unset conditions as ready, serving, not terminating", () => {
  const { ports, paths } = read(testEndpointSlice("web", { endpoints: ["10.180.0.1"] }));
  assertEquals<unknown>(ports, [{
    key: "ns1/web/TCP",
    endpoints: [{
      key: "10.180.0.1:80",
      address: "10.180.0.1",
      port: 80,
      isLocal: false,
      ready: true,
      serving: true,
      terminating: false,
    }],
  }]);
  assertEquals(paths, []);
});

/** Fields of one endpoint (control-plane 4.6). */
const ENDPOINT_ROWS: readonly {
  readonly name: string;
  readonly endpoint: SliceEndpoint;
  readonly nodeName?: string;
  readonly expect: Readonly<Record<string, unknown>> | undefined;
  readonly problems?: readonly string[];
}[] = [
  {
    name: "reads conditions",
    endpoint: {
      addresses: ["10.180.0.1"],
      conditions: { ready: false, serving: true, terminating: true },
    },
    expect: { ready: false, serving: true, terminating: true },
  },
  {
    name: "treats unset serving as true next to ready false",
    endpoint: { addresses: ["10.180.0.1"], conditions: { ready: false } },
    expect: { ready: false, serving: true, terminating: false },
  },
  {
    name: "knows an endpoint of the own node",
    endpoint: { addresses: ["10.180.0.1"], nodeName: THIS_NODE },
    expect: { isLocal: true, nodeName: THIS_NODE },
  },
  {
    name: "accepts an address in any range, of a host network too",
    endpoint: { addresses: ["192.168.99.7"] },
    expect: { key: "192.168.99.7:80" },
  },
  {
    name: "knows an endpoint of another node",
    endpoint: { addresses: ["10.180.0.1"], nodeName: OTHER_NODE },
    expect: { isLocal: false, nodeName: OTHER_NODE },
  },
  {
    name: "has no local endpoints if the own node is unknown",
    endpoint: { addresses: ["10.180.0.1"], nodeName: "" },
    nodeName: "",
    expect: { isLocal: false },
  },
  {
    name: "uses the first address only",
    endpoint: { addresses: ["10.180.0.1", "10.180.0.2"] },
    expect: { key: "10.180.0.1:80" },
  },
  {
    name: "reads leading zeros as decimal",
    endpoint: { addresses: ["010.180.000.001"] },
    expect: { key: "10.180.0.1:80", address: "10.180.0.1" },
  },
  {
    name: "reads hints",
    endpoint: {
      addresses: ["10.180.0.1"],
      hints: { forZones: [{ name: "zone-a" }, { name: "zone-b" }], forNodes: [{ name: "node-a" }] },
    },
    expect: { zoneHints: ["zone-a", "zone-b"], nodeHints: ["node-a"] },
  },
  {
    name: "treats an empty hint as absent",
    endpoint: { addresses: ["10.180.0.1"], hints: { forZones: [], forNodes: [] } },
    expect: { zoneHints: undefined, nodeHints: undefined },
  },
  {
    name: "leaves out an endpoint without address",
    endpoint: { addresses: [] },
    expect: undefined,
    problems: ["endpoints[0].addresses"],
  },
  {
    name: "leaves out invalid addresses",
    endpoint: { addresses: ["web.example"] },
    expect: undefined,
    problems: ["endpoints[0].addresses"],
  },
  {
    name: "leaves out an address of the other family",
    endpoint: { addresses: [ADDRESSES.IPv6.localPods[0]] },
    expect: undefined,
    problems: ["endpoints[0].addresses"],
  },
];

for (const { name, endpoint, nodeName, expect, problems = [] } of ENDPOINT_ROWS) {
  Deno.test(`endpointsFromSlice() ${name}`, () => {
    const slice = testEndpointSlice("web", { endpoints: [endpoint] });
    const { ports, paths } = read(slice, "IPv4", nodeName);
    const [found] = ports[0]?.endpoints ?? [];
    const fields = Object.keys(expect ?? {}).map((field) => [
      field,
      Reflect.get(found ?? {}, field),
    ]);
    assertEquals(found && Object.fromEntries(fields), expect);
    assertEquals(paths, problems);
  });
}

Deno.test("endpointsFromSlice() reads IPv6", () => {
  const [pod] = ADDRESSES.IPv6.localPods;
  const slice = testEndpointSlice("web", { addressType: "IPv6", endpoints: [pod] });
  const [port] = read(slice, "IPv6").ports;
  assertEquals<readonly string[] | undefined>(port?.endpoints.map(({ key }) => key), [
    "[fd00:10::a01]:80",
  ]);
});

/** Ports of a slice (control-plane 4.6). */
const PORT_ROWS: readonly {
  readonly name: string;
  readonly ports: EndpointSlice["ports"];
  readonly expect: Readonly<Record<string, readonly string[]>>;
  readonly problems?: readonly string[];
}[] = [
  {
    name: "treats a missing protocol as TCP",
    ports: [{ name: "", port: 80 }, { name: "b", port: 81 }],
    expect: { "ns1/web/TCP": ["10.180.0.1:80"], "ns1/web:b/TCP": ["10.180.0.1:81"] },
  },
  {
    name: "treats a missing name as the empty one, as the API server does",
    ports: [{ port: 80 }],
    expect: { "ns1/web/TCP": ["10.180.0.1:80"] },
  },
  {
    name: "leaves out ports without number",
    ports: [{ name: "a" }, { name: "b", port: 0 }],
    expect: {},
    problems: ["ports[0]", "ports[1]"],
  },
  {
    name: "leaves out a port of an unknown protocol and keeps the others",
    ports: [{ name: "a", port: 80, protocol: "ICMP" }, { name: "b", port: 81 }],
    expect: { "ns1/web:b/TCP": ["10.180.0.1:81"] },
    problems: ["ports[0]"],
  },
  {
    name: "distinguishes TCP from UDP on one name",
    ports: [{ name: "dns", port: 53, protocol: "UDP" }, { name: "dns", port: 5353 }],
    expect: { "ns1/web:dns/UDP": ["10.180.0.1:53"], "ns1/web:dns/TCP": ["10.180.0.1:5353"] },
  },
  {
    name: "puts ports of one name and protocol together",
    ports: [{ name: "", port: 81 }, { name: "", port: 80 }],
    expect: { "ns1/web/TCP": ["10.180.0.1:80", "10.180.0.1:81"] },
  },
];

for (const { name, ports, expect, problems = [] } of PORT_ROWS) {
  Deno.test(`endpointsFromSlice() ${name}`, () => {
    const found = read(testEndpointSlice("web", { endpoints: ["10.180.0.1"], ports }));
    assertEquals<unknown>(
      Object.fromEntries(
        found.ports.map(({ key, endpoints }) => [key, endpoints.map((endpoint) => endpoint.key)]),
      ),
      expect,
    );
    assertEquals(found.paths, problems);
  });
}

Deno.test("endpointsFromSlice() sorts by the bytes of ip:port, in which ':' comes after '0'", () => {
  const slice = testEndpointSlice("web", {
    endpoints: ["10.180.0.9", "10.180.0.1", "10.180.0.10"],
  });
  assertEquals<unknown>(read(slice).ports[0]?.endpoints.map(({ key }) => key), [
    "10.180.0.10:80",
    "10.180.0.1:80",
    "10.180.0.9:80",
  ]);
});

const STATES = {
  "ready": { ready: true, serving: true, terminating: false },
  "ready and terminating": { ready: true, serving: true, terminating: true },
  "serving": { ready: false, serving: true, terminating: false },
  "serving and terminating": { ready: false, serving: true, terminating: true },
  "not ready": { ready: false, serving: false, terminating: false },
  "terminating": { ready: false, serving: false, terminating: true },
};

/** From the best to the worst. */
const RANKING = Object.entries(STATES);

for (const [index, [better, winner]] of RANKING.entries()) {
  for (const [worse, loser] of RANKING.slice(index + 1)) {
    Deno.test(`mergeEndpoints() prefers ${better} to ${worse}, in either order`, () => {
      const first = testEndpoint("10.180.0.1", winner);
      const second = testEndpoint("10.180.0.1", loser);
      assertEquals(mergeEndpoints([[first], [second]]), [first]);
      assertEquals(mergeEndpoints([[second], [first]]), [first]);
      assertEquals(mergeEndpoints([[second, first]]), [first]);
    });
  }
}

Deno.test("mergeEndpoints() prefers the earlier list between equals", () => {
  const first = testEndpoint("10.180.0.1", { nodeName: "node-a" });
  const second = testEndpoint("10.180.0.1", { nodeName: "node-b" });
  assertStrictEquals(mergeEndpoints([[first], [second]])[0], first);
});

Deno.test("reuseEndpoints() gives equal lists with every equal object reused", () => {
  const endpoint = fc.record({ host: fc.nat(5), ready: fc.boolean() })
    .map(({ host, ready }) => testEndpoint(`10.180.0.${host}`, { ready }));
  const list = fc.uniqueArray(endpoint, { selector: ({ key }) => key })
    .map((endpoints) => endpoints.sort(compareEndpoints));
  fc.assert(
    fc.property(list, list, (previous, next) => {
      const result = reuseEndpoints(previous, next);
      assertEquals(result, next);
      for (const endpoint of result) {
        const old = previous.find(({ key }) => key === endpoint.key);
        if (old?.ready === endpoint.ready) assertStrictEquals(endpoint, old);
      }
    }),
  );
});

Deno.test("endpointsFromSlice() gives 100,000 endpoints at most, and names the first port too many", () => {
  const ports = Array.from({ length: 20_000 }, (_, index) => ({
    name: `p${index}`,
    protocol: "TCP",
    port: 80,
  }));
  const endpoints = Array.from({ length: 1000 }, (_, index) => `10.0.${index >> 8}.${index & 255}`);
  const { ports: found, paths } = read(testEndpointSlice("web", { endpoints, ports }));
  assertEquals([found.length, found[99]?.endpoints.length], [100, 1000]);
  assertEquals(paths[0], "ports[100]");
});
