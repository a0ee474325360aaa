/**
 * core/v1 Service with the fields that assign and announce addresses. Only runs with routing follow
 * this kind, so that the Services of other runs do not grow.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import {
  dnsLabel,
  fields,
  list,
  metadata,
  namedTexts,
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

/** kube-router's switches for what is announced, `true` or `false`. */
export const ADVERTISE_ANNOTATIONS = {
  clusterIps: "kube-router.io/service.advertise.clusterip",
  externalIps: "kube-router.io/service.advertise.externalip",
  loadBalancerIps: "kube-router.io/service.advertise.loadbalancerip",
} as const;

/** core/v1 Service, for routing. */
export const ROUTED_SERVICE = defineKind({
  kind: "Service",
  group: "",
  versions: ["v1"],
  plural: "services",
  namespaced: true,
  schema: fields({
    metadata: metadata(dnsLabel, {
      labels: "all",
      annotations: [
        ADDRESSES_ANNOTATION,
        POOL_ANNOTATION,
        SHARING_KEY_ANNOTATION,
        ...Object.values(ADVERTISE_ANNOTATIONS),
      ],
      extra: UID,
    }),
    spec: fields({
      type: v.nullish(sharedText),
      loadBalancerClass: v.nullish(sharedText),
      loadBalancerIP: v.nullish(text),
      ipFamilies: list(sharedText),
      ipFamilyPolicy: v.nullish(sharedText),
      externalTrafficPolicy: v.nullish(sharedText),
      selector: namedTexts("all"),
      ports: list(fields({ protocol: v.nullish(protocol), port: portNumber(1) }, { isOpen: true })),
    }, { isOpen: true }),
    status: v.nullish(fields({
      loadBalancer: v.nullish(fields({
        ingress: list(fields({ ip: v.nullish(text), hostname: v.nullish(text) }, { isOpen: true })),
      }, { isOpen: true })),
    }, { isOpen: true })),
  }, { unread: "apiVersion kind" }),
});

/** A Service, as far as routing reads it. */
export type RoutedService = ObjectOf<typeof ROUTED_SERVICE>;
