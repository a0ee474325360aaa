import type { EndpointSlice, SliceEndpoint } from "../api/kinds/endpoint_slice.ts";
import type { IpFamily } from "../net/ip_address.ts";
import { assertEquals, assertStrictEquals } from "@std/assert";
import { parse } from "@std/yaml";
import fc from "fast-check";
import { ADDRESSES, THIS_NODE } from "../../tests/support/builders/address_plan.ts";
import { testEndpoint, testEndpointSlice } from "../../tests/support/builders/builders.ts";
import { textRows } from "../../tests/support/texts/text_rows.ts";
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

/** An endpoint, some of its fields, and the paths of problems (control-plane 4.6). */
const ENDPOINT_ROWS = `
reads conditions
  {addresses: ["10.180.0.1"], conditions: {ready: false, serving: true, terminating: true}}
  {ready: false, serving: true, terminating: true}
treats unset serving as true next to ready false
  {addresses: ["10.180.0.1"], conditions: {ready: false}}
  {ready: false, serving: true, terminating: false}
knows an endpoint of the own node
  {addresses: ["10.180.0.1"], nodeName: node-a}
  {isLocal: true, nodeName: node-a}
accepts an address in any range, of a host network too
  {addresses: ["192.168.99.7"]}
  {key: "192.168.99.7:80"}
knows an endpoint of another node
  {addresses: ["10.180.0.1"], nodeName: node-b}
  {isLocal: false, nodeName: node-b}
has no local endpoints if the own node is unknown
  {addresses: ["10.180.0.1"], nodeName: ""}
  {isLocal: false}
uses the first address only
  {addresses: ["10.180.0.1", "10.180.0.2"]}
  {key: "10.180.0.1:80"}
reads leading zeros as decimal
  {addresses: ["010.180.000.001"]}
  {key: "10.180.0.1:80", address: "10.180.0.1"}
reads hints
  {addresses: ["10.180.0.1"], hints: {forZones: [{name: zone-a}, {name: zone-b}], forNodes: [{name: node-a}]}}
  {zoneHints: [zone-a, zone-b], nodeHints: [node-a]}
treats an empty hint as absent
  {addresses: ["10.180.0.1"], hints: {forZones: [], forNodes: []}}
  {zoneHints: absent, nodeHints: absent}
leaves out an endpoint without address
  {addresses: []}
  none
  endpoints[0].addresses
leaves out invalid addresses
  {addresses: ["web.example"]}
  none
  endpoints[0].addresses
leaves out an address of the other family
  {addresses: ["fd00:10::a01"]}
  none
  endpoints[0].addresses
`;

for (const [name, endpoint = "", expected = "", problems = ""] of textRows(ENDPOINT_ROWS)) {
  Deno.test(`endpointsFromSlice() ${name}`, () => {
    const slice = testEndpointSlice("web", { endpoints: [parse(endpoint) as SliceEndpoint] });
    const { ports, paths } = read(
      slice,
      "IPv4",
      endpoint.includes('nodeName: ""') ? "" : THIS_NODE,
    );
    const [found] = ports[0]?.endpoints ?? [];
    const fields = expected === "none" ? undefined : parse(expected) as Record<string, unknown>;
    const of = Object.keys(fields ?? {}).map((field) => [
      field,
      Reflect.get(found ?? {}, field) ?? "absent",
    ]);
    assertEquals(found && Object.fromEntries(of), fields);
    assertEquals(paths.join(), problems);
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

/** The ports of a slice, the endpoints of each ServicePort, and the paths of problems (control-plane 4.6). */
const PORT_ROWS = `
treats a missing protocol as TCP
  [{name: "", port: 80}, {name: b, port: 81}]
  {"ns1/web/TCP": ["10.180.0.1:80"], "ns1/web:b/TCP": ["10.180.0.1:81"]}
treats a missing name as the empty one, as the API server does
  [{port: 80}]
  {"ns1/web/TCP": ["10.180.0.1:80"]}
leaves out ports without number
  [{name: a}, {name: b, port: 0}]
  {}
  ports[0], ports[1]
leaves out a port of an unknown protocol and keeps the others
  [{name: a, port: 80, protocol: ICMP}, {name: b, port: 81}]
  {"ns1/web:b/TCP": ["10.180.0.1:81"]}
  ports[0]
distinguishes TCP from UDP on one name
  [{name: dns, port: 53, protocol: UDP}, {name: dns, port: 5353}]
  {"ns1/web:dns/UDP": ["10.180.0.1:53"], "ns1/web:dns/TCP": ["10.180.0.1:5353"]}
puts ports of one name and protocol together
  [{name: "", port: 81}, {name: "", port: 80}]
  {"ns1/web/TCP": ["10.180.0.1:80", "10.180.0.1:81"]}
`;

for (const [name, ports = "", expected = "", problems = ""] of textRows(PORT_ROWS)) {
  Deno.test(`endpointsFromSlice() ${name}`, () => {
    const ported = { endpoints: ["10.180.0.1"], ports: parse(ports) as EndpointSlice["ports"] };
    const found = read(testEndpointSlice("web", ported));
    const keys = found.ports.map(({ key, endpoints }) => [key, endpoints.map(({ key }) => key)]);
    assertEquals<unknown>(Object.fromEntries(keys), parse(expected));
    assertEquals(found.paths.join(", "), problems);
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
