/**
 * What is listed and watched at an API server, and with which selectors.
 *
 * @module
 */
import type { KubeKinds } from "../api/objects.ts";

/** One collection of objects. */
export interface KubeResource<K extends keyof KubeKinds = keyof KubeKinds> {
  readonly kind: K;
  /** Path of the collection, for all namespaces. */
  readonly path: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  /** Whether an answer of 400 means "ask without the field selector". */
  readonly fieldSelectorMayBeUnknown?: boolean;
  /** HTTP statuses that mean "go on without these objects". */
  readonly optionalOn: readonly number[];
}

/** Services that this proxy serves; the tracker leaves out headless ones once more. */
export const SERVICES: KubeResource<"Service"> = {
  kind: "Service",
  path: "/api/v1/services",
  labelSelector: "!service.kubernetes.io/service-proxy-name",
  fieldSelector: "spec.clusterIP!=None",
  // A field selector of Services since 1.31.
  fieldSelectorMayBeUnknown: true,
  optionalOn: [],
};

/** Endpoints of Services, in slices. */
export const ENDPOINT_SLICES: KubeResource<"EndpointSlice"> = {
  kind: "EndpointSlice",
  path: "/apis/discovery.k8s.io/v1/endpointslices",
  labelSelector: "!service.kubernetes.io/headless",
  optionalOn: [404],
};

/** Endpoints of Services where the server has no slices. */
export const ENDPOINTS: KubeResource<"Endpoints"> = {
  kind: "Endpoints",
  path: "/api/v1/endpoints",
  labelSelector: "!service.kubernetes.io/headless",
  optionalOn: [],
};

/** Ranges that cluster IPs are taken from; v1 since 1.33. */
export const SERVICE_CIDRS: KubeResource<"ServiceCIDR"> = {
  kind: "ServiceCIDR",
  path: "/apis/networking.k8s.io/v1/servicecidrs",
  optionalOn: [403, 404],
};

/** The one Node with this name, escaped as field selectors want it. */
export function nodeResource(nodeName: string): KubeResource<"Node"> {
  return {
    kind: "Node",
    path: "/api/v1/nodes",
    fieldSelector: `metadata.name=${nodeName.replace(/[\\,=]/g, "\\$&")}`,
    optionalOn: [403, 404],
  };
}
