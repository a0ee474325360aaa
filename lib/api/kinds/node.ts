import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import {
  at,
  cidr,
  dnsSubdomain,
  fields,
  list,
  listAt,
  metadata,
  objectOrEmptyAt,
  pointerAt,
  text,
  UID,
} from "../schema.ts";

/**
 * The arguments with which k3s was started on the node: a whole command line, which may hold
 * secrets.
 */
const K3S_NODE_ARGS_ANNOTATION = "k3s.io/node-args";

/** core/v1 Node. */
export const NODE = defineKind({
  kind: "Node",
  group: "",
  versions: ["v1"],
  plural: "nodes",
  namespaced: false,
  schema: fields({
    metadata: metadata(
      dnsSubdomain,
      { labels: "all", secret: [K3S_NODE_ARGS_ANNOTATION] },
      UID,
    ),
    spec: objectOrEmptyAt(2, {
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
      taints: listAt(5, {
        key: at(1, text),
        effect: pointerAt(3, v.nullish(text)),
      }, "value timeAdded"),
    }, "*"),
    status: objectOrEmptyAt(3, {
      addresses: listAt(5, { type: at(1, text), address: at(2, text) }),
    }, "*"),
  }, "apiVersion kind"),
});

/** A Node, as far as it is read. */
export type Node = ObjectOf<typeof NODE>;
