/**
 * policy.networking.k8s.io ClusterNetworkPolicy: rules of the administrator before and after
 * NetworkPolicies. A custom resource, so it comes in JSON only.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ManifestReport, type ObjectOf } from "../kind.ts";
import {
  cidr,
  dnsSubdomain,
  fields,
  guardedFields,
  list,
  metadata,
  oneOf,
  pointerAt,
  portNumber,
  sharedText,
  text,
  wholeNumber,
} from "../schema.ts";
import { checkSelector, labelSelector } from "./network_policy.ts";

// As in NetworkPolicies, no field is required: an object of a newer API has to be read.
const transport = v.nullish(guardedFields({
  destinationPort: v.nullish(guardedFields({
    number: v.nullish(portNumber(1)),
    range: v.nullish(guardedFields({
      start: v.nullish(portNumber(1)),
      end: v.nullish(portNumber(1)),
    })),
  })),
}));

const protocols = list(guardedFields({
  tcp: transport,
  udp: transport,
  sctp: transport,
  destinationNamedPort: v.nullish(sharedText),
}));

const namespacedPods = v.nullish(guardedFields({
  namespaceSelector: labelSelector,
  podSelector: labelSelector,
}));

const peers = list(guardedFields({
  namespaces: labelSelector,
  pods: namespacedPods,
  nodes: labelSelector,
  networks: list(cidr),
  domainNames: list(text),
}));

const rule = {
  name: v.nullish(text),
  action: v.nullish(oneOf("Accept", "Deny", "Pass")),
  protocols,
};

const schema = fields(
  {
    metadata: metadata(dnsSubdomain),
    spec: v.nullish(
      guardedFields({
        tier: v.nullish(oneOf("Admin", "Baseline")),
        // Only because 0 is a priority: no custom resource comes in protobuf.
        priority: pointerAt(
          2,
          v.nullish(wholeNumber(0, 1000, "has to be a whole number between 0 and 1000")),
        ),
        subject: v.nullish(guardedFields({ namespaces: labelSelector, pods: namespacedPods })),
        ingress: list(guardedFields({ ...rule, from: peers })),
        egress: list(guardedFields({ ...rule, to: peers })),
      }),
      {},
    ),
  },
  "apiVersion kind status",
);

/** A ClusterNetworkPolicy as a manifest has it. */
type Manifest = v.InferOutput<typeof schema>;

/** policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy. */
export const CLUSTER_NETWORK_POLICY = defineKind({
  kind: "ClusterNetworkPolicy",
  group: "policy.networking.k8s.io",
  versions: ["v1alpha2"],
  plural: "clusternetworkpolicies",
  namespaced: false,
  schema,
  restricts: true,
  complete: checkClusterNetworkPolicy,
});

/** A ClusterNetworkPolicy, as far as it is read. */
export type ClusterNetworkPolicy = ObjectOf<typeof CLUSTER_NETWORK_POLICY>;

/** The specification of a ClusterNetworkPolicy. */
export type ClusterNetworkPolicySpec = ClusterNetworkPolicy["spec"];

type Spec = ClusterNetworkPolicySpec;

/** A rule of either direction. */
export type ClusterPolicyRule =
  & NonNullable<Spec["ingress"]>[number]
  & NonNullable<Spec["egress"]>[number];

/** An entry of `from` or `to`. */
export type ClusterPolicyPeer = NonNullable<ClusterPolicyRule["to"]>[number];

/** An entry of `protocols`. */
export type ClusterPolicyProtocol = NonNullable<ClusterPolicyRule["protocols"]>[number];

/** Most rules of a direction, peers or protocols of a rule, and networks of a peer. */
const MOST_ENTRIES = 25;
/** Longest name of a rule. */
const MOST_NAME = 100;

/** Refuses what the schema of the custom resource refuses beyond single fields. */
function checkClusterNetworkPolicy(manifest: Manifest, report: ManifestReport): Manifest {
  const { tier, priority, subject, ingress, egress } = manifest.spec as Partial<Spec>;
  const checkCount = (
    path: readonly (string | number)[],
    entries: readonly unknown[] | null | undefined,
    least: 0 | 1,
  ) => {
    const count = entries?.length ?? 0;
    if (least <= count && count <= MOST_ENTRIES) return;
    const message = `has to have ${least ? "1" : "at most"} ${least ? "to " : ""}${MOST_ENTRIES}` +
      ` entries, not ${count}`;
    report.error({ path, message });
  };
  const checkPods = (path: readonly (string | number)[], found: Subject | null | undefined) => {
    checkSelector(found?.namespaces as Selector, [...path, "namespaces"], report);
    const { namespaceSelector, podSelector } = found?.pods ?? {};
    checkSelector(namespaceSelector as Selector, [...path, "pods", "namespaceSelector"], report);
    checkSelector(podSelector as Selector, [...path, "pods", "podSelector"], report);
  };
  for (const [name, value] of Object.entries({ tier, priority, subject })) {
    if (value === undefined || value === null) {
      report.error({ path: ["spec", name], message: "is missing" });
    }
  }
  checkPods(["spec", "subject"], subject);
  for (const [direction, rules] of Object.entries({ ingress, egress })) {
    checkCount(["spec", direction], rules, 0);
    for (const [index, rule] of (rules as readonly ClusterPolicyRule[] ?? []).entries()) {
      const path = ["spec", direction, index];
      const side = direction === "ingress" ? "from" : "to";
      if (!rule.action) report.error({ path: [...path, "action"], message: "is missing" });
      if ((rule.name?.length ?? 0) > MOST_NAME) {
        const message = `has to have at most ${MOST_NAME} characters`;
        report.error({ path: [...path, "name"], value: rule.name, message });
      }
      checkCount([...path, side], rule[side], 1);
      checkCount([...path, "protocols"], rule.protocols, 0);
      for (const [place, peer] of (rule[side] ?? []).entries()) {
        const at = [...path, side, place];
        checkPods(at, peer);
        checkSelector(peer.nodes as Selector, [...at, "nodes"], report);
        checkCount([...at, "networks"], peer.networks, 0);
      }
    }
  }
  return manifest;
}

type Subject = Pick<ClusterPolicyPeer, "namespaces" | "pods">;
type Selector = Parameters<typeof checkSelector>[0];
