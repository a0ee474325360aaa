import { assert, assertEquals } from "@std/assert";
import type { KubeObject, Service } from "../api/objects.ts";
import { readYaml } from "../config/yaml_source.ts";
import { itemTypeOf, type ManifestOutcome, readManifestObjects } from "./manifest_objects.ts";
import { formatProblem, ManifestProblems } from "./manifest_problem.ts";
import { StringTable } from "./string_table.ts";

const FILE = "a.yaml";
const NO_CLUSTER_IP = "has to be None, or an IPv4 or IPv6 address that is not unspecified, " +
  "link-local or multicast";

interface Reading {
  readonly outcomes: readonly ManifestOutcome[];
  readonly objects: readonly KubeObject[];
  readonly problems: readonly string[];
}

function read(text: string, quick = true): Reading {
  const problems = new ManifestProblems(FILE);
  const strings = new StringTable();
  const { documents, errors } = readYaml(text, { file: FILE, quick });
  assertEquals(errors, []);
  const outcomes = documents.flatMap((document) =>
    readManifestObjects(document, { problems, strings })
  );
  return {
    outcomes,
    objects: outcomes.flatMap((outcome) =>
      outcome.outcome === "read" ? [outcome.entry.object] : []
    ),
    problems: problems.list.map(formatProblem),
  };
}

/** The one object of a text without problems. */
function readOne(text: string): KubeObject {
  const { objects, problems } = read(text);
  assertEquals(problems, []);
  assertEquals(objects.length, 1);
  return objects[0]!;
}

function serviceText(spec: string): string {
  return `apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec: ${spec}\n`;
}

const MINIMAL = serviceText("{clusterIP: 10.0.0.1, ports: [{port: 80}]}");

