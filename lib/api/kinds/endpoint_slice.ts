/**
 * discovery/v1 EndpointSlice.
 *
 * @module
 */
import * as v from "valibot";
import { ipFamilyOf, tryParseIpAddress } from "../../net/ip_address.ts";
import {
  defineKind,
  type ManifestFieldProblem,
  type ManifestReport,
  type ObjectOf,
} from "../kind.ts";
import { HEADLESS_LABEL, SERVICE_NAME_LABEL } from "../labels.ts";
import {
  at,
  dnsSubdomain,
  fields,
  flag,
  isServableAddress,
  list,
  listOrEmpty,
  metadata,
  namedTexts,
  objectAt,
  oneOf,
  pointerAt,
  portName,
  portNumber,
  protocol,
  sharedText,
  text,
  UNSERVABLE,
} from "../schema.ts";

/** The time at which the EndpointSlice controller saw the change that it wrote, as RFC 3339. */
export const TRIGGER_TIME_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";

/** The label with which v1beta1 names the node of an endpoint. */
const HOSTNAME_TOPOLOGY = "kubernetes.io/hostname";

const names = list(fields({ name: at(1, sharedText) }));

const schema = fields({
  metadata: metadata(dnsSubdomain, {
    labels: [SERVICE_NAME_LABEL, HEADLESS_LABEL],
    annotations: [TRIGGER_TIME_ANNOTATION],
  }),
  addressType: at(4, oneOf("IPv4", "IPv6", "FQDN")),
  endpoints: at(
    2,
    listOrEmpty(fields({
      addresses: at(
        1,
        v.pipe(
          v.array(text, "has to be a list"),
          v.minLength(1, "has to hold at least one address"),
        ),
      ),
      conditions: objectAt(2, {
        ready: pointerAt(1, v.nullish(flag)),
        serving: pointerAt(2, v.nullish(flag)),
        terminating: pointerAt(3, v.nullish(flag)),
      }),
      nodeName: pointerAt(6, v.nullish(sharedText)),
      // Only of v1beta1, and so only in manifests.
      topology: namedTexts([HOSTNAME_TOPOLOGY]),
      hints: objectAt(8, { forZones: at(1, names), forNodes: at(2, names) }),
      // The uid of a targetRef alone would double an endpoint.
    }, "hostname targetRef deprecatedTopology zone")),
  ),
  ports: at(
    3,
    listOrEmpty(fields({
      name: pointerAt(1, v.nullish(portName)),
      protocol: pointerAt(2, v.nullish(protocol)),
      port: pointerAt(3, v.nullish(portNumber(1))),
    }, "appProtocol")),
  ),
}, "apiVersion kind");

/** An EndpointSlice as a manifest has it. */
type EndpointSliceManifest = v.InferOutput<typeof schema>;

/** discovery/v1 EndpointSlice; v1beta1 in manifests. */
export const ENDPOINT_SLICE = defineKind({
  kind: "EndpointSlice",
  group: "discovery.k8s.io",
  versions: ["v1", "v1beta1"],
  plural: "endpointslices",
  namespaced: true,
  schema,
  complete: completeEndpointSlice,
});

/** An EndpointSlice, as far as it is read. */
export type EndpointSlice = ObjectOf<typeof ENDPOINT_SLICE>;

/** An endpoint of a slice. */
export type SliceEndpoint = EndpointSlice["endpoints"][number];

/** A port of a slice. */
export type SlicePort = EndpointSlice["ports"][number];

/**
 * Completes a manifest: sets the defaults of an API server, and refuses what it would refuse beyond
 * single fields.
 */
function completeEndpointSlice(
  slice: EndpointSliceManifest,
  report: ManifestReport,
): EndpointSliceManifest {
  const { metadata, addressType } = slice;
  if (!metadata.labels?.[SERVICE_NAME_LABEL]) {
    const message = "is missing: it names the Service; without it the slice belongs to none";
    report.warn({ path: ["metadata", "labels", SERVICE_NAME_LABEL], message });
  }
  checkAddresses(slice, report);
  checkPortNames(slice.ports ?? [], ["ports"], report);
  return {
    metadata,
    addressType,
    endpoints: (slice.endpoints ?? []).map(({ topology, nodeName, ...endpoint }) => ({
      ...endpoint,
      nodeName: nodeName ?? topology?.[HOSTNAME_TOPOLOGY],
    })),
    ports: (slice.ports ?? []).map(({ name, protocol, port }) => ({
      name: name ?? "",
      protocol: protocol ?? "TCP",
      port,
    })),
  };
}

function checkAddresses(
  { addressType, endpoints }: EndpointSliceManifest,
  report: ManifestReport,
): void {
  if (addressType === "FQDN") return;
  for (const [index, { addresses }] of (endpoints ?? []).entries()) {
    for (const [at, text] of addresses.entries()) {
      const address = tryParseIpAddress(text);
      const path = ["endpoints", index, "addresses", at];
      if (!isServableAddress(address)) {
        report.error({ path, value: text, message: UNSERVABLE });
      } else if (address !== undefined && ipFamilyOf(address) !== addressType) {
        const message = `has to be of the family ${addressType}, which addressType gives`;
        report.error({ path, value: text, message });
      }
    }
  }
}

/** Refuses a name that two ports have. */
export function checkPortNames(
  ports: readonly { readonly name?: string | null | undefined }[],
  path: ManifestFieldProblem["path"],
  report: ManifestReport,
): void {
  const seen = new Set<string>();
  for (const [index, { name }] of ports.entries()) {
    if (seen.has(name ?? "")) {
      const message = "is the name of an earlier port too: each port needs its own";
      report.error({ path: [...path, index, "name"], value: name ?? "", message });
    }
    seen.add(name ?? "");
  }
}
