import type { KubeObject } from "../api/kind.ts";
import type { Protocol } from "../net/port.ts";

/** Namespace and name of an object. */
export interface NamespacedName {
  readonly namespace: string;
  readonly name: string;
}

/** `namespace/name` of a Service, as a `Map` key. */
export type ServiceKey = string & { readonly __brand: "ServiceKey" };

/**
 * The tuple that identifies a port of a Service. Endpoints are matched by port *name* and protocol;
 * the port number does not matter (upstream's `ServicePortName`).
 */
export interface ServicePortName extends NamespacedName {
  /** Name of the port; the empty string for the only, unnamed port of a Service. */
  readonly port: string;
  readonly protocol: Protocol;
}

/**
 * `namespace/name:port/PROTOCOL`, as a `Map` key. Unlike upstream's text form it contains the
 * protocol, since a Service may have TCP and UDP on one port name.
 */
export type ServicePortKey = string & { readonly __brand: "ServicePortKey" };

/** Namespace and name of an object; an absent namespace means `default`, as for kubectl. */
export function namespacedNameOf({ metadata }: KubeObject): NamespacedName {
  return { namespace: metadata.namespace ?? "default", name: metadata.name };
}

/** The key of a Service. */
export function serviceKey(name: NamespacedName): ServiceKey {
  return `${name.namespace}/${name.name}` as ServiceKey;
}

/** The key of a port of a Service. */
export function servicePortKey(name: ServicePortName): ServicePortKey {
  return `${servicePortText(name)}/${name.protocol}` as ServicePortKey;
}

/** The Service of a port. */
export function serviceKeyOfPort(key: ServicePortKey): ServiceKey {
  return key.slice(0, key.lastIndexOf("/")).replace(/:.*/, "") as ServiceKey;
}

/** The usual text form, `namespace/name:port` or `namespace/name`, without the protocol. */
export function servicePortText(name: ServicePortName): string {
  return name.port === ""
    ? `${name.namespace}/${name.name}`
    : `${name.namespace}/${name.name}:${name.port}`;
}
