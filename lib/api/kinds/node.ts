import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import { ZONE_LABEL } from "../labels.ts";
import { at, cidr, dnsSubdomain, fields, list, metadata, pointerAt, text, UID } from "../schema.ts";

/**
 * The arguments with which k3s was started on the node: a whole command line, which may hold
 * secrets.
 */
const K3S_NODE_ARGS_ANNOTATION = "k3s.io/node-args";

const schema = fields({
  metadata: at(
    1,
    metadata(dnsSubdomain, {
      labels: [ZONE_LABEL],
      secret: [K3S_NODE_ARGS_ANNOTATION],
      extra: UID,
    }),
  ),
  spec: at(
    2,
    v.nullish(
      fields({
        podCIDR: at(
          1,
          v.nullish(v.pipe(
            text,
            v.check(
              (input) => input === "" || v.is(cidr, input),
              "has to be a CIDR block such as 10.0.0.0/24",
            ),
          )),
        ),
        podCIDRs: at(7, list(cidr)),
        taints: at(
          5,
          list(fields({
            key: at(1, text),
            effect: pointerAt(3, v.nullish(text)),
          }, { unread: "value timeAdded" })),
        ),
      }, { isOpen: true }),
      {},
    ),
  ),
  status: at(
    3,
    v.nullish(
      fields({
        addresses: at(5, list(fields({ type: at(1, text), address: at(2, text) }))),
      }, { isOpen: true }),
      {},
    ),
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
