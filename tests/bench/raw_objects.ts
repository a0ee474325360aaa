/**
 * Objects as large as those of a real API server: with managedFields, selectors and target references.
 *
 * @module
 */
import type { RawObject } from "../conformance/server.ts";

const MANAGER = { manager: "kube-controller-manager", operation: "Update", fieldsType: "FieldsV1" };

const SERVICE_FIELDS = {
  "f:metadata": { "f:labels": { ".": {}, "f:app.kubernetes.io/name": {} } },
  "f:spec": {
    "f:internalTrafficPolicy": {},
    "f:ports": { ".": {}, 'k:{"port":80,"protocol":"TCP"}': { ".": {}, "f:port": {} } },
    "f:selector": {},
    "f:sessionAffinity": {},
    "f:type": {},
  },
};

/** The n-th Service. */
export function rawService(index: number): RawObject {
  const clusterIP = `10.${96 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { ...metadata(index), ...managedFields(SERVICE_FIELDS) },
    spec: {
      clusterIP,
      clusterIPs: [clusterIP],
      internalTrafficPolicy: "Cluster",
      ipFamilies: ["IPv4"],
      ipFamilyPolicy: "SingleStack",
      ports: [{ name: "http", port: 80, protocol: "TCP", targetPort: "http" }],
      selector: { "app.kubernetes.io/name": `service-${index}` },
      sessionAffinity: "None",
      type: "ClusterIP",
    },
    status: { loadBalancer: {} },
  };
}

/** The EndpointSlice of the n-th Service, with this number of endpoints. */
export function rawEndpointSlice(index: number, endpoints: number): RawObject {
  const { name, namespace, labels } = metadata(index);
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name: `${name}-x7f2k`,
      namespace,
      labels: { ...labels, "kubernetes.io/service-name": name },
      annotations: { "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z" },
      ...managedFields({ "f:addressType": {}, "f:endpoints": {}, "f:ports": {} }),
    },
    addressType: "IPv4",
    endpoints: Array.from({ length: endpoints }, (_, nth) => ({
      addresses: [`10.${nth % 256}.${(index >> 8) & 255}.${index & 255}`],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: `node-${(index + nth) % 100}`,
      targetRef: {
        kind: "Pod",
        name: `${name}-5d4f8c7b9-${nth}`,
        namespace,
        uid: "6f5b1ef8-0000-4000-8000-000000000000",
      },
      zone: `zone-${nth % 3}`,
    })),
    ports: [{ name: "http", port: 8080, protocol: "TCP" }],
  };
}

function managedFields(fieldsV1: object): object {
  const time = "2026-01-01T00:00:00Z";
  return { managedFields: [{ ...MANAGER, apiVersion: "v1", time, fieldsV1 }] };
}

function metadata(index: number) {
  const name = `service-${index}`;
  const labels = { "app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "bench" };
  return { name, namespace: `namespace-${index % 50}`, labels };
}
