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

/** Services that are served and others that are not (control-plane 4.1). */
const CLUSTER_IP_ROWS: readonly {
  readonly name: string;
  readonly service: Service;
  readonly family?: IpFamily;
  readonly clusterIp: string | undefined;
  readonly problem?: string;
}[] = [
  { name: "takes clusterIP", service: testService("web"), clusterIp: "172.30.0.41" },
  {
    name: "skips an empty clusterIP",
    service: testService("web", { clusterIP: "" }),
    clusterIp: undefined,
  },
  {
    name: "skips a headless Service",
    service: testService("web", { clusterIP: "None", clusterIPs: ["None"] }),
    clusterIp: undefined,
  },
  {
    name: "skips ExternalName, even with a cluster IP",
    service: testService("web", { type: "ExternalName" }),
    clusterIp: undefined,
  },
  {
    name: "skips a Service of another proxy",
    service: testService("web", {}, {
      metadata: { labels: { "service.kubernetes.io/service-proxy-name": "" } },
    }),
    clusterIp: undefined,
  },
  {
    name: "skips a clusterIP of the other family",
    service: testService("web"),
    family: "IPv6",
    clusterIp: undefined,
  },
  {
    name: "uses the entry of clusterIPs at the family's place: IPv4",
    service: testService("web", DUAL_STACK),
    clusterIp: IPv4.clusterIp,
  },
  {
    name: "uses the entry of clusterIPs at the family's place: IPv6",
    service: testService("web", DUAL_STACK),
    family: "IPv6",
    clusterIp: IPv6.clusterIp,
  },
  {
    name: "has none for a family without an entry",
    service: testService("web", { ...DUAL_STACK, clusterIPs: [IPv4.clusterIp] }),
    family: "IPv6",
    clusterIp: undefined,
  },
  {
    name: "has none for a family that ipFamilies does not name",
    service: testService("web", { ...DUAL_STACK, ipFamilies: ["IPv4"] }),
    family: "IPv6",
    clusterIp: undefined,
  },
  {
    name: "uses clusterIP for clusterIPs[0], as a manifest may have it",
    service: testService("web", { ipFamilies: ["IPv4"] }),
    clusterIp: IPv4.clusterIp,
  },
  {
    name: "finds the family by itself in clusterIPs without ipFamilies",
    service: testService("web", { clusterIPs: DUAL_STACK.clusterIPs }),
    family: "IPv6",
    clusterIp: IPv6.clusterIp,
  },
  {
    name: "reads leading zeros as decimal",
    service: testService("web", { clusterIP: "172.030.000.041" }),
    clusterIp: "172.30.0.41",
  },
  {
    name: "reports a clusterIP that is no address",
    service: testService("web", { clusterIP: "172.30.0" }),
    clusterIp: undefined,
    problem: "spec.clusterIP",
  },
  {
    name: "reports an entry of the wrong family",
    service: testService("web", { ...DUAL_STACK, clusterIPs: [IPv4.clusterIp, "172.30.0.42"] }),
    family: "IPv6",
    clusterIp: undefined,
    problem: "spec.clusterIPs",
  },
];

for (const { name, service, family = "IPv4", clusterIp, problem } of CLUSTER_IP_ROWS) {
  Deno.test(`servicePortsFromService() ${name}`, () => {
    const { port, paths } = read(service, { family });
    assertEquals<string | undefined>(port?.clusterIp, clusterIp);
    assertEquals(paths, problem === undefined ? [] : [problem]);
  });
}

