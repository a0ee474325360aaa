/**
 * Labels and taints of the API that decide which objects are read, and how Nodes are used.
 *
 * @module
 */

/** Names the Service that an EndpointSlice belongs to. */
export const SERVICE_NAME_LABEL = "kubernetes.io/service-name";

/** Marks Services without a cluster IP, and their endpoints: no proxy serves them. */
export const HEADLESS_LABEL = "service.kubernetes.io/headless";

/** Names the other proxy that serves a Service. */
export const SERVICE_PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name";

/** Keeps Endpoints from being mirrored to EndpointSlices. */
export const SKIP_MIRROR_LABEL = "endpointslice.kubernetes.io/skip-mirror";

/** The zone of a Node. */
export const ZONE_LABEL = "topology.kubernetes.io/zone";

/** Every Namespace has it; its value is the name of the Namespace. */
export const NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name";

/** Keeps load balancers from sending traffic to a Node. */
export const EXCLUDE_FROM_LOAD_BALANCERS_LABEL =
  "node.kubernetes.io/exclude-from-external-load-balancers";

/** The cluster autoscaler adds this taint to a Node before it deletes the Node (KEP-3836). */
export const TO_BE_DELETED_TAINT = "ToBeDeletedByClusterAutoscaler";

/** An administrator adds this taint to a Node that is known to be down. */
export const OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service";
