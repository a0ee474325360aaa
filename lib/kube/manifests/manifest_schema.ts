/**
 * The shapes of the objects in manifests, as far as they are read. What they let through, an API
 * server would let through too, with two differences: an endpoint may be a loopback address (a host
 * without a cluster serves its own processes), and limits of size are not checked.
 *
 * @module
 */
import * as v from "valibot";
import type { KubeKinds } from "../../api/objects.ts";
import { tryParseCidr } from "../../net/cidr.ts";
import { type IpAddress, isUnspecified, tryParseIpAddress } from "../../net/ip_address.ts";
import { PROTOCOLS } from "../../net/port.ts";

/** What is said of an address for which {@linkcode isServableAddress} is false. */
export const UNSERVABLE =
  "has to be an IPv4 or IPv6 address that is not unspecified, link-local or multicast";

const TEXT = "has to be text; numbers, true and false need quotes";
const text = v.string(TEXT);
const flag = v.boolean("has to be true or false");
const dnsLabel = v.pipe(
  text,
  v.regex(
    /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/,
    "has to be a DNS label: at most 63 small letters, digits and '-', with a letter or digit at both ends",
  ),
);
const dnsSubdomain = v.pipe(
  text,
  v.maxLength(253, "has to be a DNS name of at most 253 characters"),
  v.regex(
    /^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/,
    "has to be a DNS name: small letters, digits, '-' and '.', with a letter or digit at both ends",
  ),
);
const portName = v.union(
  [v.literal(""), dnsLabel],
  (issue) =>
    typeof issue.input === "string"
      ? "has to be a DNS label: at most 63 small letters, digits and '-', with a letter or digit at both ends"
      : TEXT,
);
const protocol = v.picklist(PROTOCOLS, `has to be ${PROTOCOLS.join(", ")}, in capitals`);

/** A port number; `least` 0 lets the API's way to say "none" through. */
function portNumber(least: 0 | 1): v.GenericSchema<number> {
  return v.custom<number>(
    (input) => Number.isInteger(input) && Number(input) >= least && Number(input) <= 65535,
    ({ input }) =>
      `has to be a whole number between 1 and 65535${
        typeof input === "string" ? ", without quotes" : ""
      }`,
  );
}

const ip = v.pipe(
  text,
  v.check(
    (input) => isServableAddress(tryParseIpAddress(input)),
    UNSERVABLE,
  ),
);
const clusterIp = v.pipe(
  text,
  v.check(
    (input) => input === "None" || isServableAddress(tryParseIpAddress(input)),
    "has to be None, or an IPv4 or IPv6 address that is not unspecified, link-local or multicast",
  ),
);
const cidr = v.pipe(
  text,
  v.check(
    (input) => tryParseCidr(input.trim()) !== undefined,
    "has to be an IP address, a slash and a prefix length, such as 10.0.0.0/8",
  ),
);

/** Whether traffic may be sent to an address or taken for it. 169.254.169.254 gives away a cloud machine's keys. */
export function isServableAddress(address: IpAddress | undefined): boolean {
  if (address === undefined || isUnspecified(address)) return false;
  if (address.includes(":")) return !/^(?:fe[89ab][0-9a-f]|ff[0-9a-f]{2}):/.test(address);
  return !address.startsWith("169.254.") && Number(address.slice(0, address.indexOf("."))) < 224;
}

const MAPPING = "has to be a mapping of fields";

/** Valibot takes a list for an object too. */
const mapping = v.custom<object>(
  (input) => typeof input === "object" && input !== null && !Array.isArray(input),
  MAPPING,
);

function fields<T extends v.ObjectEntries>(entries: T) {
  return v.pipe(mapping, v.object(entries, MAPPING));
}

const texts = v.nullish(v.pipe(mapping, v.record(v.string(), text)));

function list<T extends v.GenericSchema>(
  item: T,
): v.NullishSchema<v.ArraySchema<T, string>, undefined> {
  return v.nullish(v.array(item, "has to be a list"));
}

function metadata<T extends v.GenericSchema<string>>(name: T) {
  return fields({
    name,
    namespace: v.nullish(dnsLabel),
    uid: v.nullish(text),
    labels: texts,
    annotations: texts,
    creationTimestamp: v.nullish(text),
  });
}

const trafficPolicy = v.nullish(v.picklist(["Cluster", "Local"], "has to be Cluster or Local"));

