/**
 * The label that ties an EndpointSlice to its Service.
 *
 * @module
 */

/** Names the Service, in the slice's own namespace; a slice without it belongs to none. */
export const SERVICE_NAME_LABEL = "kubernetes.io/service-name";
