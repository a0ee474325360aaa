/**
 * The fields that kube-relay reads of Kubernetes objects, as structural types. Everything else is
 * dropped when an object arrives (`slimObject()` of `lib/kube/slim.ts`), so that 10,000 Services fit into a few MB.
 *
 * @module
 */

/** Metadata of an object, as far as it is read. */
export interface ObjectMeta {
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly deletionTimestamp?: string;
  readonly creationTimestamp?: string;
}

/** What all objects have. */
export interface KubeObject {
  readonly metadata: ObjectMeta;
}

/** A port of a Service (core/v1 ServicePort). */
export interface ServiceSpecPort {
  readonly name?: string;
  readonly protocol?: string;
  readonly port: number;
  readonly nodePort?: number;
}

/** core/v1 Service. */
export interface Service extends KubeObject {
  readonly spec: {
    readonly type?: string;
    readonly clusterIP?: string;
    readonly clusterIPs?: readonly string[];
    readonly ipFamilies?: readonly string[];
    readonly ports?: readonly ServiceSpecPort[];
    readonly externalIPs?: readonly string[];
    readonly externalTrafficPolicy?: string;
    readonly internalTrafficPolicy?: string;
    readonly healthCheckNodePort?: number;
    readonly loadBalancerSourceRanges?: readonly string[];
    readonly sessionAffinity?: string;
    readonly sessionAffinityConfig?: { readonly clientIP?: { readonly timeoutSeconds?: number } };
  };
  readonly status?: {
    readonly loadBalancer?: {
      readonly ingress?: readonly { readonly ip?: string; readonly ipMode?: string }[];
    };
  };
}

/** An endpoint of a slice (discovery/v1 Endpoint). */
export interface SliceEndpoint {
  readonly addresses: readonly string[];
  readonly conditions?: {
    readonly ready?: boolean;
    readonly serving?: boolean;
    readonly terminating?: boolean;
  };
  readonly nodeName?: string;
  readonly targetRefUid?: string;
  readonly hints?: {
    readonly forZones?: readonly { readonly name: string }[];
    readonly forNodes?: readonly { readonly name: string }[];
  };
}

/** A port of a slice (discovery/v1 EndpointPort). */
export interface SlicePort {
  readonly name?: string | null;
  readonly protocol?: string | null;
  readonly port?: number | null;
}

/** discovery/v1 EndpointSlice. */
export interface EndpointSlice extends KubeObject {
  readonly addressType: string;
  readonly endpoints: readonly SliceEndpoint[];
  readonly ports: readonly SlicePort[];
}

/** An address of an Endpoints object. */
export interface EndpointsAddress {
  readonly ip: string;
  readonly nodeName?: string;
}

/** core/v1 Endpoints, read only where a cluster or a folder has no EndpointSlices for a Service. */
export interface Endpoints extends KubeObject {
  readonly subsets: readonly {
    readonly addresses?: readonly EndpointsAddress[];
    readonly notReadyAddresses?: readonly EndpointsAddress[];
    readonly ports?: readonly {
      readonly name?: string;
      readonly protocol?: string;
      readonly port: number;
    }[];
  }[];
}

/** core/v1 Node. */
export interface Node extends KubeObject {
  readonly spec: {
    readonly podCIDR?: string;
    readonly podCIDRs?: readonly string[];
    readonly taints?: readonly { readonly key: string; readonly effect?: string }[];
  };
  readonly status: {
    readonly addresses?: readonly { readonly type: string; readonly address: string }[];
  };
}

/** networking/v1 ServiceCIDR. */
export interface ServiceCidr extends KubeObject {
  readonly spec: { readonly cidrs?: readonly string[] };
}

/** The kinds that kube-relay reads, by kind name. */
export interface KubeKinds {
  Service: Service;
  EndpointSlice: EndpointSlice;
  Endpoints: Endpoints;
  Node: Node;
  ServiceCIDR: ServiceCidr;
}

/** `namespace/name`, or the name alone for objects of the cluster. */
export function objectKey(object: KubeObject): string {
  const { namespace, name } = object.metadata;
  return namespace === undefined ? name : `${namespace}/${name}`;
}
