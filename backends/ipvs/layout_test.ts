import { assertEquals, assertStringIncludes } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import {
  testForward,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import type { KernelObject } from "../../lib/engine/reconciler.ts";
import { type SetId, setName } from "./ipset_table.ts";
import { IpvsLayout } from "./layout.ts";
import { readRealName, serviceObjects } from "./objects.ts";
import { defaultIpvsOptions, type IpvsRenderOptions } from "./render_options.ts";

const NODE = parseIpAddress("192.168.0.2");
const SHARED = testSharedPlan({
  nodePortAddresses: ["127.0.0.1", "192.168.0.2", "192.168.1.2"].map(parseIpAddress),
});

function layoutOf(
  plans: readonly ServicePlan[],
  options: Partial<IpvsRenderOptions> = {},
): IpvsLayout {
  const layout = new IpvsLayout(SHARED, {
    ...defaultIpvsOptions("IPv4"),
    nodeAddresses: new Set([NODE]),
    ...options,
  });
  for (const plan of plans) layout.set(plan);
  return layout;
}

function objectsOf(layout: IpvsLayout): KernelObject[] {
  return [...layout.keys].flatMap((key) => [...serviceObjects(layout.plan(key)!, layout.inputs)]);
}

function namesOf(layout: IpvsLayout, wanted: string): string[] {
  const found = objectsOf(layout).filter(({ kind }) => kind === wanted);
  return [...new Set(found.map(({ name }) => name))];
}

/** All servers, each as `key setup -> endpoints`. */
function serversOf(layout: IpvsLayout): string[] {
  const objects = objectsOf(layout);
  return objects.filter(({ kind }) => kind === "server").map(({ name, text }) => {
    const reals = objects.filter(({ kind }) => kind === "real")
      .map((real) => readRealName(real.name)).filter(([server]) => server === name);
    return `${name} ${text} -> ${reals.map(([, real]) => real).join(" ")}`.trimEnd();
  });
}

function entriesOf(layout: IpvsLayout, ...ids: readonly SetId[]): Record<string, string[]> {
  return Object.fromEntries(ids.map((id) => [id, namesOf(layout, setName(id, "IPv4"))]));
}

Deno.test("IpvsLayout has a virtual server for each address and node port", () => {
  const layout = layoutOf([testServicePlan({
    externalIps: ["192.168.99.1"],
    loadBalancerVips: ["1.2.3.4"],
    nodePort: 30080,
    to: ["10.0.0.1:8080"],
  })]);
  assertEquals(serversOf(layout), [
    "-t 127.96.0.1:80 -s rr -> 10.0.0.1:8080",
    "-t 192.168.99.1:80 -s rr -> 10.0.0.1:8080",
    "-t 1.2.3.4:80 -s rr -> 10.0.0.1:8080",
    "-t 192.168.0.2:30080 -s rr -> 10.0.0.1:8080",
    "-t 192.168.1.2:30080 -s rr -> 10.0.0.1:8080",
  ]);
  assertEquals(namesOf(layout, "address"), ["127.96.0.1", "192.168.99.1", "1.2.3.4"]);
  assertEquals(entriesOf(layout, "EXTERNAL-IP", "LOAD-BALANCER", "NODE-PORT-TCP", "SERVED"), {
    "EXTERNAL-IP": ["192.168.99.1,tcp:80"],
    "LOAD-BALANCER": ["1.2.3.4,tcp:80"],
    "NODE-PORT-TCP": ["30080"],
    SERVED: ["127.96.0.1,tcp:80", "192.168.99.1,tcp:80", "1.2.3.4,tcp:80"],
  });
});

Deno.test("IpvsLayout binds no address that the node has already", () => {
  const layout = layoutOf([testServicePlan({ externalIps: [NODE], loadBalancerVips: [NODE] })]);
  assertEquals(namesOf(layout, "address"), ["127.96.0.1"]);
  assertEquals(entriesOf(layout, "IPVS-IPS"), { "IPVS-IPS": ["127.96.0.1"] });
});

Deno.test("IpvsLayout keeps an empty virtual server, which refuses, for a Service without endpoints", () => {
  assertEquals(serversOf(layoutOf([testServicePlan()])), ["-t 127.96.0.1:80 -s rr ->"]);
});

Deno.test("IpvsLayout drops packets if policy Local has no endpoint, where kube-proxy forwards to other nodes", () => {
  const cluster = testForward("10.0.0.1:8080");
  const layout = layoutOf([testServicePlan({
    internal: cluster,
    external: { kind: "drop" },
    externalFromCluster: cluster,
    externalTrafficPolicy: "Local",
    externalIps: ["192.168.99.1"],
    nodePort: 30080,
  })]);
  assertEquals(entriesOf(layout, "NO-LOCAL-EXTERNAL", "EXTERNAL-IP", "NODE-PORT-LOCAL-TCP"), {
    "NO-LOCAL-EXTERNAL": [
      "192.168.99.1,tcp:80",
      "192.168.0.2,tcp:30080",
      "192.168.1.2,tcp:30080",
    ],
    "EXTERNAL-IP": [],
    "NODE-PORT-LOCAL-TCP": ["30080"],
  });
  assertEquals(namesOf(layout, "rule").map((rule) => rule.replace(/ -m comment .*-j/, " -j")), [
    "-d 192.168.99.1 -m tcp -p tcp --dport 80 -j DNAT --to-destination 127.96.0.1:80",
    "-d 192.168.0.2 -m tcp -p tcp --dport 30080 -j DNAT --to-destination 127.96.0.1:80",
    "-d 192.168.1.2 -m tcp -p tcp --dport 30080 -j DNAT --to-destination 127.96.0.1:80",
  ]);
  const internal = layoutOf([testServicePlan({ internal: { kind: "drop" } })]);
  assertEquals(entriesOf(internal, "NO-LOCAL-INTERNAL"), {
    "NO-LOCAL-INTERNAL": ["127.96.0.1,tcp:80"],
  });
});

Deno.test("IpvsLayout admits source ranges, the node if they contain it, and no client without a range", () => {
  const vip = { loadBalancerVips: ["1.2.3.4"], to: ["10.0.0.1:8080"] };
  const sets = [
    "LOAD-BALANCER-SOURCE-CIDR",
    "LOAD-BALANCER-SOURCE-IP",
    "LOAD-BALANCER-FW",
  ] as const;
  const ranges = ["203.0.113.0/24", "192.168.0.2/32"].map(parseCidr);
  const admitting = testServicePlan({ ...vip, sourceRanges: ranges, admitsNode: true });
  assertEquals(entriesOf(layoutOf([admitting]), ...sets), {
    "LOAD-BALANCER-SOURCE-CIDR": ["1.2.3.4,tcp:80,203.0.113.0/24", "1.2.3.4,tcp:80,192.168.0.2"],
    "LOAD-BALANCER-SOURCE-IP": ["1.2.3.4,tcp:80,1.2.3.4"],
    "LOAD-BALANCER-FW": ["1.2.3.4,tcp:80"],
  });
  assertEquals(entriesOf(layoutOf([testServicePlan({ ...vip, sourceRanges: [] })]), ...sets), {
    "LOAD-BALANCER-SOURCE-CIDR": [],
    "LOAD-BALANCER-SOURCE-IP": [],
    "LOAD-BALANCER-FW": ["1.2.3.4,tcp:80"],
  });
  const rejecting = layoutOf([testServicePlan({ ...vip, to: [], sourceRanges: ranges })]);
  assertEquals(
    entriesOf(rejecting, "LOAD-BALANCER-FW")["LOAD-BALANCER-FW"],
    [],
    "a Service without endpoints rejects every client",
  );
});

Deno.test("IpvsLayout gives a Service the scheduler that it asks for, and session affinity", () => {
  const annotations = { "kube-router.io/service.scheduler": "mh" };
  const layout = layoutOf([
    testServicePlan({ annotations, affinityTimeoutSeconds: 60 }),
    testServicePlan({ name: "other", clusterIp: "127.96.0.2" }),
  ], { scheduler: "lc" });
  assertEquals(serversOf(layout), [
    "-t 127.96.0.1:80 -s mh -p 60 -b mh-port ->",
    "-t 127.96.0.2:80 -s lc ->",
  ]);
  layout.set(testServicePlan({ annotations: { "kube-relay.io/ipvs-scheduler": "random" } }));
  assertEquals(layout.quarantined.map(({ key }) => key), ["ns/web/TCP"]);
});

Deno.test("IpvsLayout.obstacle() counts the real servers of all ports of a Service", () => {
  const port = (portName: string, name = "web") =>
    testServicePlan({
      ...{ name, portName, port: portName.length },
      externalIps: Array.from({ length: 99 }, (_, at) => `198.51.100.${at}`),
      to: Array.from({ length: 1_000 }, (_, at) => `10.9.${at >> 8}.${at & 255}:80`),
    });
  const layout = layoutOf([port("a"), port("bb")]);
  assertEquals(layout.obstacle(port("bb")), undefined, "in place of what it has");
  assertStringIncludes(layout.obstacle(port("ccc")) ?? "", "more than 200000");
  assertEquals(layout.obstacle(port("ccc", "other")), undefined);
  layout.delete(port("a").key);
  assertEquals(layout.obstacle(port("ccc")), undefined);
});
