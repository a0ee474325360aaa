/**
 * coordination.k8s.io/v1 Lease: a claim that its holder has to renew.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import { dnsSubdomain, fields, metadata, text, wholeNumber } from "../schema.ts";

/** coordination.k8s.io/v1 Lease. */
export const LEASE = defineKind({
  kind: "Lease",
  group: "coordination.k8s.io",
  versions: ["v1"],
  plural: "leases",
  namespaced: true,
  schema: fields({
    metadata: metadata(dnsSubdomain, { extra: {} }),
    spec: v.nullish(
      fields({
        holderIdentity: v.nullish(text),
        leaseDurationSeconds: v.nullish(wholeNumber(
          { least: 1, most: 2 ** 31 - 1 },
          "has to be a whole number of seconds, at least 1",
        )),
        acquireTime: v.nullish(text),
        renewTime: v.nullish(text),
        leaseTransitions: v.nullish(wholeNumber(
          { least: 0, most: 2 ** 31 - 1 },
          "has to be a whole number",
        )),
      }, { isOpen: true }),
      {},
    ),
  }, { unread: "apiVersion kind" }),
});

/** A Lease, as far as it is read. */
export type Lease = ObjectOf<typeof LEASE>;
