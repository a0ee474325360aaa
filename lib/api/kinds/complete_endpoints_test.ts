import { assertEquals } from "@std/assert";
import { readManifest, readOneManifest } from "../../../tests/support/builders/manifest_reading.ts";
import type { KubeObject } from "../kind.ts";

const SLICE_HEAD = "kind: EndpointSlice\nmetadata:\n  name: web-1\n  namespace: ns\n" +
  "  labels: {kubernetes.io/service-name: web}\naddressType: IPv4\n";

Deno.test("completeEndpointSlice() reads an EndpointSlice", () => {
  const text = `apiVersion: discovery.k8s.io/v1\n${SLICE_HEAD}` +
    "endpoints:\n- addresses: [10.1.0.1]\n  conditions: {ready: true, serving: null}\n  nodeName: a\n" +
    "- addresses: [127.0.0.1]\n  hints: {forZones: [{name: z}]}\nports:\n- port: 8080\n";
  assertEquals(readOneManifest(text), {
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

Deno.test("completeEndpointSlice() reads the node of a v1beta1 EndpointSlice from its topology", () => {
  const text = `apiVersion: discovery.k8s.io/v1beta1\n${SLICE_HEAD}endpoints:\n` +
    "- addresses: [10.1.0.1]\n  topology: {kubernetes.io/hostname: node-a, zone: z}\n";
  assertEquals(Reflect.get(readOneManifest(text), "endpoints"), [
    { addresses: ["10.1.0.1"], nodeName: "node-a" },
  ]);
});

/** Texts with a fault, and the one line that must report it. */
const REFUSED: readonly { what: string; text: string; problem: string }[] = [
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
      "is the name of an earlier port too: each port needs its own",
  },
];

for (const { what, text, problem } of REFUSED) {
  Deno.test(`completeEndpointSlice() refuses ${what}`, () => {
    const { objects, problems } = readManifest(text);
    assertEquals(problems, [problem]);
    assertEquals(objects, []);
  });
}

const WARNED: readonly { what: string; text: string; problem: string }[] = [
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
  Deno.test(`completeEndpointSlice() warns of ${what} and accepts the object`, () => {
    const { objects, problems } = readManifest(text);
    assertEquals(problems, [problem]);
    assertEquals(objects.length, 1);
  });
}
