import { assertEquals } from "@std/assert";
import {
  readManifest,
  readOneManifest,
  serviceText,
} from "../../../tests/support/builders/manifest_reading.ts";
import { textRows } from "../../../tests/support/texts/text_rows.ts";
import type { KubeObject } from "../kind.ts";
import type { Service } from "./service.ts";

const MINIMAL = serviceText("{clusterIP: 10.0.0.1, ports: [{port: 80}]}");

Deno.test("completeService() sets the defaults of an API server", () => {
  assertEquals<KubeObject>(readOneManifest(MINIMAL), {
    metadata: { name: "web", namespace: "default" },
    spec: {
      type: "ClusterIP",
      clusterIP: "10.0.0.1",
      clusterIPs: ["10.0.0.1"],
      ipFamilies: ["IPv4"],
      ports: [{ port: 80, protocol: "TCP" }],
      internalTrafficPolicy: "Cluster",
      sessionAffinity: "None",
    },
  } as Service);
});

const DEFAULTS: readonly { what: string; spec: string; expected: Partial<Service["spec"]> }[] = [
  {
    what: "the other address fields from clusterIPs",
    spec: '{clusterIPs: ["fd00::1", 10.0.0.1], ports: [{port: 80}]}',
    expected: { clusterIP: "fd00::1", ipFamilies: ["IPv6", "IPv4"] },
  },
  {
    what: "three hours of session affinity",
    spec: "{clusterIP: 10.0.0.1, ports: [{port: 80}], sessionAffinity: ClientIP}",
    expected: { sessionAffinityConfig: { clientIP: { timeoutSeconds: 10_800 } } },
  },
  {
    what: "the external traffic policy of a NodePort",
    spec: "{clusterIP: 10.0.0.1, ports: [{port: 80, nodePort: 30080}], type: NodePort}",
    expected: { externalTrafficPolicy: "Cluster" },
  },
  {
    what: "the external traffic policy of external addresses",
    spec: "{clusterIP: 10.0.0.1, ports: [{port: 80}], externalIPs: [192.0.2.1]}",
    expected: { externalTrafficPolicy: "Cluster" },
  },
  {
    what: "nothing in the place of a node port of 0",
    spec: "{clusterIP: 10.0.0.1, ports: [{port: 80, nodePort: 0}], healthCheckNodePort: 0}",
    expected: { ports: [{ port: 80, protocol: "TCP" }] },
  },
  {
    what: "nothing in the place of nulls",
    spec: "{clusterIP: 10.0.0.1, type: null, ports: [{port: 80, name: null}], externalIPs: null}",
    expected: { type: "ClusterIP", ports: [{ port: 80, protocol: "TCP" }] },
  },
];

for (const { what, spec, expected } of DEFAULTS) {
  Deno.test(`completeService() fills in ${what}`, () => {
    const service = readOneManifest(serviceText(spec)) as Service;
    for (const [name, value] of Object.entries(expected)) {
      assertEquals(Reflect.get(service.spec, name), value, name);
    }
  });
}

Deno.test("completeService() gives load balancer addresses the mode VIP", () => {
  const text = `${MINIMAL}status: {loadBalancer: {ingress: [{ip: 192.0.2.1}, {hostname: a.b}]}}\n`;
  assertEquals((readOneManifest(text) as Service).status, {
    loadBalancer: { ingress: [{ ip: "192.0.2.1", ipMode: "VIP" }, {}] },
  });
});

