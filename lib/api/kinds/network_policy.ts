import * as v from "valibot";
import { defineKind, type ObjectOf } from "../kind.ts";
import {
  at,
  cidr,
  dnsSubdomain,
  fields,
  guardedFields,
  list,
  metadata,
  namedTexts,
  pointerAt,
  portNumber,
  portOrName,
  protocol,
  sharedText,
} from "../schema.ts";
import { completeNetworkPolicy } from "./complete_network_policy.ts";

// No field is required: an object of a newer API without one has to be read, so that it can isolate.
const labelSelector = guardedFields({
  matchLabels: at(1, namedTexts("all")),
  matchExpressions: at(
    2,
    list(guardedFields({
      key: pointerAt(1, v.nullish(sharedText)),
      operator: pointerAt(
        2,
        v.nullish(v.picklist(
          ["In", "NotIn", "Exists", "DoesNotExist"],
          "has to be In, NotIn, Exists or DoesNotExist",
        )),
      ),
      values: at(3, list(sharedText)),
    })),
  ),
});

const ports = list(guardedFields({
  protocol: pointerAt(1, v.nullish(protocol)),
  port: pointerAt(2, v.nullish(portOrName)),
  endPort: pointerAt(3, v.nullish(portNumber(1))),
}));

const peers = list(guardedFields({
  podSelector: at(1, v.nullish(labelSelector)),
  namespaceSelector: at(2, v.nullish(labelSelector)),
  ipBlock: at(
    3,
    v.nullish(guardedFields({
      cidr: pointerAt(1, v.nullish(cidr)),
      except: at(2, list(cidr)),
    })),
  ),
}));

const schema = fields({
  metadata: at(1, metadata(dnsSubdomain, { extra: {} })),
  spec: at(
    2,
    v.nullish(
      guardedFields({
        podSelector: at(1, v.nullish(labelSelector)),
        policyTypes: at(
          4,
          list(
            v.picklist(["Ingress", "Egress"], "has to be Ingress or Egress"),
          ),
        ),
        ingress: at(2, list(guardedFields({ from: at(2, peers), ports: at(1, ports) }))),
        egress: at(3, list(guardedFields({ to: at(2, peers), ports: at(1, ports) }))),
      }),
      {},
    ),
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
