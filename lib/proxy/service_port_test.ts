import { ADDRESSES } from "../../tests/support/builders/address_plan.ts";
import { testService } from "../../tests/support/builders/builders.ts";
import type { Service } from "../api/kinds/service.ts";
import type { IpFamily } from "../net/ip_address.ts";
import {
  type ServicePort,
  type ServicePortOptions,
  servicePortsFromService,
} from "./service_port.ts";
import { assertEquals } from "@std/assert";

const { IPv4, IPv6 } = ADDRESSES;
const DUAL_STACK = {
  clusterIPs: [IPv4.clusterIp, IPv6.clusterIp],
  ipFamilies: ["IPv4", "IPv6"],
};

function read(service: Service, options: ServicePortOptions = { family: "IPv4" }) {
  const { ports, problems } = servicePortsFromService(service, options);
  return { ports, port: ports[0], paths: problems.map(({ path }) => path) };
}

Deno.test("servicePortsFromService() leaves absent values undefined", () => {
  assertEquals(servicePortsFromService(testService("web"), { family: "IPv4" }), {
    ports: [
      {
        key: "ns1/web/TCP",
        name: { namespace: "ns1", name: "web", port: "", protocol: "TCP" },
        clusterIp: "172.30.0.41",
        port: 80,
        protocol: "TCP",
        externalIps: [],
        loadBalancerVips: [],
        internalTrafficPolicy: "Cluster",
        externalTrafficPolicy: "Cluster",
        externallyAccessible: false,
      } as unknown as ServicePort,
    ],
    problems: [],
  });
});

type Spec = NonNullable<Parameters<typeof testService>[1]>;

const OF_ANOTHER_PROXY = testService("web", {}, {
  metadata: { labels: { "service.kubernetes.io/service-proxy-name": "" } },
});
const FIRST_OF_BOTH = { ...DUAL_STACK, clusterIPs: [IPv4.clusterIp] };
const TWICE_IPV4 = { ...DUAL_STACK, clusterIPs: [IPv4.clusterIp, "172.30.0.42"] };

/** Services that are served and others that are not (control-plane 4.1). */
const CLUSTER_IP_ROWS: readonly (readonly [
  name: string,
  spec: Spec | Service,
  clusterIp: string | undefined,
  family?: IpFamily,
  problem?: string,
])[] = [
  ["takes clusterIP", {}, "172.30.0.41"],
  ["skips an empty clusterIP", { clusterIP: "" }, undefined],
  ["skips a headless Service", { clusterIP: "None", clusterIPs: ["None"] }, undefined],
  ["skips ExternalName, even with a cluster IP", { type: "ExternalName" }, undefined],
  ["skips a Service of another proxy", OF_ANOTHER_PROXY, undefined],
  ["skips a clusterIP of the other family", {}, undefined, "IPv6"],
  ["uses the entry of clusterIPs at the family's place: IPv4", DUAL_STACK, IPv4.clusterIp],
  ["uses the entry of clusterIPs at the family's place: IPv6", DUAL_STACK, IPv6.clusterIp, "IPv6"],
  ["has none for a family without an entry", FIRST_OF_BOTH, undefined, "IPv6"],
  [
    "has none for a family that ipFamilies does not name",
    { ...DUAL_STACK, ipFamilies: ["IPv4"] },
    undefined,
    "IPv6",
  ],
  [
    "uses clusterIP for clusterIPs[0], as a manifest may have it",
    { ipFamilies: ["IPv4"] },
    IPv4.clusterIp,
  ],
  [
    "finds the family by itself in clusterIPs without ipFamilies",
    { clusterIPs: DUAL_STACK.clusterIPs },
    IPv6.clusterIp,
    "IPv6",
  ],
  ["reads leading zeros as decimal", { clusterIP: "172.030.000.041" }, "172.30.0.41"],
  [
    "reports a clusterIP that is no address",
    { clusterIP: "172.30.0" },
    undefined,
    "IPv4",
    "spec.clusterIP",
  ],
  ["reports an entry of the wrong family", TWICE_IPV4, undefined, "IPv6", "spec.clusterIPs"],
];

for (const [name, spec, clusterIp, family = "IPv4", problem] of CLUSTER_IP_ROWS) {
  Deno.test(`servicePortsFromService() ${name}`, () => {
    const { port, paths } = read("spec" in spec ? spec : testService("web", spec), { family });
    assertEquals<string | undefined>(port?.clusterIp, clusterIp);
    assertEquals(paths, problem === undefined ? [] : [problem]);
  });
}

const INGRESS = [
  ...[{ ip: "1.2.3.4" }, { ip: "1.2.3.5", ipMode: "VIP" }, { ip: "1.2.3.6", ipMode: "Proxy" }],
  ...[{ ip: IPv6.loadBalancerIp }, {}, { ip: "" }, { ip: "lb.example" }],
];
const AFTER_A_MINUTE = { sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } } };
const LOCAL = { externalTrafficPolicy: "Local", healthCheckNodePort: 30111 };
const EXTERNAL = { externalIPs: ["192.168.99.11"], externalTrafficPolicy: "Local" };

