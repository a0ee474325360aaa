/**
 * coordination.k8s.io/v1 Lease: a claim that its holder has to renew.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import {
  at,
  dnsSubdomain,
  fields,
  metadata,
  microTime,
  objectOrEmptyAt,
  pointerAt,
  text,
  wholeNumber,
} from "../schema.ts";

/** What a node says of itself in its member Lease: the time of the renewal, a space, and JSON. */
export const LAYER2_ANNOTATION = "kube-relay.io/layer2";

/** coordination.k8s.io/v1 Lease. */
export const LEASE = defineKind({
  kind: "Lease",
  group: "coordination.k8s.io",
  versions: ["v1"],
  plural: "leases",
  namespaced: true,
  schema: fields({
    metadata: metadata(dnsSubdomain, { annotations: [LAYER2_ANNOTATION] }),
    spec: objectOrEmptyAt(2, {
      holderIdentity: pointerAt(1, v.nullish(text)),
      leaseDurationSeconds: pointerAt(
        2,
        v.nullish(
          wholeNumber(1, 2 ** 31 - 1, "has to be a whole number of seconds, at least 1"),
        ),
      ),
      acquireTime: at(3, v.nullish(microTime)),
      renewTime: at(4, v.nullish(microTime)),
      leaseTransitions: pointerAt(
        5,
        v.nullish(wholeNumber(0, 2 ** 31 - 1, "has to be a whole number")),
      ),
    }, "*"),
  }, "apiVersion kind"),
});

/** A Lease, as far as it is read. */
export type Lease = ObjectOf<typeof LEASE>;
