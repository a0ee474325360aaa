/**
 * Labels of the API that decide which objects are read.
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
