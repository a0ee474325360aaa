import type { Endpoints } from "../api/kinds/endpoints.ts";
import type { IpFamily } from "../net/ip_address.ts";
import { assertEquals } from "@std/assert";
import { THIS_NODE } from "../../tests/support/builders/address_plan.ts";
import { testEndpoints } from "../../tests/support/builders/builders.ts";
import { endpointsFromEndpoints } from "./endpoint.ts";
import { ProblemCollector } from "../api/problem.ts";

function read(endpoints: Endpoints, family: IpFamily = "IPv4") {
  const problems = new ProblemCollector("Endpoints", "ns1/web");
  const service = { namespace: "ns1", name: "web" };
  const ports = endpointsFromEndpoints(endpoints, {
    family,
    nodeName: THIS_NODE,
    service,
    problems,
  });
  const keys = Object.fromEntries(
    ports.map(({ key, endpoints }) => [String(key), endpoints.map((each) => String(each.key))]),
  );
  return { ports, keys, paths: problems.problems.map(({ path }) => path) };
}

const PORT = { port: 80 };

Deno.test("endpointsFromEndpoints() treats addresses as ready and notReadyAddresses as not serving", () => {
  const { ports, paths } = read(testEndpoints("web", [{
    addresses: [{ ip: "10.180.0.1", nodeName: THIS_NODE }],
    notReadyAddresses: [{ ip: "10.180.1.1", nodeName: "node-b" }],
    ports: [PORT],
  }]));
  assertEquals<unknown>(ports, [{
    key: "ns1/web/TCP",
    endpoints: [
      {
        key: "10.180.0.1:80",
        address: "10.180.0.1",
        port: 80,
        isLocal: true,
        nodeName: THIS_NODE,
        ready: true,
        serving: true,
        terminating: false,
      },
      {
        key: "10.180.1.1:80",
        address: "10.180.1.1",
        port: 80,
        isLocal: false,
        nodeName: "node-b",
        ready: false,
        serving: false,
        terminating: false,
      },
    ],
  }]);
  assertEquals(paths, []);
});

Deno.test("endpointsFromEndpoints() makes every subset × port × address an endpoint", () => {
  const { keys } = read(testEndpoints("web", [
    {
      addresses: [{ ip: "10.180.0.1" }, { ip: "10.180.0.2" }],
      ports: [{ name: "a", port: 80 }, { name: "b", port: 53, protocol: "UDP" }],
    },
    { addresses: [{ ip: "10.180.0.3" }], ports: [{ name: "a", port: 8080 }] },
    { addresses: [{ ip: "10.180.0.4" }] },
  ]));
  assertEquals(keys, {
    "ns1/web:a/TCP": ["10.180.0.1:80", "10.180.0.2:80", "10.180.0.3:8080"],
    "ns1/web:b/UDP": ["10.180.0.1:53", "10.180.0.2:53"],
  });
});

Deno.test("endpointsFromEndpoints() leaves out unusable addresses, and reports them", () => {
  const { keys, paths } = read(testEndpoints("web", [{
    addresses: [{ ip: "10.180.0" }, { ip: "10.180.0.1" }],
    notReadyAddresses: [{ ip: "" }],
    ports: [{ port: 0 }, { port: 80, protocol: "ICMP" }, PORT],
  }]));
  assertEquals(keys, { "ns1/web/TCP": ["10.180.0.1:80"] });
  assertEquals(paths, [
    "subsets[0].addresses[0].ip",
    "subsets[0].notReadyAddresses[0].ip",
    "subsets[0].ports[0]",
    "subsets[0].ports[1]",
  ]);
});

Deno.test("endpointsFromEndpoints() uses a truncated object and reports it", () => {
  const { keys, paths } = read(
    testEndpoints("web", [{ addresses: [{ ip: "10.180.0.1" }], ports: [PORT] }], {
      annotations: { "endpoints.kubernetes.io/over-capacity": "truncated" },
    }),
  );
  assertEquals(keys, { "ns1/web/TCP": ["10.180.0.1:80"] });
  assertEquals(paths, ["metadata.annotations['endpoints.kubernetes.io/over-capacity']"]);
});

Deno.test("endpointsFromEndpoints() gives 100,000 endpoints at most, of all subsets together", () => {
  const subset = {
    addresses: Array.from({ length: 1000 }, (_, index) => ({
      ip: `10.0.${index >> 8}.${index & 255}`,
    })),
    ports: Array.from({ length: 60 }, (_, index) => ({ name: `p${index}`, port: 80 })),
  };
  const { ports, paths } = read(testEndpoints("web", [subset, subset]));
  assertEquals(ports.length, 60);
  assertEquals(paths[0], "subsets[1].ports[40]");
});
