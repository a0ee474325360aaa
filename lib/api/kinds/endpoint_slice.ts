/**
 * discovery/v1 EndpointSlice.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import { HEADLESS_LABEL, SERVICE_NAME_LABEL } from "../labels.ts";
import {
  at,
  dnsSubdomain,
  fields,
  flag,
  list,
  listOrEmpty,
  metadata,
  namedTexts,
  pointerAt,
  portName,
  portNumber,
  protocol,
  sharedText,
  text,
} from "../schema.ts";
import { completeEndpointSlice, HOSTNAME_TOPOLOGY } from "./complete_endpoints.ts";

/** The time at which the EndpointSlice controller saw the change that it wrote, as RFC 3339. */
export const TRIGGER_TIME_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";

const names = list(fields({ name: at(1, sharedText) }));

const schema = fields({
  metadata: at(
    1,
    metadata(dnsSubdomain, {
      labels: [SERVICE_NAME_LABEL, HEADLESS_LABEL],
      annotations: [TRIGGER_TIME_ANNOTATION],
      extra: {},
    }),
  ),
  addressType: at(4, v.picklist(["IPv4", "IPv6", "FQDN"], "has to be IPv4, IPv6 or FQDN")),
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
      conditions: at(
        2,
        v.nullish(fields({
          ready: pointerAt(1, v.nullish(flag)),
          serving: pointerAt(2, v.nullish(flag)),
          terminating: pointerAt(3, v.nullish(flag)),
        })),
      ),
      nodeName: pointerAt(6, v.nullish(sharedText)),
      // Only of v1beta1, and so only in manifests.
      topology: namedTexts([HOSTNAME_TOPOLOGY]),
      hints: at(8, v.nullish(fields({ forZones: at(1, names), forNodes: at(2, names) }))),
      // The uid of a targetRef alone would double an endpoint.
    }, { unread: "hostname targetRef deprecatedTopology zone" })),
  ),
  ports: at(
    3,
    listOrEmpty(fields({
      name: pointerAt(1, v.nullish(portName)),
      protocol: pointerAt(2, v.nullish(protocol)),
      port: pointerAt(3, v.nullish(portNumber(1))),
    }, { unread: "appProtocol" })),
  ),
}, { unread: "apiVersion kind" });

/** An EndpointSlice as a manifest has it. */
export type EndpointSliceManifest = v.InferOutput<typeof schema>;

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
