/**
 * The source of the members of a peer set.
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import {
  BlockMatcher,
  type BlockWithExceptions,
  nestBlocks,
  type NestedBlocks,
} from "../net/nested_blocks.ts";
import { atOnce } from "../net/steps.ts";
import { contentId, contentIdOfAll } from "./content_id.ts";
import {
  EVERYTHING,
  type Labels,
  type LabelSelector,
  matchesLabels,
  type SelectorIndex,
  type SelectorPlace,
} from "./label_selector.ts";
import type { PeerMember, PeerSetId } from "./policy_plan.ts";
import { addressesIn, type NamedPort, type PolicyPod, portFinder } from "./policy_pod.ts";

/** Pods of one namespace, or of those that a selector matches. */
export interface PodQuery {
  readonly scope:
    | { readonly kind: "namespace"; readonly name: string }
    | { readonly kind: "namespaces"; readonly selector: LabelSelector };
  readonly pods: LabelSelector;
}

/** Decides the members of one peer set. */
export type PeerSource =
  | { readonly kind: "pods"; readonly id: PeerSetId; readonly query: PodQuery }
  | BlocksSource
  | NodesSource
  | {
    readonly kind: "pod-ports";
    readonly id: PeerSetId;
    readonly query: PodQuery;
    readonly names: readonly NamedPort[];
    /** Only addresses in these blocks. */
    readonly within?: BlocksSource;
  };

/** Blocks with their exceptions. Nodes whose pods do not need the set never expand it. */
export interface BlocksSource {
  readonly kind: "blocks";
  readonly id: PeerSetId;
  /** Expanded when it is first asked for, unless that was done in steps. */
  readonly members: NestedBlocks;
  expandInSteps(): Generator<void, NestedBlocks, void>;
}

/** The addresses of nodes. */
export interface NodesSource {
  readonly kind: "nodes";
  readonly id: PeerSetId;
  readonly selector: LabelSelector;
}

/** A source whose members follow pods. */
export type PodSource = Exclude<PeerSource, BlocksSource | NodesSource>;

/** The known labels of a namespace. */
export interface NamespaceLabels {
  readonly labels: Labels;
  /** The Namespace is not known, only its name. */
  readonly isPartial: boolean;
}

/** All pods of the cluster. */
export const ALL_PODS: PodQuery = {
  scope: { kind: "namespaces", selector: EVERYTHING },
  pods: EVERYTHING,
};

/** The addresses of pods. */
export function podsSource(query: PodQuery): PeerSource {
  return { kind: "pods", id: idOf(["pods", queryText(query)]), query };
}

/** The addresses of the nodes that a selector matches. */
export function nodesSource(selector: LabelSelector): NodesSource {
  return { kind: "nodes", id: idOf(["nodes", selector.text]), selector };
}

/** Blocks of one family, each without its own exceptions. */
export function blocksSource(blocks: readonly BlockWithExceptions[]): BlocksSource {
  let members: NestedBlocks | undefined;
  return {
    kind: "blocks",
    id: contentIdOfAll(textsOf(blocks)) as PeerSetId,
    get members() {
      return members ??= atOnce(nestBlocks(blocks));
    },
    *expandInSteps() {
      return members ??= yield* nestBlocks(blocks);
    },
  };
}

/** The addresses of pods with the ports that names stand for there. */
export function podPortsSource(
  query: PodQuery,
  names: readonly NamedPort[],
  within?: BlocksSource,
): PeerSource {
  return {
    kind: "pod-ports",
    id: idOf(["pod-ports", queryText(query), names, within?.id]),
    query,
    names,
    ...(within && { within }),
  };
}

/** Whether a pod is one of a query. `namespace` is what is known of the pod's namespace. */
export function matchesQuery(
  { scope, pods }: PodQuery,
  pod: PolicyPod,
  namespace: NamespaceLabels,
): boolean {
  const isInScope = scope.kind === "namespace"
    ? scope.name === pod.namespace
    : matchesLabels(scope.selector, namespace.labels, namespace);
  return isInScope && matchesLabels(pods, pod.labels);
}

/** Scopes of an index of queries besides names of namespaces, which have no such characters. */
const ANY_NAMESPACE = "*";
const BY_NAMESPACE_LABELS = "@";

/**
 * Returns the place of a query in an index: by the labels of its pods, or else by those of their
 * namespaces.
 */
export function placeOfQuery({ scope, pods }: PodQuery): SelectorPlace {
  if (scope.kind === "namespace") return { scope: scope.name, selector: pods };
  const isBroad = pods.requirements.every(({ operator }) =>
    operator === "NotIn" || operator === "DoesNotExist"
  );
  return isBroad
    ? { scope: BY_NAMESPACE_LABELS, selector: scope.selector }
    : { scope: ANY_NAMESPACE, selector: pods };
}

/** Returns the items of an index whose queries match a pod, each once. */
export function itemsMatching<Item>(
  index: SelectorIndex<Item>,
  queryOf: (item: Item) => PodQuery,
  pod: PolicyPod,
  namespace: NamespaceLabels,
): ReadonlySet<Item> {
  const found = new Set([
    ...index.candidates(pod.namespace, pod.labels),
    ...index.candidates(ANY_NAMESPACE, pod.labels),
    ...index.candidates(BY_NAMESPACE_LABELS, namespace.labels),
  ]);
  for (const item of found) if (!matchesQuery(queryOf(item), pod, namespace)) found.delete(item);
  return found;
}

/** Returns the members that a matching pod adds to the set, in one family. */
export function membersOf(
  source: PodSource,
  pod: PolicyPod,
  family: IpFamily,
): readonly PeerMember[] {
  const addresses = addressesIn(pod, family);
  if (source.kind === "pods") return addresses;
  const { names, within } = source;
  const isWithin = (address: IpAddress) =>
    within === undefined || BlockMatcher.of(within.members).contains(address);
  const portOf = portFinder(pod);
  return addresses.filter(isWithin).flatMap((address) =>
    names.flatMap((name) => {
      const port = portOf(name);
      return port === undefined ? [] : [{ address, protocol: name.protocol, port }];
    })
  );
}

function queryText({ scope, pods }: PodQuery): readonly string[] {
  return scope.kind === "namespace"
    ? ["namespace", scope.name, pods.text]
    : ["namespaces", scope.selector.text, pods.text];
}

function* textsOf(blocks: readonly BlockWithExceptions[]): Generator<string, void, void> {
  for (const { cidr, except } of blocks) {
    yield cidr;
    for (const each of except) yield `!${each}`;
  }
}

function idOf(content: unknown): PeerSetId {
  return contentId(JSON.stringify(content)) as PeerSetId;
}
