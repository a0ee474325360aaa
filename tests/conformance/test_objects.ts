/** Builds objects other than Services, in the form for an API server. */
import type { RawObject } from "./server.ts";

type Labels = Readonly<Record<string, string>>;

/** The same object with these labels on top of its own. */
export function withLabels(object: RawObject, labels: Labels): RawObject {
  const { metadata } = object;
  return { ...object, metadata: { ...metadata, labels: { ...metadata.labels, ...labels } } };
}

/** The EndpointSlice `default/NAME` of Service `web`, with one endpoint. */
export function testEndpointSlice(name: string): RawObject {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name,
      namespace: "default",
      labels: { "kubernetes.io/service-name": "web" },
    },
    addressType: "IPv4",
    endpoints: [{ addresses: ["10.1.0.1"], conditions: { ready: true } }],
    ports: [{ name: "", protocol: "TCP", port: 8080 }],
  };
}

/** The Node of this name. */
export function testNode(name: string): RawObject {
  return { apiVersion: "v1", kind: "Node", metadata: { name }, spec: {}, status: {} };
}
