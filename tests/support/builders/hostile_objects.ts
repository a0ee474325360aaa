import { ADDRESSES } from "./address_plan.ts";
import { testEndpointSlice } from "./builders.ts";
import { rawObjects } from "./raw_objects.ts";

/** Texts where a program would take a line, a word, or a terminal a command. */
const EVIL = ["\n-C\n", " -j ACCEPT", "'; reboot #", "\u001b[31m\r\n*nat\n-F\nCOMMIT\n", "\u0000"];

/** Manifests of objects that no API server would accept, each in its own file. */
export function hostileManifests(): string[] {
  const [line = ""] = EVIL;
  const specs: Record<string, unknown>[] = [
    ...EVIL.flatMap((text) => [
      { clusterIP: `172.30.0.90${text}` },
      { externalIPs: [`192.168.99.90${text}`, text] },
      { ports: [{ port: 80, name: text, protocol: `TCP${text}` }, { port: text, nodePort: text }] },
      { loadBalancerSourceRanges: [`10.0.0.0/8${text}`], type: "LoadBalancer" },
      { sessionAffinity: text, sessionAffinityConfig: { clientIP: { timeoutSeconds: text } } },
    ]),
    {
      externalIPs: [
        ADDRESSES.IPv4.clusterIp,
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "127.0.0.1",
        "::",
      ],
    },
    { type: "NodePort", ports: [{ port: 80, nodePort: 70_000 }, { port: 0 }, { port: -1 }] },
  ];
  const services = [
    ...specs.map((spec, index) => ({ name: `hostile-${index}`, spec })),
    ...EVIL.map((text) => ({ name: `hostile${text}`, spec: {} })),
  ].map(({ name, spec }, index) => {
    const metadata = {
      namespace: "ns1",
      name,
      annotations: { "kube-relay.io/ipvs-scheduler": `rr${line}` },
    };
    const plain = { clusterIP: `172.30.0.${100 + index}`, ports: [{ port: 80 }] };
    return { apiVersion: "v1", kind: "Service", metadata, spec: { ...plain, ...spec } };
  });
  const addresses = [...EVIL.map((text) => `10.180.0.1${text}`), "0.0.0.0", "224.0.0.1", "::"];
  const slice = rawObjects(
    "EndpointSlice",
    testEndpointSlice("hostile-0", { endpoints: addresses }),
  );
  return [...services, ...slice].map((object) => JSON.stringify(object));
}