/** Services with a fault, and the one line that must report it, by its place and field. */
const REFUSED = `
a port out of range
  \\n  clusterIP: 10.0.0.1\\n  ports:\\n    - port: 80\\n      name: a\\n    - name: b\\n      port: 70000
  a.yaml:11:7 spec.ports[1].port is 70000: has to be a whole number between 1 and 65535
a cluster IP that is missing
  {ports: [{port: 80}]}
  a.yaml:5:1 spec.clusterIP: is missing: without an API server none is assigned; give an address, or None
ports that are missing
  {clusterIP: 10.0.0.1}
  a.yaml:5:1 spec.ports: has to hold at least one port
a port name twice
  {clusterIP: 10.0.0.1, ports: [{name: a, port: 80}, {name: a, port: 81}]}
  a.yaml:5:59 spec.ports[1].name is "a": is the name of an earlier port too: each port needs its own
a port twice
  {clusterIP: 10.0.0.1, ports: [{name: a, port: 80}, {name: b, port: 80}]}
  a.yaml:5:68 spec.ports[1].port is 80: is the number of an earlier port too, with protocol TCP
two ports of which one has no name
  {clusterIP: 10.0.0.1, ports: [{name: a, port: 80}, {port: 81}]}
  a.yaml:5:58 spec.ports[1].name: is missing: of several ports each has one
an unknown protocol
  {clusterIP: 10.0.0.1, ports: [{port: 80, protocol: tcp}]}
  a.yaml:5:48 spec.ports[0].protocol is "tcp": has to be TCP, UDP, SCTP, in capitals
a node port of type ClusterIP
  {clusterIP: 10.0.0.1, ports: [{port: 80, nodePort: 30080}]}
  a.yaml:5:48 spec.ports[0].nodePort is 30080: needs spec.type NodePort or LoadBalancer; it is ClusterIP
a cluster IP that is no address
  {clusterIP: 10.0.0.256, ports: [{port: 80}]}
  a.yaml:5:8 spec.clusterIP is "10.0.0.256": has to be None, or an IPv4 or IPv6 address that is not unspecified, link-local or multicast
two cluster IPs of one family
  {clusterIPs: [10.0.0.1, 10.0.0.2], ports: [{port: 80}]}
  a.yaml:5:8 spec.clusterIPs is ["10.0.0.1","10.0.0.2"]: has to hold one address, or one of each IP family
cluster IP fields that contradict each other
  {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.2], ports: [{port: 80}]}
  a.yaml:5:8 spec.clusterIP is "10.0.0.1": has to be the same as spec.clusterIPs[0], which is 10.0.0.2
a family that is not that of the address
  {clusterIP: 10.0.0.1, ipFamilies: [IPv6], ports: [{port: 80}]}
  a.yaml:5:42 spec.ipFamilies[0] is "IPv6": has to be the family of 10.0.0.1, the address at the same place
an external address that is the metadata service's
  {clusterIP: 10.0.0.1, ports: [{port: 80}], externalIPs: [169.254.169.254]}
  a.yaml:5:64 spec.externalIPs[0] is "169.254.169.254": has to be an IPv4 or IPv6 address that is not unspecified, link-local or multicast
a source range without a length
  {clusterIP: 10.0.0.1, ports: [{port: 80}], loadBalancerSourceRanges: [10.0.0.1]}
  a.yaml:5:77 spec.loadBalancerSourceRanges[0] is "10.0.0.1": has to be an IP address, a slash and a prefix length, such as 10.0.0.0/8
an affinity of two days
  {clusterIP: 10.0.0.1, ports: [{port: 80}], sessionAffinity: ClientIP,\\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 172800}}}
  a.yaml:6:38 spec.sessionAffinityConfig.clientIP.timeoutSeconds is 172800: has to be a whole number of seconds between 1 and 86400 (one day)
`;

for (const [what, spec, problem] of textRows(REFUSED)) {
  Deno.test(`completeService() refuses ${what}`, () => {
    const { objects, problems } = readManifest(serviceText(spec!));
    assertEquals(problems.map((each) => each.replace(": Service default/web: ", " ")), [problem]);
    assertEquals(objects, []);
  });
}

const WARNED = `
a family without an address
  {clusterIP: 10.0.0.1, ipFamilies: [IPv4, IPv6], ports: [{port: 80}]}
  a.yaml:5:48 spec.ipFamilies[1] is "IPv6": has no address in spec.clusterIPs: the Service is not served by IPv6
a NodePort Service without a node port
  {clusterIP: 10.0.0.1, type: NodePort, ports: [{port: 80}]}
  a.yaml:5:53 spec.ports[0].nodePort: is missing: without an API server none is assigned
`;

for (const [what, spec, problem] of textRows(WARNED)) {
  Deno.test(`completeService() warns of ${what} and accepts the object`, () => {
    const { objects, problems } = readManifest(serviceText(spec!));
    assertEquals(problems.map((each) => each.replace(": Service default/web: ", " ")), [problem]);
    assertEquals(objects.length, 1);
  });
}

Deno.test("completeService() accepts headless Services and ExternalName without ports", () => {
  readOneManifest(serviceText("{clusterIP: None}"));
  readOneManifest(serviceText("{type: ExternalName, externalName: a.example}"));
});