Deno.test("readManifestObjects() fills in what an API server fills in", () => {
  assertEquals<KubeObject>(readOne(MINIMAL), {
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
  Deno.test(`readManifestObjects() fills in ${what}`, () => {
    const service = readOne(serviceText(spec)) as Service;
    for (const [name, value] of Object.entries(expected)) {
      assertEquals(Reflect.get(service.spec, name), value, name);
    }
  });
}

Deno.test("readManifestObjects() gives load balancer addresses the mode VIP", () => {
  const text = `${MINIMAL}status: {loadBalancer: {ingress: [{ip: 192.0.2.1}, {hostname: a.b}]}}\n`;
  assertEquals((readOne(text) as Service).status, {
    loadBalancer: { ingress: [{ ip: "192.0.2.1", ipMode: "VIP" }, {}] },
  });
});

Deno.test("readManifestObjects() drops the resourceVersion of exported objects", () => {
  const text = MINIMAL.replace("  name: web", "  name: web\n  resourceVersion: '7'\n  uid: x");
  assertEquals(readOne(text).metadata, { name: "web", namespace: "default" });
});

const SLICE_HEAD = "kind: EndpointSlice\nmetadata:\n  name: web-1\n  namespace: ns\n" +
  "  labels: {kubernetes.io/service-name: web}\naddressType: IPv4\n";

Deno.test("readManifestObjects() reads an EndpointSlice", () => {
  const text = `apiVersion: discovery.k8s.io/v1\n${SLICE_HEAD}` +
    "endpoints:\n- addresses: [10.1.0.1]\n  conditions: {ready: true, serving: null}\n  nodeName: a\n" +
    "- addresses: [127.0.0.1]\n  hints: {forZones: [{name: z}]}\nports:\n- port: 8080\n";
  assertEquals(readOne(text), {
    metadata: {
      name: "web-1",
      namespace: "ns",
      labels: { "kubernetes.io/service-name": "web" },
    },
    addressType: "IPv4",
    endpoints: [
      { addresses: ["10.1.0.1"], conditions: { ready: true }, nodeName: "a" },
      { addresses: ["127.0.0.1"], hints: { forZones: [{ name: "z" }] } },
    ],
    ports: [{ name: "", protocol: "TCP", port: 8080 }],
  } as KubeObject);
});

Deno.test("readManifestObjects() reads the node of a v1beta1 EndpointSlice from its topology", () => {
  const text = `apiVersion: discovery.k8s.io/v1beta1\n${SLICE_HEAD}endpoints:\n` +
    "- addresses: [10.1.0.1]\n  topology: {kubernetes.io/hostname: node-a, zone: z}\n";
  assertEquals(Reflect.get(readOne(text), "endpoints"), [
    { addresses: ["10.1.0.1"], nodeName: "node-a" },
  ]);
});

Deno.test("readManifestObjects() reads Endpoints, Node and ServiceCIDR", () => {
  const { objects, problems } = read(
    "apiVersion: v1\nkind: Endpoints\nmetadata: {name: web}\nsubsets:\n" +
      "- {addresses: [{ip: 10.0.0.1, nodeName: a}], notReadyAddresses: [{ip: 10.0.0.2}], ports: [{port: 80}]}\n" +
      "---\napiVersion: v1\nkind: Node\nmetadata: {name: a, namespace: x, labels: {topology.kubernetes.io/zone: z}}\n" +
      "spec: {podCIDR: 10.1.0.0/24}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n" +
      "---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: c}\nspec: {cidrs: [10.96.0.0/12]}\n",
  );
  assertEquals(problems, []);
  assertEquals<unknown>(objects, [
    {
      metadata: { name: "web", namespace: "default" },
      subsets: [{
        addresses: [{ ip: "10.0.0.1", nodeName: "a" }],
        notReadyAddresses: [{ ip: "10.0.0.2" }],
        ports: [{ port: 80, protocol: "TCP" }],
      }],
    },
    {
      metadata: { name: "a", labels: { "topology.kubernetes.io/zone": "z" } },
      spec: { podCIDR: "10.1.0.0/24" },
      status: { addresses: [{ type: "InternalIP", address: "192.0.2.1" }] },
    },
    { metadata: { name: "c" }, spec: { cidrs: ["10.96.0.0/12"] } },
  ]);
});

Deno.test("readManifestObjects() reads the items of lists, with the places of their problems", () => {
  const { objects, problems } = read(
    "apiVersion: v1\nkind: List\nitems:\n" +
      "- {apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None}}\n" +
      "- apiVersion: v1\n  kind: ServiceList\n  items:\n" +
      "  - metadata: {name: b}\n    spec: {clusterIP: None}\n" +
      "  - metadata: {name: c}\n    spec:\n      clusterIP: x\n",
  );
  assertEquals(objects.map(({ metadata }) => metadata.name), ["a", "b"]);
  assertEquals(problems, [
    'a.yaml:12:7: Service default/c: spec.clusterIP is "x": ' + NO_CLUSTER_IP,
  ]);
});

Deno.test("itemTypeOf() tells what a list gives to its items", () => {
  assertEquals(itemTypeOf({ kind: "List", apiVersion: "v1", items: [] }), {});
  assertEquals(itemTypeOf({ kind: "NodeList", apiVersion: "v1" }), {
    kind: "Node",
    apiVersion: "v1",
  });
  assertEquals(itemTypeOf({ kind: "AllowList", items: { a: 1 } }), undefined);
  assertEquals(itemTypeOf({ kind: "Service" }), undefined);
  assertEquals(itemTypeOf([]), undefined);
});

Deno.test("readManifestObjects() ignores other kinds, also those of our names in other groups", () => {
  const { outcomes, problems } = read(
    "apiVersion: apps/v1\nkind: Deployment\n---\napiVersion: serving.knative.dev/v1\nkind: Service\n---\n# no more\n",
  );
  assertEquals(problems, []);
  assertEquals(outcomes, [
    { outcome: "ignored", kind: "Deployment" },
    { outcome: "ignored", kind: "Service" },
  ]);
});

/** What is wrong, the text, and the one line that has to be said of it. */
const REFUSED: readonly { what: string; text: string; problem: string }[] = [
  {
    what: "a name in capitals",
    text: MINIMAL.replace("name: web", "name: Web"),
    problem: 'a.yaml:4:3: Service default/Web: metadata.name is "Web": has to be a DNS label: ' +
      "at most 63 small letters, digits and '-', with a letter or digit at both ends",
  },
  {
    what: "a name that is missing",
    text: MINIMAL.replace("name: web", "labels: {}"),
    problem: "a.yaml:3:1: Service: metadata.name: is missing",
  },
  {
    what: "a port out of range",
    text: serviceText(
      "\n  clusterIP: 10.0.0.1\n  ports:\n    - port: 80\n      name: a\n" +
        "    - name: b\n      port: 70000",
    ),
    problem: "a.yaml:11:7: Service default/web: spec.ports[1].port is 70000: " +
      "has to be a whole number between 1 and 65535",
  },
  {
    what: "a port in quotes",
    text: serviceText("{clusterIP: 10.0.0.1, ports: [{port: '80'}]}"),
    problem: 'a.yaml:5:38: Service default/web: spec.ports[0].port is "80": ' +
      "has to be a whole number between 1 and 65535, without quotes",
  },
  {
    what: "a cluster IP that is missing",
    text: serviceText("{ports: [{port: 80}]}"),
    problem: "a.yaml:5:1: Service default/web: spec.clusterIP: is missing: without an API server " +
      "nobody assigns one; give an address, or None",
  },
  {
    what: "a spec that is missing",
    text: "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n",
    problem: "a.yaml:1:1: Service default/web: spec: is missing",
  },
  {
    what: "ports that are missing",
    text: serviceText("{clusterIP: 10.0.0.1}"),
    problem: "a.yaml:5:1: Service default/web: spec.ports: has to hold at least one port",
  },
  {
    what: "a port name twice",
    text: serviceText("{clusterIP: 10.0.0.1, ports: [{name: a, port: 80}, {name: a, port: 81}]}"),
    problem: 'a.yaml:5:59: Service default/web: spec.ports[1].name is "a": ' +
      "stands here for the second time: each port has a name of its own",
  },
  {
    what: "a port twice",
    text: serviceText("{clusterIP: 10.0.0.1, ports: [{name: a, port: 80}, {name: b, port: 80}]}"),
    problem: "a.yaml:5:68: Service default/web: spec.ports[1].port is 80: " +
      "stands here for the second time with protocol TCP",
  },
  {
    what: "two ports of which one has no name",
    text: serviceText("{clusterIP: 10.0.0.1, ports: [{name: a, port: 80}, {port: 81}]}"),
    problem: "a.yaml:5:58: Service default/web: spec.ports[1].name: is missing: " +
      "of several ports each has one",
  },
  {
    what: "an unknown protocol",
    text: serviceText("{clusterIP: 10.0.0.1, ports: [{port: 80, protocol: tcp}]}"),
    problem: 'a.yaml:5:48: Service default/web: spec.ports[0].protocol is "tcp": ' +
      "has to be TCP, UDP, SCTP, in capitals",
  },
  {
    what: "a node port of type ClusterIP",
    text: serviceText("{clusterIP: 10.0.0.1, ports: [{port: 80, nodePort: 30080}]}"),
    problem: "a.yaml:5:48: Service default/web: spec.ports[0].nodePort is 30080: " +
      "needs spec.type NodePort or LoadBalancer; it is ClusterIP",
  },
  {
    what: "a cluster IP that is no address",
    text: serviceText("{clusterIP: 10.0.0.256, ports: [{port: 80}]}"),
    problem: 'a.yaml:5:8: Service default/web: spec.clusterIP is "10.0.0.256": ' +
      NO_CLUSTER_IP,
  },
  {
    what: "two cluster IPs of one family",
    text: serviceText("{clusterIPs: [10.0.0.1, 10.0.0.2], ports: [{port: 80}]}"),
    problem: 'a.yaml:5:8: Service default/web: spec.clusterIPs is ["10.0.0.1","10.0.0.2"]: ' +
      "has to hold one address, or one of each IP family",
  },
  {
    what: "cluster IP fields that contradict each other",
    text: serviceText("{clusterIP: 10.0.0.1, clusterIPs: [10.0.0.2], ports: [{port: 80}]}"),
    problem: 'a.yaml:5:8: Service default/web: spec.clusterIP is "10.0.0.1": ' +
      "has to be the same as spec.clusterIPs[0], which is 10.0.0.2",
  },
  {
    what: "a family that is not that of the address",
    text: serviceText("{clusterIP: 10.0.0.1, ipFamilies: [IPv6], ports: [{port: 80}]}"),
    problem: 'a.yaml:5:42: Service default/web: spec.ipFamilies[0] is "IPv6": ' +
      "has to be the family of 10.0.0.1, the address at the same place",
  },
  {
    what: "an external address that is the metadata service's",
    text: serviceText("{clusterIP: 10.0.0.1, ports: [{port: 80}], externalIPs: [169.254.169.254]}"),
    problem:
      'a.yaml:5:64: Service default/web: spec.externalIPs[0] is "169.254.169.254": has to be ' +
      "an IPv4 or IPv6 address that is not unspecified, link-local or multicast",
  },
  {
    what: "a source range without a length",
    text: serviceText(
      "{clusterIP: 10.0.0.1, ports: [{port: 80}], loadBalancerSourceRanges: [10.0.0.1]}",
    ),
    problem: 'a.yaml:5:77: Service default/web: spec.loadBalancerSourceRanges[0] is "10.0.0.1": ' +
      "has to be an IP address, a slash and a prefix length, such as 10.0.0.0/8",
  },
  {
    what: "an affinity of two days",
    text: serviceText(
      "{clusterIP: 10.0.0.1, ports: [{port: 80}], sessionAffinity: ClientIP,\n" +
        "  sessionAffinityConfig: {clientIP: {timeoutSeconds: 172800}}}",
    ),
    problem: "a.yaml:6:38: Service default/web: " +
      "spec.sessionAffinityConfig.clientIP.timeoutSeconds is 172800: " +
      "has to be a whole number of seconds between 1 and 86400 (one day)",
  },
  {
    what: "an endpoint of the other family",
    text: `apiVersion: discovery.k8s.io/v1\n${SLICE_HEAD}endpoints:\n- addresses:\n  - fd00::1\n`,
    problem: 'a.yaml:10:5: EndpointSlice ns/web-1: endpoints[0].addresses[0] is "fd00::1": ' +
      "has to be of the family IPv4, which addressType gives",
  },
  {
    what: "an endpoint that is no address",
    text: `apiVersion: discovery.k8s.io/v1\n${SLICE_HEAD}endpoints:\n- addresses:\n  - web.local\n`,
    problem:
      'a.yaml:10:5: EndpointSlice ns/web-1: endpoints[0].addresses[0] is "web.local": has to ' +
      "be an IPv4 or IPv6 address that is not unspecified, link-local or multicast",
  },
  {
    what: "an endpoint without an address",
    text: `apiVersion: discovery.k8s.io/v1\n${SLICE_HEAD}endpoints:\n- addresses: []\n`,
    problem: "a.yaml:9:3: EndpointSlice ns/web-1: endpoints[0].addresses is []: " +
      "has to hold at least one address",
  },
  {
    what: "a slice port name twice",
    text: `apiVersion: discovery.k8s.io/v1\n${SLICE_HEAD}ports: [{port: 1}, {port: 2}]\n`,
    problem: 'a.yaml:8:20: EndpointSlice ns/web-1: ports[1].name is "": ' +
      "stands here for the second time: each port has a name of its own",
  },
  {
    what: "an API version that does not exist",
    text: MINIMAL.replace("apiVersion: v1", "apiVersion: v2"),
    problem: 'a.yaml:1:1: apiVersion is "v2": has to be v1 for kind Service',
  },
  {
    what: "an object without a kind",
    text: "metadata: {name: a}\napiVersion: v1\n",
    problem: "a.yaml:1:1: kind: has to be there, as text",
  },
  {
    what: "a document that is no object",
    text: "- a\n- b\n",
    problem: 'a.yaml:1:1: ["a","b"] is no object: an object has fields',
  },
  {
    what: "a list where fields should be",
    text: serviceText("\n  - clusterIP: 10.0.0.1"),
    problem: 'a.yaml:5:1: Service default/web: spec is [{"clusterIP":"10.0.0.1"}]: ' +
      "has to be a mapping of fields",
  },
];

for (const { what, text, problem } of REFUSED) {
  Deno.test(`readManifestObjects() refuses ${what}`, () => {
    for (const quick of [true, false]) {
      const { outcomes, problems } = read(text, quick);
      assertEquals(problems, [problem]);
      assertEquals(outcomes.map(({ outcome }) => outcome), ["refused"]);
    }
  });
}

Deno.test("readManifestObjects() keeps the good objects beside a bad one", () => {
  const bad = MINIMAL.replace("port: 80", "port: 0").replace("name: web", "name: bad");
  const { outcomes } = read(`${MINIMAL}---\n${bad}---\n${MINIMAL.replace("web", "web-2")}`);
  assertEquals(
    outcomes.map((outcome) => outcome.outcome === "refused" ? outcome.id : outcome.outcome),
    ["read", "Service default/bad", "read"],
  );
});

const WARNED: readonly { what: string; text: string; problem: string }[] = [
  {
    what: "an unknown field of the spec",
    text: serviceText("{clusterIP: 10.0.0.1, ports: [{port: 80}], sessionAfinity: ClientIP}"),
    problem: 'a.yaml:5:50: Service default/web: spec.sessionAfinity is "ClientIP": ' +
      "is no field of kind Service; did you mean 'sessionAffinity'?",
  },
  {
    what: "an unknown field of a port",
    text: serviceText("{clusterIP: 10.0.0.1, ports: [{port: 80, nodeport: 30000}]}"),
    problem: "a.yaml:5:48: Service default/web: spec.ports[0].nodeport is 30000: " +
      "is no field of kind Service; did you mean 'nodePort'?",
  },
  {
    what: "an unknown field that is near to none",
    text: `${MINIMAL}colour: red\n`,
    problem: 'a.yaml:6:1: Service default/web: colour is "red": is no field of kind Service',
  },
  {
    what: "a family without an address",
    text: serviceText("{clusterIP: 10.0.0.1, ipFamilies: [IPv4, IPv6], ports: [{port: 80}]}"),
    problem: 'a.yaml:5:48: Service default/web: spec.ipFamilies[1] is "IPv6": ' +
      "has no address in spec.clusterIPs: the Service is not served by IPv6",
  },
  {
    what: "a NodePort Service without a node port",
    text: serviceText("{clusterIP: 10.0.0.1, type: NodePort, ports: [{port: 80}]}"),
    problem: "a.yaml:5:53: Service default/web: spec.ports[0].nodePort: is missing: " +
      "without an API server nobody assigns one, so that there is none",
  },
  {
    what: "a slice that belongs to no Service",
    text:
      "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a}\naddressType: IPv4\n",
    problem:
      "a.yaml:3:1: EndpointSlice default/a: metadata.labels['kubernetes.io/service-name']: " +
      "is missing: it names the Service; without it the slice belongs to none",
  },
];

for (const { what, text, problem } of WARNED) {
  Deno.test(`readManifestObjects() warns of ${what} and takes the object`, () => {
    const { objects, problems } = read(text);
    assertEquals(problems, [problem]);
    assertEquals(objects.length, 1);
  });
}

Deno.test("readManifestObjects() warns of a kind that is nearly one of ours", () => {
  const { outcomes, problems } = read("apiVersion: v1\nkind: Servise\n");
  assertEquals(outcomes, [{ outcome: "ignored", kind: "Servise" }]);
  assertEquals(problems, ['a.yaml:2:1: kind is "Servise": is not read; did you mean Service?']);
});

Deno.test("readManifestObjects() accepts headless Services and ExternalName without ports", () => {
  readOne(serviceText("{clusterIP: None}"));
  readOne(serviceText("{type: ExternalName, externalName: a.example}"));
});

Deno.test("readManifestObjects() writes hostile names so that a terminal is safe", () => {
  const hostile = '"\\u001b[2Jx\\n\\u202e"';
  const { problems } = read(
    `apiVersion: v1\nkind: Service\nmetadata: {name: ${hostile}, ${hostile}: 1}\nspec: {${hostile}: 1}\n`,
  );
  assert(problems.length >= 3);
  for (const problem of problems) assertEquals(/[\p{Cc}\p{Cf}]/u.test(problem), false, problem);
});

Deno.test("readManifestObjects() never makes an object of a polluted prototype", () => {
  const { objects } = read(
    '{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","labels":{"constructor":"x"}},' +
      '"spec":{"clusterIP":"None"}}',
  );
  assertEquals(Object.getPrototypeOf(objects[0]), Object.prototype);
});
