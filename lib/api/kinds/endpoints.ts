/**
 * core/v1 Endpoints, read only where a cluster or a folder has no EndpointSlices for a Service.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ManifestReport, type ObjectOf } from "../kind.ts";
import { HEADLESS_LABEL, SKIP_MIRROR_LABEL } from "../labels.ts";
import {
  at,
  dnsSubdomain,
  fields,
  ip,
  list,
  listAt,
  listOrEmpty,
  metadata,
  pointerAt,
  portName,
  portNumber,
  protocol,
  sharedText,
} from "../schema.ts";
import { checkPortNames, TRIGGER_TIME_ANNOTATION } from "./endpoint_slice.ts";

/** Says that the object holds the first 1,000 of more addresses. */
export const OVER_CAPACITY_ANNOTATION = "endpoints.kubernetes.io/over-capacity";

const addresses = list(
  fields({ ip: at(1, ip), nodeName: pointerAt(4, v.nullish(sharedText)) }, "hostname targetRef"),
);

const schema = fields({
  metadata: metadata(dnsSubdomain, {
    labels: [HEADLESS_LABEL, SKIP_MIRROR_LABEL],
    annotations: [OVER_CAPACITY_ANNOTATION, TRIGGER_TIME_ANNOTATION],
  }),
  subsets: at(
    2,
    listOrEmpty(fields({
      addresses: at(1, addresses),
      notReadyAddresses: at(2, addresses),
      ports: listAt(3, {
        name: at(1, v.nullish(portName)),
        protocol: at(3, v.nullish(protocol)),
        port: at(2, portNumber(1)),
      }, "appProtocol"),
    })),
  ),
}, "apiVersion kind");

/** Endpoints as a manifest has them. */
type EndpointsManifest = v.InferOutput<typeof schema>;

/** core/v1 Endpoints. */
export const ENDPOINTS = defineKind({
  kind: "Endpoints",
  group: "",
  versions: ["v1"],
  plural: "endpoints",
  namespaced: true,
  schema,
  complete: completeEndpoints,
});

/** Endpoints, as far as they are read. */
export type Endpoints = ObjectOf<typeof ENDPOINTS>;

/** An address of Endpoints. */
export type EndpointsAddress = NonNullable<Endpoints["subsets"][number]["addresses"]>[number];

/**
 * Completes a manifest: sets the defaults of an API server, and refuses what it would refuse beyond
 * single fields.
 */
function completeEndpoints(
  { metadata, subsets }: EndpointsManifest,
  report: ManifestReport,
): EndpointsManifest {
  return {
    metadata,
    subsets: (subsets ?? []).map(({ addresses, notReadyAddresses, ports }, index) => {
      checkPortNames(ports ?? [], ["subsets", index, "ports"], report);
      return {
        addresses: addresses ?? undefined,
        notReadyAddresses: notReadyAddresses ?? undefined,
        ports: (ports ?? []).map(({ protocol, ...port }) => ({
          ...port,
          protocol: protocol ?? "TCP",
        })),
      };
    }),
  };
}
