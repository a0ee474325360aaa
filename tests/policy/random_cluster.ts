/** Random pods, namespaces, nodes and policies of all tiers of a small cluster, for property tests. */
import fc from "fast-check";
import type {
  ClusterNetworkPolicy,
  ClusterNetworkPolicySpec,
} from "../../lib/api/kinds/cluster_network_policy.ts";
import type { Namespace } from "../../lib/api/kinds/namespace.ts";
import {
  type LabelSelectorSpec,
  NETWORK_POLICY,
  type NetworkPolicy,
  type NetworkPolicySpec,
} from "../../lib/api/kinds/network_policy.ts";
import type { Pod } from "../../lib/api/kinds/pod.ts";
import { slimObject } from "../../lib/kube/slim.ts";
import { StringTable } from "../../lib/kube/string_table.ts";
import type { PodKey, PolicyKey } from "../../lib/policy/policy_plan.ts";
import type { PolicyState } from "../../lib/policy/policy_state.ts";

/** One event. An absent object means that it is deleted. */
export type ClusterEvent =
  | { readonly kind: "pod"; readonly key: string; readonly object: Pod | undefined }
  | { readonly kind: "namespace"; readonly key: string; readonly object: Namespace | undefined }
  | { readonly kind: "node"; readonly key: string; readonly object: RandomNode | undefined }
  | {
    readonly kind: "cluster policy";
    readonly key: string;
    readonly object: ClusterNetworkPolicy | undefined;
  }
  | {
    readonly kind: "policy";
    readonly key: string;
    readonly object: NetworkPolicy | undefined;
    /** A policy that means the same, where fields of the object had a wrong type. */
    readonly meaning?: NetworkPolicy | undefined;
  };

/** A Node with its labels and addresses. */
export interface RandomNode {
  readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> };
  readonly status: { readonly addresses: readonly { readonly address: string }[] };
}

/** Gives an event to a state. */
export function handleEvent(state: PolicyState, { kind, key, object }: ClusterEvent): void {
  if (kind === "pod") state.setPod(key as PodKey, object);
  else if (kind === "namespace") state.setNamespace(key, object);
  else if (kind === "node") state.setNode(key, object);
  else if (kind === "cluster policy") state.setClusterPolicy(key as PolicyKey, object);
  else state.setPolicy(key as PolicyKey, object);
}

const NAMESPACES = ["x", "y"];
const KEYS = ["app", "tier"];
const VALUES = ["a", "b"];
/** Few, so that pods hand them on. */
export const ADDRESSES = [
  "192.0.2.1",
  "192.0.2.2",
  "192.0.2.3",
  "192.0.2.4",
  "2001:db8::1",
  "2001:db8::2",
];
/** Addresses of no pod. */
export const OUTSIDE = { IPv4: "198.51.100.1", IPv6: "2001:db8:1::1" } as const;
export const PORTS = [80, 81, 82, 8080];
export const PROTOCOLS = ["TCP", "UDP", "SCTP"];
const PORT_NAMES = ["http", "dns"];

const labels = fc.dictionary(fc.constantFrom(...KEYS), fc.constantFrom(...VALUES), { maxKeys: 2 });

const selector: fc.Arbitrary<LabelSelectorSpec> = fc.record({
  matchLabels: labels,
  matchExpressions: fc.array(
    fc.oneof(
      fc.record({
        key: fc.constantFrom(...KEYS, "kubernetes.io/metadata.name"),
        operator: fc.constantFrom("In", "NotIn"),
        values: fc.subarray([...VALUES, ...NAMESPACES], { minLength: 1 }),
      }),
      fc.record({
        key: fc.constantFrom(...KEYS),
        operator: fc.constantFrom("Exists", "DoesNotExist"),
      }),
    ),
    { maxLength: 1 },
  ),
}, { requiredKeys: [] });

/** Blocks that contain each other, with exceptions that other blocks have again. */
const block = fc.oneof(
  fc.record({
    cidr: fc.constantFrom(
      "0.0.0.0/0",
      "192.0.2.0/30",
      "192.0.2.0/31",
      "192.0.2.2/31",
      "192.0.2.1/32",
    ),
    except: fc.subarray(["192.0.2.0/24", "192.0.2.2/31", "192.0.2.1/32", "192.0.2.3/32"]),
  }),
  fc.record({
    cidr: fc.constantFrom("::/0", "2001:db8::/126", "2001:db8::2/127", "2001:db8::1/128"),
    except: fc.subarray(["2001:db8::/64", "2001:db8::1/128", "2001:db8::2/127", "::/1"]),
  }),
);

const peer = fc.oneof(
  fc.record({ podSelector: selector }),
  fc.record({ namespaceSelector: selector }),
  fc.record({ podSelector: selector, namespaceSelector: selector }),
  { weight: 2, arbitrary: fc.record({ ipBlock: block }) },
);

