/**
 * networking/v1 NetworkPolicy.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import {
  cidr,
  dnsSubdomain,
  fields,
  guardedFields,
  list,
  metadata,
  namedTexts,
  portNumber,
  portOrName,
  protocol,
  sharedText,
} from "../schema.ts";
import { completeNetworkPolicy } from "./complete_network_policy.ts";

// No field is required: an object of a newer API without one has to be read, so that it can isolate.
const labelSelector = guardedFields({
  matchLabels: namedTexts("all"),
  matchExpressions: list(guardedFields({
    key: v.nullish(sharedText),
    operator: v.nullish(v.picklist(
      ["In", "NotIn", "Exists", "DoesNotExist"],
      "has to be In, NotIn, Exists or DoesNotExist",
    )),
    values: list(sharedText),
  })),
});

const ports = list(guardedFields({
  protocol: v.nullish(protocol),
  port: v.nullish(portOrName),
  endPort: v.nullish(portNumber(1)),
}));

const peers = list(guardedFields({
  podSelector: v.nullish(labelSelector),
  namespaceSelector: v.nullish(labelSelector),
  ipBlock: v.nullish(guardedFields({ cidr: v.nullish(cidr), except: list(cidr) })),
}));

const schema = fields({
  metadata: metadata(dnsSubdomain, { extra: {} }),
  spec: v.nullish(
    guardedFields({
      podSelector: v.nullish(labelSelector),
      policyTypes: list(
        v.picklist(["Ingress", "Egress"], "has to be Ingress or Egress"),
      ),
      ingress: list(guardedFields({ from: peers, ports })),
      egress: list(guardedFields({ to: peers, ports })),
    }),
    {},
  ),
}, { unread: "apiVersion kind status" });

/** A NetworkPolicy as a manifest has it. */
export type NetworkPolicyManifest = v.InferOutput<typeof schema>;

/** networking/v1 NetworkPolicy. */
export const NETWORK_POLICY = defineKind({
  kind: "NetworkPolicy",
  group: "networking.k8s.io",
  versions: ["v1"],
  plural: "networkpolicies",
  namespaced: true,
  schema,
  restricts: true,
  complete: completeNetworkPolicy,
});

/** A NetworkPolicy, as far as it is read. */
export type NetworkPolicy = ObjectOf<typeof NETWORK_POLICY>;

/** The specification of a NetworkPolicy. */
export type NetworkPolicySpec = NetworkPolicy["spec"];

/** A selector of pods or namespaces. */
export type LabelSelectorSpec = NonNullable<NetworkPolicySpec["podSelector"]>;

/** An entry of `ports`. */
export type NetworkPolicyPort = NonNullable<
  NonNullable<NetworkPolicySpec["ingress"]>[number]["ports"]
>[number];

/** An entry of `from` or `to`. */
export type NetworkPolicyPeer = NonNullable<
  NonNullable<NetworkPolicySpec["ingress"]>[number]["from"]
>[number];