/** The record (control-plane 4.3): a Service, and what its first port is expected to hold. */
const RECORD_ROWS: readonly (readonly [
  name: string,
  spec: Spec | Service,
  expect: Readonly<Record<string, unknown>>,
  problems?: readonly string[],
  options?: ServicePortOptions,
])[] = [
  ["has no node port if it is 0", { ports: [{ port: 80, nodePort: 0 }] }, {
    nodePort: undefined,
    externallyAccessible: false,
  }],
  ["uses a node port whatever the type", { ports: [{ port: 80, nodePort: 30080 }] }, {
    nodePort: 30080,
    externallyAccessible: true,
  }],
  [
    "reports a node port out of range and serves the rest",
    { ports: [{ port: 80, nodePort: 70000 }] },
    { port: 80, nodePort: undefined, externallyAccessible: false },
    ["spec.ports[0].nodePort"],
  ],
  [
    "uses external IPs of its family, each once, and reports invalid ones",
    { externalIPs: ["192.168.99.11", "", IPv6.externalIp, "192.168.99", "192.168.99.011"] },
    { externalIps: ["192.168.99.11"], externallyAccessible: true },
    ["spec.externalIPs[3]"],
  ],
  [
    "serves no external IP with the gate off, and stays externally accessible",
    EXTERNAL,
    { externalIps: [], externallyAccessible: true, externalTrafficPolicy: "Local" },
    [],
    { family: "IPv4", allowExternalIps: false },
  ],
  [
    "uses load balancer addresses of its family whose ipMode is unset or VIP",
    testService("web", {}, { ingress: INGRESS }),
    { loadBalancerVips: ["1.2.3.4", "1.2.3.5"], externallyAccessible: true },
    ["status.loadBalancer.ingress[6].ip"],
  ],
  [
    "has no affinity by default, whatever its configuration is",
    { sessionAffinity: "None", ...AFTER_A_MINUTE },
    { affinityTimeoutSeconds: undefined },
  ],
  [
    "uses the affinity timeout of ClientIP",
    { sessionAffinity: "ClientIP", ...AFTER_A_MINUTE },
    { affinityTimeoutSeconds: 60 },
  ],
  ["uses 10800 s if the affinity configuration is missing", { sessionAffinity: "ClientIP" }, {
    affinityTimeoutSeconds: 10_800,
  }],
  ["reads the internal traffic policy", { internalTrafficPolicy: "Local" }, {
    internalTrafficPolicy: "Local",
  }],
  [
    "uses external policy Local for type NodePort, without a health check port",
    { type: "NodePort", ...LOCAL },
    { externalTrafficPolicy: "Local", healthCheckNodePort: undefined },
  ],
  [
    "uses external policy Local for type LoadBalancer, with its health check port",
    { type: "LoadBalancer", ...LOCAL },
    { externalTrafficPolicy: "Local", healthCheckNodePort: 30111 },
  ],
  [
    "has no health check port with external policy Cluster",
    { type: "LoadBalancer", healthCheckNodePort: 30111 },
    { externalTrafficPolicy: "Cluster", healthCheckNodePort: undefined },
  ],
  [
    "reports a missing health check port",
    { type: "LoadBalancer", ...LOCAL, healthCheckNodePort: 0 },
    { externalTrafficPolicy: "Local", healthCheckNodePort: undefined },
    ["spec.healthCheckNodePort"],
  ],
  ["uses external policy Local for ClusterIP with external IPs", EXTERNAL, {
    externalTrafficPolicy: "Local",
  }],
  [
    "ignores external policy Local for ClusterIP without external IPs",
    { type: "ClusterIP", externalTrafficPolicy: "Local" },
    { externalTrafficPolicy: "Cluster" },
  ],
];

for (const [name, spec, expect, problems = [], options] of RECORD_ROWS) {
  Deno.test(`servicePortsFromService() ${name}`, () => {
    const { port, paths } = read("spec" in spec ? spec : testService("web", spec), options);
    const found = Object.keys(expect).map((field) => [field, Reflect.get(port ?? {}, field)]);
    assertEquals(Object.fromEntries(found), expect);
    assertEquals(paths, problems);
  });
}

const RANGES = "spec.loadBalancerSourceRanges";

/** Source ranges: undefined = all clients, empty = no client. */
const SOURCE_RANGE_ROWS: readonly (readonly [
  name: string,
  ranges: readonly string[] | undefined,
  expect: readonly string[] | undefined,
  ...problems: string[],
])[] = [
  ["admit all clients without a list", undefined, undefined],
  ["admit all clients with an empty list", [], undefined],
  [
    "are trimmed, of the family, and each once",
    [" 203.0.113.0/25 ", "fd00::/64", "203.0.113.1/25"],
    ["203.0.113.0/25"],
  ],
  ["admit all clients with a /0 of the family", ["203.0.113.0/25", "0.0.0.0/0"], undefined],
  ["admit no client with a /0 of the other family only", ["::/0"], [], RANGES],
  [
    "leave out invalid ranges",
    ["203.0.113.0/25", "203.0.113.0"],
    ["203.0.113.0/25"],
    `${RANGES}[1]`,
  ],
  [
    "admit no client if none is valid, while upstream admits all",
    ["203.0.113.0", ""],
    [],
    ...[`${RANGES}[0]`, `${RANGES}[1]`, RANGES],
  ],
];

