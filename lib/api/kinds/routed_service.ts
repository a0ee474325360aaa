/**
 * core/v1 Service with the fields that assign and announce addresses. Only runs with routing follow
 * this kind, so that the Services of other runs do not grow.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import { ADVERTISE_ANNOTATIONS, LOCAL_ANNOTATION } from "../kube_router_annotations.ts";
import { EDGE_ANNOTATIONS } from "../service_annotations.ts";
import {
  at,
  dnsLabel,
  fields,
  list,
  listAt,
  metadata,
  namedTexts,
  objectAt,
  pointerAt,
  portNumber,
  protocol,
  sharedText,
  text,
  UID,
} from "../schema.ts";

/** Requested addresses, separated by commas. */
export const ADDRESSES_ANNOTATION = "kube-relay.io/load-balancer-ips";

/** The pool of the addresses. */
export const POOL_ANNOTATION = "kube-relay.io/load-balancer-pool";

/** Services of a namespace with the same key and different ports may share an address. */
export const SHARING_KEY_ANNOTATION = "kube-relay.io/load-balancer-sharing-key";

/** Every annotation of a Service that routing reads. */
export const ROUTING_ANNOTATIONS: readonly string[] = [
  ADDRESSES_ANNOTATION,
  POOL_ANNOTATION,
  SHARING_KEY_ANNOTATION,
  LOCAL_ANNOTATION,
  EDGE_ANNOTATIONS.sni.name,
  ...Object.values(ADVERTISE_ANNOTATIONS),
];

/** core/v1 Service, for routing. */
export const ROUTED_SERVICE = defineKind({
  kind: "Service",
  group: "",
  versions: ["v1"],
  plural: "services",
  namespaced: true,
  schema: fields({
    metadata: metadata(dnsLabel, { labels: "all", annotations: ROUTING_ANNOTATIONS }, UID),
    spec: at(
      2,
      fields({
        type: at(4, v.nullish(sharedText)),
        loadBalancerClass: pointerAt(21, v.nullish(sharedText)),
        loadBalancerIP: at(8, v.nullish(text)),
        ipFamilies: at(19, list(sharedText)),
        ipFamilyPolicy: pointerAt(17, v.nullish(sharedText)),
        externalTrafficPolicy: at(11, v.nullish(sharedText)),
        selector: at(2, namedTexts("all")),
        ports: listAt(1, { protocol: at(2, v.nullish(protocol)), port: at(3, portNumber(1)) }, "*"),
      }, "*"),
    ),
    status: objectAt(3, {
      loadBalancer: objectAt(1, {
        ingress: listAt(1, {
          ip: at(1, v.nullish(text)),
          hostname: at(2, v.nullish(text)),
          ipMode: pointerAt(3, v.nullish(sharedText)),
        }, "*"),
      }, "*"),
    }, "*"),
  }, "apiVersion kind"),
});

/** A Service, as far as routing reads it. */
export type RoutedService = ObjectOf<typeof ROUTED_SERVICE>;
