/**
 * core/v1 Endpoints, read only where a cluster or a folder has no EndpointSlices for a Service.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import { HEADLESS_LABEL, SKIP_MIRROR_LABEL } from "../labels.ts";
import {
  dnsSubdomain,
  fields,
  ip,
  list,
  listOrEmpty,
  metadata,
  portName,
  portNumber,
  protocol,
  sharedText,
} from "../schema.ts";
import { completeEndpoints } from "./complete_endpoints.ts";
import { TRIGGER_TIME_ANNOTATION } from "./endpoint_slice.ts";

/** Says that the object holds the first 1,000 of more addresses. */
export const OVER_CAPACITY_ANNOTATION = "endpoints.kubernetes.io/over-capacity";

const addresses = list(
  fields({ ip, nodeName: v.nullish(sharedText) }, { unread: "hostname targetRef" }),
);

const schema = fields({
  metadata: metadata(dnsSubdomain, {
    labels: [HEADLESS_LABEL, SKIP_MIRROR_LABEL],
    annotations: [OVER_CAPACITY_ANNOTATION, TRIGGER_TIME_ANNOTATION],
    extra: {},
  }),
  subsets: listOrEmpty(fields({
    addresses,
    notReadyAddresses: addresses,
    ports: list(fields({
      name: v.nullish(portName),
      protocol: v.nullish(protocol),
      port: portNumber(1),
    }, { unread: "appProtocol" })),
  })),
}, { unread: "apiVersion kind" });

/** Endpoints as a manifest has them. */
export type EndpointsManifest = v.InferOutput<typeof schema>;

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
