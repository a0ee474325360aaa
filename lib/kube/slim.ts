/**
 * Raw objects of the API → the few fields that kube-relay reads (`lib/api/objects.ts`). Done as each object
 * arrives: 10,000 raw Services with their `managedFields` would take ten times the memory.
 *
 * @module
 */
import type {
  Endpoints,
  EndpointsAddress,
  EndpointSlice,
  KubeKinds,
  Node,
  Service,
  ServiceCidr,
  ServiceSpecPort,
  SliceEndpoint,
  SlicePort,
} from "../api/objects.ts";
import type { ObjectProblem } from "../proxy/problem.ts";
import {
  optionalBoolean,
  optionalList,
  optionalNumber,
  optionalObject,
  optionalString,
  present,
  type RawFields,
  requiredNumber,
  requiredObject,
  requiredString,
  ShapeError,
  toFields,
  toText,
} from "./raw_fields.ts";
import { repeated, slimMetadata, slimMetadataWithUid } from "./slim_metadata.ts";
import type { StringTable } from "./string_table.ts";

/** What {@linkcode slimObject} needs besides the object. */
interface SlimOptions {
  /** Strings that come again and again are kept once. */
  readonly strings: StringTable;
  /** Told of an object that cannot be read. */
  readonly onProblem: (problem: ObjectProblem) => void;
}

/** Most characters of a value that are shown in a problem. */
const LONGEST_VALUE = 80;

/**
 * Keeps what is read of one raw object. One whose fields have the wrong shape gives `undefined` and a
 * problem; an API server sends no such object, a webhook or proxy in between might.
 */
export function slimObject<K extends keyof KubeKinds>(
  kind: K,
  raw: unknown,
  options: SlimOptions,
): KubeKinds[K] | undefined {
  try {
    const slim: {
      [Kind in keyof KubeKinds]: (raw: RawFields, strings: StringTable) => KubeKinds[Kind];
    } = SLIMMERS;
    return slim[kind](toFields(raw), options.strings);
  } catch (error) {
    if (!(error instanceof ShapeError)) throw error;
    options.onProblem(toProblem(kind, raw, error));
    return undefined;
  }
}

const SLIMMERS = {
  Service: slimService,
  EndpointSlice: slimEndpointSlice,
  Endpoints: slimEndpoints,
  Node: slimNode,
  ServiceCIDR: slimServiceCidr,
};

function slimService(raw: RawFields, strings: StringTable): Service {
  const metadata = slimMetadata(raw, strings);
  const spec = requiredObject(raw, "spec", (spec) => slimServiceSpec(spec, strings));
  // The only events about Services are those of health check node ports.
  const isReported = spec.healthCheckNodePort !== undefined && spec.healthCheckNodePort !== 0;
  return present({
    metadata: isReported ? slimMetadataWithUid(raw, strings) : metadata,
    spec,
    status: optionalObject(raw, "status", slimServiceStatus),
  });
}

function slimServiceSpec(spec: RawFields, strings: StringTable): Service["spec"] {
  const word = (name: string) => repeated(spec, { name, strings });
  const texts = (name: string) => optionalList(spec, name, toText);
  return present({
    type: word("type"),
    clusterIP: optionalString(spec, "clusterIP"),
    clusterIPs: texts("clusterIPs"),
    ipFamilies: optionalList(spec, "ipFamilies", (entry) => strings.intern(toText(entry))),
    ports: optionalList(spec, "ports", (entry) => slimServicePort(toFields(entry), strings)),
    externalIPs: texts("externalIPs"),
    externalTrafficPolicy: word("externalTrafficPolicy"),
    internalTrafficPolicy: word("internalTrafficPolicy"),
    healthCheckNodePort: optionalNumber(spec, "healthCheckNodePort"),
    loadBalancerSourceRanges: texts("loadBalancerSourceRanges"),
    sessionAffinity: word("sessionAffinity"),
    sessionAffinityConfig: optionalObject(spec, "sessionAffinityConfig", (config) =>
      present({
        clientIP: optionalObject(config, "clientIP", (clientIp) =>
          present({
            timeoutSeconds: optionalNumber(clientIp, "timeoutSeconds"),
          })),
      })),
  });
}

function slimServicePort(raw: RawFields, strings: StringTable): ServiceSpecPort {
  return present({
    name: repeated(raw, { name: "name", strings }),
    protocol: repeated(raw, { name: "protocol", strings }),
    port: requiredNumber(raw, "port"),
    nodePort: optionalNumber(raw, "nodePort"),
  });
}

function slimServiceStatus(status: RawFields): Service["status"] {
  const loadBalancer = optionalObject(
    status,
    "loadBalancer",
    (fields) =>
      optionalList(fields, "ingress", (entry) => {
        const ingress = toFields(entry);
        return present({
          ip: optionalString(ingress, "ip"),
          ipMode: optionalString(ingress, "ipMode"),
        });
      }),
  );
  // Most Services have none: two empty objects for each of them would add up.
  return loadBalancer && { loadBalancer: { ingress: loadBalancer } };
}

