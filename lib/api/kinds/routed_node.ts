/**
 * core/v1 Node with the fields that announce addresses. Only runs with routing follow this kind, and
 * only they follow all Nodes.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import {
  at,
  dnsSubdomain,
  fields,
  list,
  listAt,
  metadata,
  objectOrEmptyAt,
  pointerAt,
  sharedText,
  text,
} from "../schema.ts";

/** kube-router's settings of a node's BGP sessions. */
export const BGP_ANNOTATIONS = {
  as: "kube-router.io/node.asn",
  /** Reflects routes; the value is the cluster ID. */
  reflector: "kube-router.io/rr.server",
  reflectorClient: "kube-router.io/rr.client",
  peerAsNumbers: "kube-router.io/peer.asns",
  peerPorts: "kube-router.io/peer.ports",
  peerLocalAddresses: "kube-router.io/peer.localips",
  prependAs: "kube-router.io/path-prepend.as",
  prependCount: "kube-router.io/path-prepend.repeat-n",
  communities: "kube-router.io/node.bgp.communities",
  refused: "kube-router.io/node.bgp.customimportreject",
  /** Not accepted. */
  listenAddresses: "kube-router.io/bgp-local-addresses",
} as const;

/** kube-router's ranges of a node's pods, for clusters that assign none. Lists have commas. */
export const POD_CIDR_ANNOTATIONS = [
  "kube-router.io/pod-cidrs",
  "kube-router.io/pod-cidr",
] as const;

/** kube-router's peers: as YAML, or by lists of addresses and passwords. No password is used. */
export const PEER_ANNOTATIONS = {
  yaml: "kube-router.io/peers",
  addresses: "kube-router.io/peer.ips",
  passwords: "kube-router.io/peer.passwords",
} as const;

/** core/v1 Node, for routing. */
export const ROUTED_NODE = defineKind({
  kind: "Node",
  group: "",
  versions: ["v1"],
  plural: "nodes",
  namespaced: false,
  schema: fields({
    metadata: metadata(dnsSubdomain, {
      labels: "all",
      annotations: [...Object.values(BGP_ANNOTATIONS), ...POD_CIDR_ANNOTATIONS],
      // The addresses too: without the passwords, a dump would have sessions that the node refuses.
      secret: Object.values(PEER_ANNOTATIONS),
    }),
    spec: objectOrEmptyAt(2, {
      podCIDR: at(1, v.nullish(text)),
      podCIDRs: at(7, list(text)),
      taints: listAt(5, { key: at(1, text), effect: pointerAt(3, v.nullish(text)) }, "*"),
    }, "*"),
    status: objectOrEmptyAt(3, {
      conditions: listAt(4, { type: at(1, sharedText), status: at(2, sharedText) }, "*"),
      addresses: listAt(5, { type: at(1, text), address: at(2, text) }, "*"),
    }, "*"),
  }, "apiVersion kind"),
});

/** A Node, as far as routing reads it. */
export type RoutedNode = ObjectOf<typeof ROUTED_NODE>;