const port = fc.oneof(
  fc.record({
    protocol: fc.constantFrom(...PROTOCOLS),
    port: fc.oneof(fc.constantFrom(...PORTS), fc.constantFrom(...PORT_NAMES)),
  }, { requiredKeys: [] }),
  fc.record({ port: fc.constant(80), endPort: fc.constantFrom(80, 81, 9000) }),
);

const peers = fc.array(peer, { maxLength: 3 });
const ports = fc.array(port, { maxLength: 2 });

const spec: fc.Arbitrary<NetworkPolicySpec> = fc.record({
  podSelector: selector,
  policyTypes: fc.subarray(["Ingress", "Egress"]),
  ingress: fc.array(fc.record({ from: peers, ports }, { requiredKeys: [] }), { maxLength: 2 }),
  egress: fc.array(fc.record({ to: peers, ports }, { requiredKeys: [] }), { maxLength: 2 }),
}, { requiredKeys: ["podSelector"] });

const clusterPeer = fc.oneof(
  fc.record({ namespaces: selector }),
  fc.record({ pods: fc.record({ namespaceSelector: selector, podSelector: selector }) }),
);

const egressPeer = fc.oneof(
  clusterPeer,
  fc.record({ nodes: selector }),
  fc.record({ networks: fc.array(block.map(({ cidr }) => cidr), { minLength: 1, maxLength: 2 }) }),
);

const destinationPort = fc.oneof(
  fc.record({ number: fc.constantFrom(...PORTS) }),
  fc.record({
    range: fc.record({ start: fc.constantFrom(80, 81), end: fc.constantFrom(82, 9000) }),
  }),
);

const clusterProtocol = fc.oneof(
  ...["tcp", "udp", "sctp"].map((name) =>
    fc.record({ [name]: fc.record({ destinationPort }, { requiredKeys: [] }) })
  ),
  fc.record({ destinationNamedPort: fc.constantFrom(...PORT_NAMES) }),
);

/** Any other word than these denies. */
const clusterRule = {
  action: fc.constantFrom("Accept", "Accept", "Deny", "Deny", "Pass", "Log"),
  protocols: fc.array(clusterProtocol, { minLength: 1, maxLength: 2 }),
};

function clusterRules(side: "from" | "to", peer: fc.Arbitrary<unknown>) {
  const rule = fc.record(
    { ...clusterRule, [side]: fc.array(peer, { minLength: 1, maxLength: 2 }) },
    {
      requiredKeys: ["action", side] as never[],
    },
  );
  return fc.array(rule, { maxLength: 2 });
}

const clusterSpec = fc.record({
  tier: fc.constantFrom("Admin", "Baseline"),
  priority: fc.constantFrom(0, 1, 1000),
  subject: clusterPeer,
  ingress: clusterRules("from", clusterPeer),
  egress: clusterRules("to", egressPeer),
}, {
  requiredKeys: ["tier", "priority", "subject"],
}) as fc.Arbitrary<unknown> as fc.Arbitrary<ClusterNetworkPolicySpec>;

const NOTHING: NetworkPolicySpec = { policyTypes: ["Ingress", "Egress"] };
const WRONG = fc.constantFrom<unknown>("all", 5, true);

/** A spec with a field of a wrong type, and one that means the same. */
const broken = fc.record({ spec, wrong: WRONG, at: fc.nat() }).chain(({ spec, wrong, at }) => {
  const { podSelector, policyTypes = [], ingress = [], egress = [] } = spec;
  const selector = { ...(podSelector && { podSelector }) };
  const types = policyTypes.length > 0
    ? policyTypes
    : egress.length > 0
    ? ["Ingress", "Egress"]
    : ["Ingress"];
  const place = ingress.length === 0 ? 0 : at % ingress.length;
  const without = { ...spec, policyTypes: types, ingress: ingress.toSpliced(place, 1) };
  const inRule = (rule: object) => ({ ...spec, ingress: ingress.with(place, rule as never) });
  const found: { readonly raw: unknown; readonly meaning: NetworkPolicySpec }[] = [
    { raw: wrong, meaning: NOTHING },
    { raw: { ...spec, podSelector: wrong }, meaning: { policyTypes: types } },
    { raw: { ...spec, policyTypes: wrong }, meaning: { ...NOTHING, ...selector } },
    {
      raw: { ...spec, egress: wrong },
      meaning: { ...(policyTypes.length > 0 ? { policyTypes } : NOTHING), ...selector },
    },
    ...ingress.length === 0 ? [] : [
      { raw: { ...spec, ingress: ingress.with(place, wrong as never) }, meaning: without },
      { raw: inRule({ ...ingress[place], from: wrong }), meaning: without },
      { raw: inRule({ ...ingress[place], from: [wrong] }), meaning: without },
      { raw: inRule({ ...ingress[place], ports: [{ port: [wrong] }] }), meaning: without },
      {
        raw: inRule({ from: [{ ipBlock: { cidr: "0.0.0.0/0", except: wrong } }] }),
        meaning: without,
      },
    ],
  ];
  return fc.constantFrom(...found);
});