/** The record (control-plane 4.3): a Service, and what its first port is expected to hold. */
const RECORD_ROWS: readonly {
  readonly name: string;
  readonly service: Service;
  readonly options?: ServicePortOptions;
  readonly expect: Readonly<Record<string, unknown>>;
  readonly problems?: readonly string[];
}[] = [
  {
    name: "has no node port if it is 0",
    service: testService("web", { ports: [{ port: 80, nodePort: 0 }] }),
    expect: { nodePort: undefined, externallyAccessible: false },
  },
  {
    name: "uses a node port whatever the type",
    service: testService("web", { ports: [{ port: 80, nodePort: 30080 }] }),
    expect: { nodePort: 30080, externallyAccessible: true },
  },
  {
    name: "reports a node port out of range and serves the rest",
    service: testService("web", { ports: [{ port: 80, nodePort: 70000 }] }),
    expect: { port: 80, nodePort: undefined, externallyAccessible: false },
    problems: ["spec.ports[0].nodePort"],
  },
  {
    name: "uses external IPs of its family, each once, and reports invalid ones",
    service: testService("web", {
      externalIPs: ["192.168.99.11", "", IPv6.externalIp, "192.168.99", "192.168.99.011"],
    }),
    expect: { externalIps: ["192.168.99.11"], externallyAccessible: true },
    problems: ["spec.externalIPs[3]"],
  },
  {
    name: "serves no external IP with the gate off, and stays externally accessible",
    service: testService("web", { externalIPs: ["192.168.99.11"], externalTrafficPolicy: "Local" }),
    options: { family: "IPv4", allowExternalIps: false },
    expect: { externalIps: [], externallyAccessible: true, externalTrafficPolicy: "Local" },
  },
  {
    name: "uses load balancer addresses of its family whose ipMode is unset or VIP",
    service: testService("web", {}, {
      ingress: [
        { ip: "1.2.3.4" },
        { ip: "1.2.3.5", ipMode: "VIP" },
        { ip: "1.2.3.6", ipMode: "Proxy" },
        { ip: IPv6.loadBalancerIp },
        {},
        { ip: "" },
        { ip: "lb.example" },
      ],
    }),
    expect: { loadBalancerVips: ["1.2.3.4", "1.2.3.5"], externallyAccessible: true },
    problems: ["status.loadBalancer.ingress[6].ip"],
  },
  {
    name: "has no affinity by default, whatever its configuration is",
    service: testService("web", {
      sessionAffinity: "None",
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } },
    }),
    expect: { affinityTimeoutSeconds: undefined },
  },
  {
    name: "uses the affinity timeout of ClientIP",
    service: testService("web", {
      sessionAffinity: "ClientIP",
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } },
    }),
    expect: { affinityTimeoutSeconds: 60 },
  },
  {
    name: "uses 10800 s if the affinity configuration is missing",
    service: testService("web", { sessionAffinity: "ClientIP" }),
    expect: { affinityTimeoutSeconds: 10_800 },
  },
  {
    name: "reads the internal traffic policy",
    service: testService("web", { internalTrafficPolicy: "Local" }),
    expect: { internalTrafficPolicy: "Local" },
  },
  {
    name: "uses external policy Local for type NodePort, without a health check port",
    service: testService("web", {
      type: "NodePort",
      externalTrafficPolicy: "Local",
      healthCheckNodePort: 30111,
    }),
    expect: { externalTrafficPolicy: "Local", healthCheckNodePort: undefined },
  },
  {
    name: "uses external policy Local for type LoadBalancer, with its health check port",
    service: testService("web", {
      type: "LoadBalancer",
      externalTrafficPolicy: "Local",
      healthCheckNodePort: 30111,
    }),
    expect: { externalTrafficPolicy: "Local", healthCheckNodePort: 30111 },
  },
  {
    name: "has no health check port with external policy Cluster",
    service: testService("web", { type: "LoadBalancer", healthCheckNodePort: 30111 }),
    expect: { externalTrafficPolicy: "Cluster", healthCheckNodePort: undefined },
  },
  {
    name: "reports a missing health check port",
    service: testService("web", {
      type: "LoadBalancer",
      externalTrafficPolicy: "Local",
      healthCheckNodePort: 0,
    }),
    expect: { externalTrafficPolicy: "Local", healthCheckNodePort: undefined },
    problems: ["spec.healthCheckNodePort"],
  },
  {
    name: "uses external policy Local for ClusterIP with external IPs",
    service: testService("web", {
      type: "ClusterIP",
      externalIPs: ["192.168.99.11"],
      externalTrafficPolicy: "Local",
    }),
    expect: { externalTrafficPolicy: "Local" },
  },
  {
    name: "ignores external policy Local for ClusterIP without external IPs",
    service: testService("web", { type: "ClusterIP", externalTrafficPolicy: "Local" }),
    expect: { externalTrafficPolicy: "Cluster" },
  },
];