for (const [name, ranges, expect, ...problems] of SOURCE_RANGE_ROWS) {
  Deno.test(`servicePortsFromService(): source ranges ${name}`, () => {
    const service = testService("web", {
      type: "LoadBalancer",
      ...(ranges && { loadBalancerSourceRanges: ranges }),
    }, { ingress: [{ ip: "1.2.3.4" }] });
    const { port, paths } = read(service);
    assertEquals<readonly string[] | undefined>(port?.loadBalancerSourceRanges, expect);
    assertEquals(paths, problems);
  });
}

Deno.test("servicePortsFromService() keeps silent on closed source ranges without a load balancer address", () => {
  const { paths } = read(testService("web", { loadBalancerSourceRanges: ["::/0"] }));
  assertEquals(paths, []);
});

Deno.test("servicePortsFromService() gives one record a port, TCP and UDP under one name included", () => {
  const { ports, paths } = read(testService("dns", {
    ports: [
      { name: "dns", port: 53, protocol: "UDP" },
      { name: "dns", port: 53, protocol: "TCP" },
      { name: "metrics", port: 9153 },
      { name: "sctp", port: 5000, protocol: "SCTP" },
    ],
  }));
  assertEquals<readonly string[]>(ports.map(({ key }) => key), [
    "ns1/dns:dns/UDP",
    "ns1/dns:dns/TCP",
    "ns1/dns:metrics/TCP",
    "ns1/dns:sctp/SCTP",
  ]);
  assertEquals(paths, []);
});

Deno.test("servicePortsFromService() leaves out a bad port and keeps the good ones", () => {
  const { ports, paths } = read(testService("web", {
    ports: [
      { name: "zero", port: 0 },
      { name: "icmp", port: 80, protocol: "ICMP" },
      { name: "good", port: 80 },
      { name: "good", port: 81 },
    ],
  }));
  assertEquals(ports.map(({ port }) => Number(port)), [80]);
  assertEquals(paths, ["spec.ports[0].port", "spec.ports[1].protocol", "spec.ports[3].name"]);
});

Deno.test("servicePortsFromService() reports the object, the value and the consequence of a problem", () => {
  const service = testService("ns2/web", { externalIPs: ["nonsense"] });
  assertEquals(servicePortsFromService(service, { family: "IPv4" }).problems, [{
    kind: "Service",
    object: "ns2/web",
    path: "spec.externalIPs[0]",
    value: "nonsense",
    message: "The external IP is left out: it has to be an IP address",
  }]);
});

for (
  const [what, spec, ingress, most, annotations = {}] of [
    ["one address", {}, [], 60_000],
    ["external IPs", { externalIPs: addresses(99) }, [], 1000],
    ["more external IPs than frontends", { externalIPs: addresses(200_000) }, [], 1],
    [
      "load balancer addresses and source ranges",
      { type: "LoadBalancer", loadBalancerSourceRanges: addresses(100).map((ip) => `${ip}/32`) },
      addresses(10).map((ip) => ({ ip })),
      99,
    ],
    ["server names", { externalIPs: addresses(10) }, addresses(10).map((ip) => ({ ip })), 49, {
      "kube-relay.io/sni": Array.from({ length: 100 }, (_, index) => `s${index}.test`).join(),
    }],
  ] as const
) {
  Deno.test(`servicePortsFromService() accepts 100,000 frontends at most: ${what}`, () => {
    const ports = Array.from({ length: 60_000 }, (_, index) => ({
      name: `p${index}`,
      port: index + 1,
    }));
    const { ports: found, paths } = read(
      testService("web", { ports, ...spec }, { ingress, metadata: { annotations } }),
    );
    assertEquals(found.length, most);
    assertEquals(paths, most === ports.length ? [] : [`spec.ports[${most}]`]);
  });
}

Deno.test("servicePortsFromService() leaves out server names that are too many for the addresses", () => {
  const sni = Array.from({ length: 1000 }, (_, index) => `s${index}.test`).join();
  const annotations = { "kube-relay.io/sni": sni };
  const { ports, paths } = read(
    testService("web", { externalIPs: addresses(30_000) }, { metadata: { annotations } }),
  );
  assertEquals(ports.map(({ edge }) => edge?.sni?.join()), ["s0.test,s1.test,s2.test"]);
  assertEquals(paths, ["metadata.annotations['kube-relay.io/sni']"]);
});

function addresses(count: number): string[] {
  return Array.from(
    { length: count },
    (_, index) => `30.${index >> 16}.${(index >> 8) & 255}.${index & 255}`,
  );
}
