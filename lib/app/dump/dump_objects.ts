/**
 * The fields of Kubernetes objects that a dump has: those of `lib/api/objects.ts`, and of labels and
 * annotations only those that decisions depend on.
 *
 * @module
 */
import * as v from "valibot";
import type { Endpoints, EndpointSlice, Node, Service, ServiceCidr } from "../../api/objects.ts";
import { READ_LABELS } from "../../kube/slim_metadata.ts";
import { MODE_ANNOTATIONS } from "../../proxy/mode_annotations.ts";
import {
  fields,
  flag,
  list,
  number,
  objectName,
  optional,
  plainText,
  portName,
} from "./dump_value.ts";

/** Of the annotations that are read, `k3s.io/node-args` is not here: it is a whole command line. */
const ANNOTATIONS = [
  "endpoints.kubernetes.io/last-change-trigger-time",
  "endpoints.kubernetes.io/over-capacity",
  ...MODE_ANNOTATIONS,
] as const;

const texts = list(plainText);

const metadata = fields({
  name: objectName,
  namespace: optional(objectName),
  uid: optional(plainText),
  resourceVersion: optional(plainText),
  labels: optional(named(READ_LABELS)),
  annotations: optional(named(ANNOTATIONS)),
  deletionTimestamp: optional(plainText),
  creationTimestamp: optional(plainText),
});

const servicePort = fields({
  name: optional(portName),
  protocol: optional(plainText),
  port: number,
  nodePort: optional(number),
});

/** core/v1 Service. */
export const SERVICE: v.GenericSchema<unknown, Service> = fields({
  metadata,
  spec: fields({
    type: optional(plainText),
    clusterIP: optional(plainText),
    clusterIPs: optional(texts),
    ipFamilies: optional(texts),
    ports: optional(list(servicePort)),
    externalIPs: optional(texts),
    externalTrafficPolicy: optional(plainText),
    internalTrafficPolicy: optional(plainText),
    healthCheckNodePort: optional(number),
    loadBalancerSourceRanges: optional(texts),
    sessionAffinity: optional(plainText),
    sessionAffinityConfig: optional(fields({
      clientIP: optional(fields({ timeoutSeconds: optional(number) })),
    })),
  }),
  status: optional(fields({
    loadBalancer: optional(fields({
      ingress: optional(
        list(fields({ ip: optional(plainText), ipMode: optional(plainText) })),
      ),
    })),
  })),
});

const hints = optional(list(fields({ name: plainText })));

/** discovery/v1 EndpointSlice. */
export const ENDPOINT_SLICE: v.GenericSchema<unknown, EndpointSlice> = fields({
  metadata,
  addressType: plainText,
  endpoints: list(fields({
    addresses: texts,
    conditions: optional(fields({
      ready: optional(flag),
      serving: optional(flag),
      terminating: optional(flag),
    })),
    nodeName: optional(plainText),
    hints: optional(fields({ forZones: hints, forNodes: hints })),
  })),
  ports: list(fields({
    name: optional(v.nullable(portName)),
    protocol: optional(v.nullable(plainText)),
    port: optional(v.nullable(number)),
  })),
});

const endpointsAddresses = optional(
  list(fields({ ip: plainText, nodeName: optional(plainText) })),
);

/** core/v1 Endpoints. */
export const ENDPOINTS: v.GenericSchema<unknown, Endpoints> = fields({
  metadata,
  subsets: list(fields({
    addresses: endpointsAddresses,
    notReadyAddresses: endpointsAddresses,
    ports: optional(
      list(fields({ name: optional(portName), protocol: optional(plainText), port: number })),
    ),
  })),
});

/** core/v1 Node. */
export const NODE: v.GenericSchema<unknown, Node> = fields({
  metadata,
  spec: fields({
    podCIDR: optional(plainText),
    podCIDRs: optional(texts),
    taints: optional(list(fields({ key: plainText, effect: optional(plainText) }))),
  }),
  status: fields({
    addresses: optional(list(fields({ type: plainText, address: plainText }))),
  }),
});

/** networking/v1 ServiceCIDR. */
export const SERVICE_CIDR: v.GenericSchema<unknown, ServiceCidr> = fields({
  metadata,
  spec: fields({ cidrs: optional(texts) }),
});

function named(names: readonly string[]): v.GenericSchema<unknown, Record<string, string>> {
  const schema = fields(Object.fromEntries(names.map((name) => [name, optional(plainText)])));
  // An optional field is absent, and never `undefined`.
  return schema as unknown as v.GenericSchema<unknown, Record<string, string>>;
}
