import { assert, assertEquals } from "@std/assert";
import {
  readManifest,
  readOneManifest,
  serviceText,
} from "../../../tests/support/builders/manifest_reading.ts";

const NO_CLUSTER_IP = "has to be None, or an IPv4 or IPv6 address that is not unspecified, " +
  "link-local or multicast";

const MINIMAL = serviceText("{clusterIP: 10.0.0.1, ports: [{port: 80}]}");

Deno.test("ManifestFileContent drops the resourceVersion of exported objects", () => {
  const text = MINIMAL.replace("  name: web", "  name: web\n  resourceVersion: '7'\n  uid: x");
  assertEquals(readOneManifest(text).metadata, { name: "web", namespace: "default" });
});

Deno.test("ManifestFileContent reads Endpoints, Node and ServiceCIDR", () => {
  const { objects, problems } = readManifest(
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

Deno.test("ManifestFileContent reads the items of lists, with the places of their problems", () => {
  const { objects, problems } = readManifest(
    "apiVersion: v1\nkind: List\nitems:\n" +
      "- {apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None}}\n" +
      "- apiVersion: v1\n  kind: ServiceList\n  items:\n" +
      "  - metadata: {name: b}\n    spec: {clusterIP: None}\n" +
      "  - metadata: {name: c}\n    spec:\n      ports: [{port: 80}]\n      clusterIP: x\n",
  );
  assertEquals(objects.map(({ metadata }) => metadata.name), ["a", "b"]);
  assertEquals(problems, [
    'a.yaml:13:7: Service default/c: spec.clusterIP is "x": ' + NO_CLUSTER_IP,
  ]);
});

Deno.test("ManifestFileContent ignores other kinds, also those with the same names in other groups", () => {
  const { content, problems } = readManifest(
    "apiVersion: apps/v1\nkind: Deployment\n---\napiVersion: serving.knative.dev/v1\nkind: Service\n---\n# no more\n",
  );
  assertEquals(problems, []);
  assertEquals([...content.ignored.keys()], ["Deployment", "Service of serving.knative.dev/v1"]);
});

/** Texts with a fault, and the one line that must report it. */
const REFUSED: readonly (readonly [what: string, text: string, problem: string])[] = [
  [
    "a name in capitals",
    MINIMAL.replace("name: web", "name: Web"),
    'a.yaml:4:3: Service default/Web: metadata.name is "Web": has to be a DNS label: ' +
    "at most 63 small letters, digits and '-', with a letter or digit at both ends",
  ],
  [
    "a name that is missing",
    MINIMAL.replace("name: web", "labels: {}"),
    "a.yaml:3:1: Service: metadata.name: is missing",
  ],
  [
    "a port in quotes",
    serviceText("{clusterIP: 10.0.0.1, ports: [{port: '80'}]}"),
    'a.yaml:5:38: Service default/web: spec.ports[0].port is "80": ' +
    "has to be a whole number between 1 and 65535, without quotes",
  ],
  [
    "a spec that is missing",
    "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n",
    "a.yaml:1:1: Service default/web: spec: is missing",
  ],
  [
    "an API version that does not exist",
    MINIMAL.replace("apiVersion: v1", "apiVersion: v2"),
    'a.yaml:1:1: apiVersion is "v2": has to be v1 for kind Service',
  ],
  [
    "an object without a kind",
    "metadata: {name: a}\napiVersion: v1\n",
    "a.yaml:1:1: kind: has to be there, as text",
  ],
  [
    "a document that is no object",
    "- a\n- b\n",
    "a.yaml:1:1: Expected an object, with fields, found a list",
  ],
  [
    "a list where fields should be",
    serviceText("\n  - clusterIP: 10.0.0.1"),
    'a.yaml:5:1: Service default/web: spec is [{"clusterIP":"10.0.0.1"}]: ' +
    "has to be a mapping of fields",
  ],
];

for (const [what, text, problem] of REFUSED) {
  Deno.test(`ManifestFileContent refuses ${what}`, () => {
    const { objects, problems } = readManifest(text);
    assertEquals(problems, [problem]);
    assertEquals(objects, []);
  });
}

Deno.test("ManifestFileContent warns of a kind with a similar name", () => {
  const { content, problems } = readManifest("apiVersion: v1\nkind: Servise\n");
  assertEquals([...content.ignored.keys()], ["Servise"]);
  assertEquals(problems, ['a.yaml:2:1: kind is "Servise": is not read; did you mean Service?']);
});

Deno.test("ManifestFileContent writes hostile names so that a terminal is safe", () => {
  const hostile = '"\\u001b[2Jx\\n\\u202e"';
  const { problems } = readManifest(
    `apiVersion: v1\nkind: Service\nmetadata: {name: ${hostile}, ${hostile}: 1}\nspec: {${hostile}: 1}\n`,
  );
  assert(problems.length >= 3);
  for (const problem of problems) assertEquals(/[\p{Cc}\p{Cf}]/u.test(problem), false, problem);
});

Deno.test("ManifestFileContent never makes an object of a polluted prototype", () => {
  const { objects } = readManifest(
    '{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","labels":{"constructor":"x"}},' +
      '"spec":{"clusterIP":"None"}}',
  );
  assertEquals(Object.getPrototypeOf(objects[0]), Object.prototype);
});