const service = fields({
  metadata: metadata(dnsLabel),
  spec: fields({
    type: v.nullish(v.picklist(
      ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"],
      "has to be ClusterIP, NodePort, LoadBalancer or ExternalName",
    )),
    clusterIP: v.nullish(
      clusterIp,
    ),
    clusterIPs: list(clusterIp),
    ipFamilies: list(v.picklist(["IPv4", "IPv6"], "has to be IPv4 or IPv6")),
    ports: list(fields({
      name: v.nullish(portName),
      protocol: v.nullish(protocol),
      port: portNumber(1),
      nodePort: v.nullish(portNumber(0)),
    })),
    externalIPs: list(ip),
    externalTrafficPolicy: trafficPolicy,
    internalTrafficPolicy: trafficPolicy,
    healthCheckNodePort: v.nullish(portNumber(0)),
    loadBalancerSourceRanges: list(cidr),
    sessionAffinity: v.nullish(v.picklist(["None", "ClientIP"], "has to be None or ClientIP")),
    sessionAffinityConfig: v.nullish(fields({
      clientIP: v.nullish(fields({
        timeoutSeconds: v.nullish(v.custom<number>(
          (input) => Number.isInteger(input) && Number(input) >= 1 && Number(input) <= 86_400,
          "has to be a whole number of seconds between 1 and 86400 (one day)",
        )),
      })),
    })),
  }),
  status: v.nullish(fields({
    loadBalancer: v.nullish(fields({
      ingress: list(fields({
        ip: v.nullish(ip),
        ipMode: v.nullish(v.picklist(["VIP", "Proxy"], "has to be VIP or Proxy")),
      })),
    })),
  })),
});

const hint = list(fields({ name: text }));

const endpointSlice = fields({
  metadata: metadata(dnsSubdomain),
  addressType: v.picklist(["IPv4", "IPv6", "FQDN"], "has to be IPv4, IPv6 or FQDN"),
  endpoints: list(fields({
    addresses: v.pipe(
      v.array(text, "has to be a list"),
      v.minLength(1, "has to hold at least one address"),
    ),
    conditions: v.nullish(fields({
      ready: v.nullish(flag),
      serving: v.nullish(flag),
      terminating: v.nullish(flag),
    })),
    nodeName: v.nullish(text),
    // v1beta1 named the node here.
    topology: texts,
    hints: v.nullish(fields({ forZones: hint, forNodes: hint })),
  })),
  ports: list(fields({
    name: v.nullish(portName),
    protocol: v.nullish(protocol),
    port: v.nullish(portNumber(1)),
  })),
});

const endpointsAddresses = list(fields({ ip, nodeName: v.nullish(text) }));

const endpoints = fields({
  metadata: metadata(dnsSubdomain),
  subsets: list(fields({
    addresses: endpointsAddresses,
    notReadyAddresses: endpointsAddresses,
    ports: list(fields({
      name: v.nullish(portName),
      protocol: v.nullish(protocol),
      port: portNumber(1),
    })),
  })),
});

const node = fields({
  metadata: metadata(dnsSubdomain),
  spec: v.nullish(fields({
    podCIDR: v.nullish(
      v.union([v.literal(""), cidr], "has to be a CIDR block such as 10.0.0.0/24"),
    ),
    podCIDRs: list(cidr),
    taints: list(fields({ key: text, effect: v.nullish(text) })),
  })),
  status: v.nullish(fields({
    addresses: list(fields({ type: text, address: text })),
  })),
});

const serviceCidr = fields({
  metadata: metadata(dnsSubdomain),
  spec: v.nullish(fields({ cidrs: list(cidr) })),
});

/** The schema of each kind. */
const MANIFEST_SCHEMAS = {
  Service: service,
  EndpointSlice: endpointSlice,
  Endpoints: endpoints,
  Node: node,
  ServiceCIDR: serviceCidr,
} satisfies Record<keyof KubeKinds, v.GenericSchema>;

/** What a manifest of each kind holds once its shape has been checked; fields that nothing reads are gone. */
export type CheckedManifest<K extends keyof KubeKinds> = v.InferOutput<
  (typeof MANIFEST_SCHEMAS)[K]
>;

/** One reason why a value does not fit its schema. */
interface ShapeIssue {
  readonly path: readonly (string | number)[];
  readonly value: unknown;
  readonly message: string;
}

/** Checks the shape of a manifest. */
export function checkShape<K extends keyof KubeKinds>(
  kind: K,
  value: unknown,
): { readonly checked: CheckedManifest<K> } | { readonly issues: readonly ShapeIssue[] } {
  const result = v.safeParse(MANIFEST_SCHEMAS[kind], value, { abortPipeEarly: true });
  if (result.success) return { checked: result.output as CheckedManifest<K> };
  return { issues: result.issues.map(toIssue) };
}

function toIssue(issue: v.BaseIssue<unknown>): ShapeIssue {
  const path = (issue.path ?? []).map(({ key }) => key as string | number);
  const isMissing = issue.path?.at(-1)?.origin === "key" && issue.input === undefined;
  return { path, value: issue.input, message: isMissing ? "is missing" : issue.message };
}