/** A policy as an API server gives it, as it is read. */
function readPolicy(metadata: NetworkPolicy["metadata"], raw: unknown): NetworkPolicy {
  const strings = new StringTable();
  return slimObject(NETWORK_POLICY, { metadata, spec: raw }, { strings, onProblem() {} })!;
}

const containers = fc.array(
  fc.record({
    ports: fc.array(
      fc.record({
        name: fc.constantFrom(...PORT_NAMES),
        containerPort: fc.constantFrom(...PORTS),
        protocol: fc.constantFrom(...PROTOCOLS),
      }, { requiredKeys: ["containerPort"] }),
      { maxLength: 2 },
    ),
  }),
  { maxLength: 2 },
);

function containerStatus(hasEnded: boolean) {
  return hasEnded ? { state: { terminated: { exitCode: 0 } } } : {};
}

function podNamed(namespace: string, name: string): fc.Arbitrary<Pod> {
  return fc.record({
    labels,
    created: fc.constantFrom("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
    nodeName: fc.constantFrom("n1", "n1", "n2", undefined),
    hostNetwork: fc.constantFrom(false, false, false, true),
    phase: fc.constantFrom("Running", "Running", "Pending", "Failed", "Succeeded"),
    addresses: fc.subarray(ADDRESSES, { maxLength: 2 }),
    containers,
    sidecar: fc.constantFrom("Always", undefined),
    deleted: fc.constantFrom(undefined, undefined, "2026-01-03T00:00:00Z"),
    ended: fc.array(fc.boolean(), { minLength: 2, maxLength: 2 }),
  }).map((
    {
      labels,
      created,
      nodeName,
      hostNetwork,
      phase,
      addresses,
      containers,
      sidecar,
      deleted,
      ended,
    },
  ) => ({
    metadata: {
      name,
      namespace,
      labels,
      creationTimestamp: created,
      ...(deleted && { deletionTimestamp: deleted }),
    },
    spec: {
      ...(nodeName && { nodeName }),
      hostNetwork,
      containers: containers.slice(0, 1),
      initContainers: containers.slice(1).map((each) => ({
        ...each,
        ...(sidecar && { restartPolicy: sidecar }),
      })),
    },
    status: {
      phase,
      podIPs: addresses.map((ip) => ({ ip })),
      containerStatuses: ended.slice(0, 1).map(containerStatus),
      initContainerStatuses: containers.slice(1).map((_) => containerStatus(ended[1]!)),
    },
  }));
}

const named = fc.record({
  namespace: fc.constantFrom(...NAMESPACES),
  name: fc.constantFrom("a", "b", "c"),
});

function maybe<T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> {
  return fc.option(arbitrary, { nil: undefined, freq: 5 });
}

const event: fc.Arbitrary<ClusterEvent> = fc.oneof(
  {
    weight: 5,
    arbitrary: named.chain(({ namespace, name }) =>
      maybe(podNamed(namespace, name)).map((object) => ({
        kind: "pod" as const,
        key: `${namespace}/${name}`,
        object,
      }))
    ),
  },
  {
    weight: 1,
    arbitrary: fc.record({ key: fc.constantFrom(...NAMESPACES), labels: maybe(labels) }).map((
      { key, labels },
    ) => ({
      kind: "namespace" as const,
      key,
      object: labels && { metadata: { name: key, labels } },
    })),
  },
  {
    weight: 4,
    arbitrary: fc.record({ key: fc.constantFrom("p", "q", "r"), spec: maybe(clusterSpec) }).map((
      { key, spec },
    ) => ({
      kind: "cluster policy" as const,
      key,
      object: spec && { metadata: { name: key }, spec },
    })),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      key: fc.constantFrom("n1", "n2", "n3"),
      node: maybe(fc.record({
        labels,
        addresses: fc.subarray([...ADDRESSES.slice(3), ...Object.values(OUTSIDE), "n1.example"]),
      })),
    }).map(({ key, node }) => ({
      kind: "node" as const,
      key,
      object: node && {
        metadata: { name: key, labels: node.labels },
        status: { addresses: node.addresses.map((address) => ({ address })) },
      },
    })),
  },
  {
    weight: 1,
    arbitrary: fc.record({ named, broken }).map(({ named, broken: { raw, meaning } }) => ({
      kind: "policy" as const,
      key: `${named.namespace}/${named.name}`,
      object: readPolicy(named, raw),
      meaning: { metadata: named, spec: meaning },
    })),
  },
  {
    weight: 4,
    arbitrary: fc.record({ named, spec: maybe(spec) }).map(({ named, spec }) => ({
      kind: "policy" as const,
      key: `${named.namespace}/${named.name}`,
      object: spec && { metadata: named, spec },
    })),
  },
);