function slimEndpointSlice(raw: RawFields, strings: StringTable): EndpointSlice {
  return {
    metadata: slimMetadata(raw, strings),
    addressType: strings.intern(requiredString(raw, "addressType")),
    endpoints: optionalList(raw, "endpoints", (entry) => slimEndpoint(toFields(entry), strings)) ??
      [],
    ports: optionalList(raw, "ports", (entry) => slimSlicePort(toFields(entry), strings)) ?? [],
  };
}

function slimEndpoint(raw: RawFields, strings: StringTable): SliceEndpoint {
  // `targetRef` is left out: nothing reads it, and its uid alone would double an endpoint.
  return present({
    addresses: optionalList(raw, "addresses", toText) ?? [],
    conditions: optionalObject(raw, "conditions", (conditions) =>
      sharedConditions({
        ready: optionalBoolean(conditions, "ready"),
        serving: optionalBoolean(conditions, "serving"),
        terminating: optionalBoolean(conditions, "terminating"),
      })),
    nodeName: repeated(raw, { name: "nodeName", strings }),
    hints: optionalObject(raw, "hints", (hints) => {
      const names = (entry: unknown) => ({
        name: strings.intern(requiredString(toFields(entry), "name")),
      });
      return present({
        forZones: optionalList(hints, "forZones", names),
        forNodes: optionalList(hints, "forNodes", names),
      });
    }),
  });
}

function slimSlicePort(raw: RawFields, strings: StringTable): SlicePort {
  return present({
    name: repeated(raw, { name: "name", strings }),
    protocol: repeated(raw, { name: "protocol", strings }),
    port: optionalNumber(raw, "port"),
  });
}

function slimEndpoints(raw: RawFields, strings: StringTable): Endpoints {
  const addresses = (subset: RawFields, name: string) =>
    optionalList(subset, name, (entry): EndpointsAddress => {
      const address = toFields(entry);
      return present({
        ip: requiredString(address, "ip"),
        nodeName: repeated(address, { name: "nodeName", strings }),
      });
    });
  return {
    metadata: slimMetadata(raw, strings),
    subsets: optionalList(raw, "subsets", (entry) => {
      const subset = toFields(entry);
      return present({
        addresses: addresses(subset, "addresses"),
        notReadyAddresses: addresses(subset, "notReadyAddresses"),
        ports: optionalList(subset, "ports", (port) => slimServicePort(toFields(port), strings)),
      });
    }) ?? [],
  };
}

function slimNode(raw: RawFields, strings: StringTable): Node {
  return {
    metadata: slimMetadataWithUid(raw, strings),
    spec: optionalObject(raw, "spec", (spec) =>
      present({
        podCIDR: optionalString(spec, "podCIDR"),
        podCIDRs: optionalList(spec, "podCIDRs", toText),
        taints: optionalList(spec, "taints", (entry) => {
          const taint = toFields(entry);
          return present({
            key: requiredString(taint, "key"),
            effect: optionalString(taint, "effect"),
          });
        }),
      })) ?? {},
    status: optionalObject(raw, "status", (status) =>
      present({
        addresses: optionalList(status, "addresses", (entry) => {
          const address = toFields(entry);
          return {
            type: requiredString(address, "type"),
            address: requiredString(address, "address"),
          };
        }),
      })) ?? {},
  };
}

function slimServiceCidr(raw: RawFields, strings: StringTable): ServiceCidr {
  return {
    metadata: slimMetadata(raw, strings),
    spec: optionalObject(
      raw,
      "spec",
      (spec) => present({ cidrs: optionalList(spec, "cidrs", toText) }),
    ) ?? {},
  };
}

function toProblem(kind: string, raw: unknown, error: ShapeError): ObjectProblem {
  const { metadata } = (raw ?? {}) as { metadata?: { name?: unknown; namespace?: unknown } };
  const names = [metadata?.namespace, metadata?.name].filter((part) => typeof part === "string");
  return {
    kind,
    object: names.join("/") || "(no name)",
    path: error.path,
    value: (JSON.stringify(error.value) ?? "undefined").slice(0, LONGEST_VALUE),
    message: `The object is left out: the field has to be ${error.wanted}`,
  };
}

type Conditions = NonNullable<SliceEndpoint["conditions"]>;

const VALUES = [undefined, false, true] as const;

const COMBINATIONS: readonly Conditions[] = VALUES.flatMap((ready) =>
  VALUES.flatMap((serving) =>
    VALUES.map((terminating) =>
      Object.freeze({
        ...(ready !== undefined && { ready }),
        ...(serving !== undefined && { serving }),
        ...(terminating !== undefined && { terminating }),
      })
    )
  )
);

/** The one frozen object that says this. */
export function sharedConditions(
  { ready, serving, terminating }: { [K in keyof Conditions]: boolean | undefined },
): Conditions {
  return COMBINATIONS[(indexOf(ready) * 3 + indexOf(serving)) * 3 + indexOf(terminating)]!;
}

function indexOf(value: boolean | undefined): number {
  return value === undefined ? 0 : value ? 2 : 1;
}
