/**
 * kube-relay.io/v1alpha1 LoadBalancerPool and BgpPeer: what the block `routing` of a configuration file
 * has in `pools` and `bgp.peers`. deploy/kubernetes/crds.yaml defines the same fields.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type KindSpec, type ObjectOf } from "../kind.ts";
import {
  dnsSubdomain,
  fields,
  flag,
  list,
  metadata,
  namedTexts,
  oneOf,
  portNumber,
  sharedText,
  text,
  UID,
  wholeNumber,
} from "../schema.ts";

const number = v.nullish(wholeNumber(0, 2 ** 32 - 1, "has to be a whole number, at least 0"));
const words = v.nullish(text);

const selector = v.nullish(fields({
  matchLabels: namedTexts("all"),
  matchExpressions: list(fields({
    key: sharedText,
    operator: oneOf("In", "NotIn", "Exists", "DoesNotExist"),
    values: list(sharedText),
  })),
}));

const prefixes = list(fields({ prefix: text, minLength: number, maxLength: number }));

/** What both kinds say of themselves. */
const conditions = list(fields({
  type: sharedText,
  status: sharedText,
  reason: v.nullish(sharedText),
  message: words,
  observedGeneration: number,
  lastTransitionTime: words,
}, "*"));

const object = <Spec extends v.ObjectEntries, Status extends v.ObjectEntries>(
  spec: Spec,
  status: Status,
) =>
  fields({
    metadata: metadata(dnsSubdomain, {}, { ...UID, generation: number }),
    spec: fields(spec),
    status: v.nullish(fields({ ...status, conditions }, "*")),
  }, "apiVersion kind");

const use = v.nullish(fields({ used: number, total: words }));

/** kube-relay.io/v1alpha1 LoadBalancerPool. */
export const LOAD_BALANCER_POOL = defineKind({
  kind: "LoadBalancerPool",
  group: "kube-relay.io",
  versions: ["v1alpha1"],
  plural: "loadbalancerpools",
  namespaced: false,
  schema: object({
    addresses: list(text),
    autoAssign: v.nullish(flag),
    priority: number,
    announce: v.nullish(oneOf("layer2", "bgp", "none")),
    namespaceSelector: selector,
    serviceSelector: selector,
    nodeSelector: selector,
  }, { ipv4: use, ipv6: use, conflicts: list(text) }),
});

/** kube-relay.io/v1alpha1 BgpPeer. */
export const BGP_PEER = defineKind({
  kind: "BgpPeer",
  group: "kube-relay.io",
  versions: ["v1alpha1"],
  plural: "bgppeers",
  namespaced: false,
  schema: object({
    address: text,
    port: v.nullish(portNumber(1)),
    as: number,
    localAddress: words,
    passwordFile: words,
    passwordSecret: v.nullish(fields({ name: words, key: words })),
    multihopTtl: number,
    holdTimeSeconds: number,
    bfd: v.nullish(flag),
    gracefulRestartSeconds: number,
    prepend: number,
    nextHopSelf: v.nullish(flag),
    bothFamilies: v.nullish(flag),
    otherNextHop: words,
    import: v.nullish(
      fields({ prefixes, clusterPrefixes: prefixes, defaultRoute: v.nullish(flag) }),
    ),
    nodeSelector: selector,
  }, {
    /** `Established`, or why not, by node. */
    sessions: namedTexts("all"),
    established: words,
  }),
});

/** The kinds that have settings of routing. */
export const ROUTING_OBJECT_KINDS: readonly KindSpec[] = [LOAD_BALANCER_POOL, BGP_PEER];

/** A LoadBalancerPool, as far as it is read. */
export type LoadBalancerPool = ObjectOf<typeof LOAD_BALANCER_POOL>;

/** A BgpPeer, as far as it is read. */
export type BgpPeerObject = ObjectOf<typeof BGP_PEER>;