for (const { name, service, options, expect, problems = [] } of RECORD_ROWS) {
  Deno.test(`servicePortsFromService() ${name}`, () => {
    const { port, paths } = read(service, options);
    const found = Object.keys(expect).map((field) => [field, Reflect.get(port ?? {}, field)]);
    assertEquals(Object.fromEntries(found), expect);
    assertEquals(paths, problems);
  });
}

/** Source ranges: undefined = all clients, empty = no client. */
const SOURCE_RANGE_ROWS: readonly {
  readonly name: string;
  readonly ranges: readonly string[] | undefined;
  readonly expect: readonly string[] | undefined;
  readonly problems?: readonly string[];
}[] = [
  { name: "admit all clients without a list", ranges: undefined, expect: undefined },
  { name: "admit all clients with an empty list", ranges: [], expect: undefined },
  {
    name: "are trimmed, of the family, and each once",
    ranges: [" 203.0.113.0/25 ", "fd00::/64", "203.0.113.1/25"],
    expect: ["203.0.113.0/25"],
  },
  {
    name: "admit all clients with a /0 of the family",
    ranges: ["203.0.113.0/25", "0.0.0.0/0"],
    expect: undefined,
  },
  {
    name: "admit no client with a /0 of the other family only",
    ranges: ["::/0"],
    expect: [],
    problems: ["spec.loadBalancerSourceRanges"],
  },
  {
    name: "leave out invalid ranges",
    ranges: ["203.0.113.0/25", "203.0.113.0"],
    expect: ["203.0.113.0/25"],
    problems: ["spec.loadBalancerSourceRanges[1]"],
  },
  {
    name: "admit no client if none is valid, while upstream admits all",
    ranges: ["203.0.113.0", ""],
    expect: [],
    problems: [
      "spec.loadBalancerSourceRanges[0]",
      "spec.loadBalancerSourceRanges[1]",
      "spec.loadBalancerSourceRanges",
    ],
  },
];

for (const { name, ranges, expect, problems = [] } of SOURCE_RANGE_ROWS) {
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
  const [what, spec, ingress, most] of [
    ["one address", {}, [], 60_000],
    ["external IPs", { externalIPs: addresses(99) }, [], 1000],
    ["more external IPs than frontends", { externalIPs: addresses(200_000) }, [], 1],
    [
      "load balancer addresses and source ranges",
      { type: "LoadBalancer", loadBalancerSourceRanges: addresses(100).map((ip) => `${ip}/32`) },
      addresses(10).map((ip) => ({ ip })),
      99,
    ],
  ] as const
) {
  Deno.test(`servicePortsFromService() accepts 100,000 frontends at most: ${what}`, () => {
    const ports = Array.from({ length: 60_000 }, (_, index) => ({
      name: `p${index}`,
      port: index + 1,
    }));
    const { ports: found, paths } = read(testService("web", { ports, ...spec }, { ingress }));
    assertEquals(found.length, most);
    assertEquals(paths, most === ports.length ? [] : [`spec.ports[${most}]`]);
  });
}

function addresses(count: number): string[] {
  return Array.from(
    { length: count },
    (_, index) => `30.${index >> 16}.${(index >> 8) & 255}.${index & 255}`,
  );
}
