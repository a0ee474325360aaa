/**
 * Which objects of manifests are seen: those that the selectors of `resources.ts` let through at an API server.
 *
 * @module
 */
import type { ManifestObject } from "./manifest_object.ts";

const HEADLESS_LABEL = "service.kubernetes.io/headless";
const PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name";

/** Whether kube-relay on the node of this name reads the object. */
export function isSelected({ kind, object }: ManifestObject, nodeName: string): boolean {
  const labels = object.metadata.labels ?? {};
  switch (kind) {
    case "Service":
      return !(PROXY_NAME_LABEL in labels) && object.spec.clusterIP !== "None";
    case "EndpointSlice":
    case "Endpoints":
      return !(HEADLESS_LABEL in labels);
    case "Node":
      return object.metadata.name === nodeName;
    case "ServiceCIDR":
      return true;
  }
}