/** Events in any order. */
export const clusterHistory: fc.Arbitrary<readonly ClusterEvent[]> = fc.array(event, {
  minLength: 8,
  maxLength: 40,
  size: "max",
});

const ONE_LABEL = fc.constantFrom({}, { constructor: "a" }, { app: "a" });

const oneTerm: fc.Arbitrary<LabelSelectorSpec> = fc.oneof(
  fc.constantFrom({}, { matchLabels: { app: "a" } }),
  fc.record({
    key: fc.constantFrom("app", "constructor"),
    operator: fc.constantFrom("Exists", "DoesNotExist"),
  }).map((each) => ({ matchExpressions: [each] })),
);

const smallSpec: fc.Arbitrary<NetworkPolicySpec> = fc.record({
  podSelector: fc.constant({}),
  policyTypes: fc.constant(["Ingress"]),
  ingress: fc.array(
    fc.record({
      from: fc.array(
        fc.record({ namespaceSelector: oneTerm, podSelector: oneTerm }, {
          requiredKeys: ["namespaceSelector"],
        }),
        { minLength: 1, maxLength: 1 },
      ),
      ports: fc.subarray(PORTS.slice(0, 3)).map((found) => found.map((port) => ({ port }))),
    }),
    { maxLength: 2 },
  ),
});

const smallEvent: fc.Arbitrary<ClusterEvent> = fc.oneof(
  fc.record({
    namespace: fc.constantFrom(...NAMESPACES),
    name: fc.constantFrom("a", "b"),
    nodeName: fc.constantFrom("n1", "n1", "n2"),
    created: fc.constantFrom("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
    labels: ONE_LABEL,
    address: fc.constantFrom(...ADDRESSES.slice(0, 2)),
    isDeleted: fc.boolean(),
    isGone: fc.constantFrom(false, false, false, true),
  }).map((
    { namespace, name, nodeName, created, labels, address, isDeleted, isGone },
  ): ClusterEvent => ({
    kind: "pod",
    key: `${namespace}/${name}`,
    object: isGone ? undefined : {
      metadata: {
        name,
        namespace,
        labels,
        creationTimestamp: created,
        ...(isDeleted && { deletionTimestamp: "2026-01-03T00:00:00Z" }),
      },
      spec: { nodeName, containers: [{}] },
      status: { phase: "Running", podIPs: [{ ip: address }] },
    },
  })),
  fc.record({ key: fc.constantFrom(...NAMESPACES), labels: maybe(ONE_LABEL) }).map((
    { key, labels },
  ): ClusterEvent => ({
    kind: "namespace",
    key,
    object: labels && { metadata: { name: key, labels } },
  })),
  fc.record({ namespace: fc.constantFrom(...NAMESPACES), spec: maybe(smallSpec) }).map((
    { namespace, spec },
  ): ClusterEvent => ({
    kind: "policy",
    key: `${namespace}/p`,
    object: spec && { metadata: { name: "p", namespace }, spec },
  })),
);

const smallClusterEvent: fc.Arbitrary<ClusterEvent> = fc.record({
  key: fc.constantFrom("p", "q"),
  spec: maybe(fc.record({
    tier: fc.constantFrom("Admin", "Baseline"),
    priority: fc.constantFrom(0, 1),
    subject: fc.record({ namespaces: oneTerm }),
    ingress: fc.array(
      fc.record({
        action: fc.constantFrom("Accept", "Deny", "Pass"),
        from: fc.record({ namespaceSelector: oneTerm, podSelector: oneTerm })
          .map((pods) => [{ pods }]),
      }),
      { minLength: 1, maxLength: 2 },
    ),
  })),
}).map(({ key, spec }) => ({
  kind: "cluster policy" as const,
  key,
  object: spec && { metadata: { name: key }, spec },
}));

/**
 * Updates of several events each, in a world of two pods in each namespace, two addresses, two nodes and a
 * policy in each namespace: so small that events of one update concern the same objects.
 */
export const smallUpdates: fc.Arbitrary<readonly (readonly ClusterEvent[])[]> = fc.array(
  fc.array(fc.oneof({ weight: 3, arbitrary: smallEvent }, smallClusterEvent), {
    minLength: 1,
    maxLength: 5,
    size: "max",
  }),
  { minLength: 3, maxLength: 6, size: "max" },
);
