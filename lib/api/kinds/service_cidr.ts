/**
 * networking/v1 ServiceCIDR: a range that cluster IPs are taken from; v1 since Kubernetes 1.33.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import { at, cidr, dnsSubdomain, fields, list, metadata, objectOrEmptyAt } from "../schema.ts";

const schema = fields({
  metadata: metadata(dnsSubdomain),
  spec: objectOrEmptyAt(2, { cidrs: at(1, list(cidr)) }),
  status: at(3, v.nullish(fields({}, "*"))),
}, "apiVersion kind");

/** networking/v1 ServiceCIDR; v1beta1 in manifests. */
export const SERVICE_CIDR = defineKind({
  kind: "ServiceCIDR",
  group: "networking.k8s.io",
  versions: ["v1", "v1beta1"],
  plural: "servicecidrs",
  namespaced: false,
  schema,
});

/** A ServiceCIDR, as far as it is read. */
export type ServiceCidr = ObjectOf<typeof SERVICE_CIDR>;
