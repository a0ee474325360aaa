/**
 * core/v1 Node.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import { ZONE_LABEL } from "../labels.ts";
import { cidr, dnsSubdomain, fields, list, metadata, text, UID } from "../schema.ts";

/**
 * The arguments with which k3s was started on the node: a whole command line, which may hold
 * secrets.
 */
const K3S_NODE_ARGS_ANNOTATION = "k3s.io/node-args";

const schema = fields({
  metadata: metadata(dnsSubdomain, {
    labels: [ZONE_LABEL],
    secret: [K3S_NODE_ARGS_ANNOTATION],
    extra: UID,
  }),
  spec: v.nullish(
    fields({
      podCIDR: v.nullish(v.pipe(
        text,
        v.check(
          (input) => input === "" || v.is(cidr, input),
          "has to be a CIDR block such as 10.0.0.0/24",
        ),
      )),
      podCIDRs: list(cidr),
      taints: list(fields({ key: text, effect: v.nullish(text) }, { unread: "value timeAdded" })),
    }, { isOpen: true }),
    {},
  ),
  status: v.nullish(
    fields({ addresses: list(fields({ type: text, address: text })) }, { isOpen: true }),
    {},
  ),
}, { unread: "apiVersion kind" });

/** core/v1 Node. */
export const NODE = defineKind({
  kind: "Node",
  group: "",
  versions: ["v1"],
  plural: "nodes",
  namespaced: false,
  schema,
});

/** A Node, as far as it is read. */
export type Node = ObjectOf<typeof NODE>;
