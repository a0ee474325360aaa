/**
 * The meaning of NetworkPolicies, as one table: the connectivity cases of Kubernetes' own suite,
 * and cases in which other implementations are wrong.
 */
import type { LabelSelectorSpec, NetworkPolicySpec } from "../../lib/api/kinds/network_policy.ts";
import type { Protocol } from "../../lib/net/port.ts";
import { CLUSTER_CASES } from "./cluster_cases.ts";
import type { CaseAddresses, CasePolicy, PolicyCase, PolicyExpectation } from "./policy_case.ts";

type Rows = PolicyExpectation["rows"];

const pod = (name: string): LabelSelectorSpec => ({ matchLabels: { pod: name } });
const ns = (name: string): LabelSelectorSpec => ({ matchLabels: { ns: name } });
const oneOf = (key: string, ...values: string[]): LabelSelectorSpec => ({
  matchExpressions: [{ key, operator: "In", values }],
});
const noneOf = (key: string, ...values: string[]): LabelSelectorSpec => ({
  matchExpressions: [{ key, operator: "NotIn", values }],
});

function policy(
  namespace: string,
  spec: CasePolicy["spec"],
  name = "p",
): CasePolicy {
  return { namespace, name, spec };
}

/** Ingress of `x/a`. */
function toA(...ingress: NonNullable<NetworkPolicySpec["ingress"]>): NetworkPolicySpec {
  return { podSelector: pod("a"), policyTypes: ["Ingress"], ingress };
}

/** Egress of `x/a`. */
function fromA(...egress: NonNullable<NetworkPolicySpec["egress"]>): NetworkPolicySpec {
  return { podSelector: pod("a"), policyTypes: ["Egress"], egress };
}

const DENY_INGRESS: NetworkPolicySpec = { podSelector: {}, policyTypes: ["Ingress"] };
const DENY_EGRESS: NetworkPolicySpec = { podSelector: {}, policyTypes: ["Egress"] };
const DENY_ALL: NetworkPolicySpec = { podSelector: {}, policyTypes: ["Ingress", "Egress"] };

function on(port: number, rows: Rows, protocol: Protocol = "TCP"): PolicyExpectation {
  return { protocol, port, rows };
}

/** Only these reach `x/a`; everything else is open. */
function onlyToA(...from: string[]): Rows {
  return [["*", "x/a", false], ...from.map((each) => [each, "x/a", true] as const)];
}

/** `x/a` reaches only these; everything else is open. */
function onlyFromA(...to: string[]): Rows {
  return [["x/a", "*", false], ...to.map((each) => ["x/a", each, true] as const)];
}

/** A case of one step and one policy. */
function simple(
  [upstream, name]: readonly [upstream: number, name: string],
  spec: CasePolicy["spec"],
  ...expected: readonly PolicyExpectation[]
): PolicyCase {
  return { name, upstream, steps: [{ policies: [policy("x", spec)], expected }] };
}

/** The cases that Kubernetes has for each protocol. */
function protocolCases(protocol: Protocol, lines: readonly [number, number, number]) {
  return [
    simple(
      [lines[0], `deny all ingress, ${protocol}`],
      DENY_INGRESS,
      on(80, [["*", "x/*", false]], protocol),
    ),
    simple(
      [lines[1], `one port, ${protocol}`],
      toA({ from: [{ namespaceSelector: ns("y") }], ports: [{ protocol, port: 81 }] }),
      on(81, onlyToA("y/*"), protocol),
      on(80, onlyToA(), protocol),
      ...(protocol === "TCP" ? [] : [on(81, onlyToA())]),
    ),
    simple(
      [lines[2], `a pod of another namespace, ${protocol}`],
      toA({ from: [{ namespaceSelector: ns("y"), podSelector: pod("a") }] }),
      on(80, onlyToA("y/a"), protocol),
    ),
  ] as const;
}

const [TCP_DENY, TCP_PORT, TCP_POD] = protocolCases("TCP", [80, 438, 407]);

/** The connectivity cases of Kubernetes. */
export const UPSTREAM_CASES: readonly PolicyCase[] = [
  TCP_DENY,
  simple(
    [110, "deny all, both ways"],
    DENY_ALL,
    on(80, [["x/*", "*", false], ["*", "x/*", false]]),
  ),
  simple(
    [129, "a peer by podSelector is one of the policy's namespace"],
    toA({ from: [{ podSelector: pod("b") }] }),
    on(80, onlyToA("x/b")),
  ),
  {
    name: "deny all, and allow all to one pod",
    upstream: 155,
    steps: [{
      policies: [policy("x", DENY_INGRESS), policy("x", toA({}), "q")],
      expected: [on(80, [["*", "x/*", false], ["*", "x/a", true]])],
    }],
  },
  simple(
    [182, "an empty namespaceSelector is any namespace"],
    toA({ from: [{ namespaceSelector: {} }] }),
    on(80, []),
  ),
  simple(
    [200, "one namespace"],
    toA({ from: [{ namespaceSelector: ns("y") }] }),
    on(80, onlyToA("y/*")),
  ),
  simple(
    [222, "pods by matchExpressions"],
    toA({ from: [{ podSelector: oneOf("pod", "b") }] }),
    on(80, onlyToA("x/b")),
  ),
  simple(
    [249, "namespaces by matchExpressions"],
    toA({ from: [{ namespaceSelector: oneOf("ns", "y") }] }),
    on(80, onlyToA("y/*")),
  ),
  simple(
    [278, "two peers are either of them"],
    toA({ from: [{ podSelector: oneOf("pod", "b") }, { namespaceSelector: oneOf("ns", "y") }] }),
    on(80, onlyToA("y/*", "x/b")),
  ),
  simple(
    [312, "two selectors of one peer are both"],
    toA({ from: [{ namespaceSelector: oneOf("ns", "y"), podSelector: oneOf("pod", "b") }] }),
    on(80, onlyToA("y/b")),
  ),
  simple(
    [347, "several pods of several namespaces"],
    toA({
      from: [{ namespaceSelector: noneOf("ns", "x"), podSelector: oneOf("pod", "b", "c") }],
    }),
    on(80, onlyToA("y/b", "y/c", "z/b", "z/c")),
  ),
  simple(
    [382, "any of several podSelectors"],
    toA({ from: [{ podSelector: pod("b") }, { podSelector: pod("c") }] }),
    on(80, onlyToA("x/b", "x/c")),
  ),
  TCP_POD,
  TCP_PORT,
  {
    name: "two policies for one pod add up",
    upstream: 468,
    steps: [80, 81].map((second) => ({
      policies: [...new Set([80, second])].map((port) =>
        policy("x", toA({ from: [{ namespaceSelector: ns("y") }], ports: [{ port }] }), `p${port}`)
      ),
      expected: [on(80, onlyToA("y/*")), on(81, second === 81 ? onlyToA("y/*") : onlyToA())],
    })),
  },
  simple(
    [513, "an empty rule allows everything"],
    { podSelector: {}, ingress: [{}] },
    on(80, []),
    on(81, []),
  ),
  simple(
    [531, "a named port"],
    toA({ ports: [{ port: "serve-81-tcp" }] }),
    on(81, []),
    on(80, onlyToA()),
  ),
  simple(
    [555, "a named port from one namespace"],
    toA({ from: [{ namespaceSelector: ns("x") }], ports: [{ port: "serve-80-tcp" }] }),
    on(80, onlyToA("x/*")),
    on(81, onlyToA()),
  ),
  simple(
    [590, "egress to a named port of anyone"],
    fromA({ ports: [{ port: "serve-80-tcp" }] }),
    on(80, []),
    on(81, onlyFromA()),
  ),
  {
    name: "a policy that is changed from allow to deny",
    upstream: 613,
    steps: [
      { policies: [policy("x", { podSelector: {}, ingress: [{}] })], expected: [on(81, [])] },
      { policies: [policy("x", DENY_INGRESS)], expected: [on(81, [["*", "x/*", false]])] },
    ],
  },
  {
    name: "a label of a namespace that is changed",
    upstream: 639,
    steps: [{}, { y: { new: "yes" } }].map((labels) => ({
      policies: [
        policy("x", toA({ from: [{ namespaceSelector: { matchLabels: { new: "yes" } } }] })),
      ],
      labels: { y: {}, ...labels },
      expected: [on(80, "new" in (labels.y ?? {}) ? onlyToA("y/*") : onlyToA())],
    })),
  },
  {
    name: "a label of a peer that is changed",
    upstream: 672,
    steps: [{}, { "x/b": { new: "yes" } }].map((labels) => ({
      policies: [policy("x", toA({ from: [{ podSelector: { matchLabels: { new: "yes" } } }] }))],
      labels,
      expected: [on(80, "x/b" in labels ? onlyToA("x/b") : onlyToA())],
    })),
  },
  simple(
    [703, "deny other namespaces"],
    { podSelector: {}, ingress: [{ from: [{ podSelector: {} }] }] },
    on(80, [["*", "x/*", false], ["x/*", "x/*", true]]),
  ),
  {
    name: "a label of the isolated pod that is changed",
    upstream: 724,
    steps: [{}, { "x/a": { target: "isolated" } }].map((labels) => ({
      policies: [
        policy("x", { podSelector: { matchLabels: { target: "isolated" } }, ingress: [] }),
      ],
      labels,
      expected: [on(80, "x/a" in labels ? onlyToA() : [])],
    })),
  },
  simple([749, "deny egress of a pod"], fromA(), on(80, onlyFromA())),
  simple([766, "deny egress of a namespace"], DENY_EGRESS, on(80, [["x/*", "*", false]])),
  simple(
    [783, "ingress and egress in one policy"],
    {
      podSelector: pod("a"),
      policyTypes: ["Ingress", "Egress"],
      ingress: [{ from: [{ podSelector: pod("b") }] }],
      egress: [{ ports: [{ port: 80 }] }],
    },
    on(80, onlyToA("x/b")),
    on(81, [...onlyToA("x/b"), ["x/a", "*", false]]),
  ),
  {
    name: "the client's denial wins over the server's permission",
    upstream: 825,
    steps: [{
      policies: [
        policy("x", fromA({ to: [{ namespaceSelector: ns("y"), podSelector: pod("a") }] })),
        policy("y", {
          podSelector: oneOf("pod", "a", "b"),
          ingress: [{ from: [{ namespaceSelector: ns("x"), podSelector: pod("a") }] }],
        }),
      ],
      expected: [
        on(80, [
          ["*", "y/a", false],
          ["*", "y/b", false],
          ["x/a", "*", false],
          ["x/a", "y/a", true],
        ]),
      ],
    }],
  },
  simple(
    [883, "egress to a pod of another namespace"],
    {
      podSelector: {},
      policyTypes: ["Egress"],
      egress: [{ to: [{ namespaceSelector: ns("y"), podSelector: pod("a") }] }],
    },
    on(80, [["x/*", "*", false], ["x/*", "y/a", true]]),
  ),
  simple(
    [912, "a protocol without a port is all its ports"],
    toA({ ports: [{ protocol: "TCP" }] }),
    on(80, []),
    on(81, []),
    on(80, onlyToA(), "UDP"),
    on(80, onlyToA(), "SCTP"),
  ),
  {
    name: "allow all ingress wins over a restrictive policy",
    upstream: 933,
    steps: [false, true].map((isOpen) => ({
      policies: [
        policy("x", { podSelector: {}, ingress: [{ from: [{ podSelector: pod("b") }] }] }),
        ...(isOpen ? [policy("x", { podSelector: {}, ingress: [{}] }, "open")] : []),
      ],
      expected: [on(81, isOpen ? [] : [["*", "x/*", false], ["x/b", "x/*", true]])],
    })),
  },
  {
    name: "allow all egress wins over a restrictive policy",
    upstream: 961,
    steps: [false, true].map((isOpen) => ({
      policies: [
        policy("x", fromA({ ports: [{ port: 80 }] })),
        ...(isOpen ? [policy("x", fromA({}), "open")] : []),
      ],
      expected: [on(81, isOpen ? [] : onlyFromA()), on(80, [])],
    })),
  },
  {
    name: "deleted policies isolate no more",
    upstream: 989,
    steps: [
      {
        policies: [policy("x", DENY_ALL)],
        expected: [on(80, [["x/*", "*", false], ["*", "x/*", false]])],
      },
      { policies: [], expected: [on(80, [])] },
    ],
  },
  simple(
    [1019, "egress to a block"],
    ({ blockOf }) => fromA({ to: [{ ipBlock: { cidr: blockOf("y/b") } }] }),
    on(80, onlyFromA("y/b")),
  ),
  simple(
    [1050, "egress to a block with an exception"],
    ({ range, blockOf }) => fromA({ to: [{ ipBlock: { cidr: range, except: [blockOf("y/b")] } }] }),
    on(80, [["x/a", "y/b", false]]),
  ),
  {
    name: "an exception of one rule is allowed by another",
    upstream: 1085,
    steps: [false, true].map((isUpdated) => ({
      policies: [
        policy("x", ({ range, blockOf }) =>
          fromA(
            { to: [{ ipBlock: { cidr: range, except: [blockOf("x/b")] } }] },
            ...(isUpdated ? [{ to: [{ ipBlock: { cidr: blockOf("x/b") } }] }] : []),
          )),
      ],
      expected: [on(80, isUpdated ? [] : [["x/a", "x/b", false]])],
    })),
  },
  {
    name: "ingress and egress are independent",
    upstream: 1135,
    steps: [
      {
        policies: [
          policy("x", toA({ from: [{ podSelector: pod("b") }] })),
          policy("x", fromA({ to: [{ podSelector: pod("b") }] }), "q"),
        ],
        expected: [on(80, [...onlyToA("x/b"), ...onlyFromA("x/b")])],
      },
      {
        policies: [
          policy("x", toA({ from: [{ podSelector: pod("b") }] })),
          policy("x", fromA(), "q"),
        ],
        expected: [on(80, [...onlyToA("x/b"), ...onlyFromA()])],
      },
    ],
  },
  {
    name: "SCTP is not taken for TCP",
    upstream: 1176,
    steps: [
      { policies: [policy("x", DENY_INGRESS)], expected: [on(81, [["*", "x/*", false]])] },
      {
        policies: [
          policy("x", DENY_INGRESS),
          policy("x", toA({ ports: [{ protocol: "SCTP", port: 81 }] }), "q"),
        ],
        expected: [on(81, [["*", "x/*", false]])],
      },
    ],
  },
  simple(
    [1204, "a policy of SCTP alone isolates"],
    toA({ ports: [{ protocol: "SCTP", port: 80 }] }),
    on(80, onlyToA()),
    on(81, onlyToA()),
  ),
  simple(
    [1224, "a policy of UDP alone does not open TCP"],
    toA({ ports: [{ protocol: "UDP", port: 81 }] }),
    on(81, onlyToA()),
    on(81, [], "UDP"),
  ),
  simple(
    [1246, "a namespace by its name"],
    toA({ from: [{ namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "y" } } }] }),
    on(80, onlyToA("y/*")),
  ),
  simple(
    [1273, "all namespaces but one, by its name"],
    toA({ from: [{ namespaceSelector: noneOf("kubernetes.io/metadata.name", "x") }] }),
    on(80, onlyToA("y/*", "z/*")),
  ),
  ...protocolCases("UDP", [1313, 1331, 1360]),
  ...protocolCases("SCTP", [1405, 1423, 1452]),
];

/** Every address but 128 single ones, and but these pods or blocks. */
function scattered({ range, blockOf }: CaseAddresses, except: readonly string[]) {
  const isIPv6 = range.includes(":");
  const single = Array.from(
    { length: 128 },
    (_, index) => isIPv6 ? `2001:db8:${index + 1}::5/128` : `198.51.100.${2 * index}/32`,
  );
  const others = except.map((each) => each === range ? range : blockOf(each));
  return { ipBlock: { cidr: isIPv6 ? "::/0" : "0.0.0.0/0", except: [...single, ...others] } };
}

/** Cases that kube-router gets wrong, or where it is easy to be wrong. */
export const MORE_CASES: readonly PolicyCase[] = [
  {
    name: "a named port that no pod has opens nothing",
    steps: [{
      policies: [policy("x", toA({ from: [{ podSelector: {} }], ports: [{ port: "none" }] }))],
      expected: [on(80, onlyToA()), on(81, onlyToA())],
    }],
  },
  {
    name: "a named port that no peer has opens nothing",
    steps: [{
      policies: [policy("x", fromA({ to: [{ podSelector: {} }], ports: [{ port: "none" }] }))],
      expected: [on(80, onlyFromA()), on(81, onlyFromA())],
    }],
  },
  {
    name: "a name counts for its protocol only",
    steps: [{
      policies: [policy("x", toA({ ports: [{ protocol: "UDP", port: "serve-80-tcp" }] }))],
      expected: [on(80, onlyToA()), on(80, onlyToA(), "UDP")],
    }],
  },
  {
    name: "egress to a named port of a block is to pods in it",
    steps: [{
      policies: [
        policy("x", ({ range, blockOf }) =>
          fromA({
            to: [{ ipBlock: { cidr: range, except: [blockOf("y/b")] } }],
            ports: [{ port: "serve-80-tcp" }],
          })),
      ],
      expected: [on(80, [["x/a", "y/b", false]]), on(81, onlyFromA())],
    }],
  },
  {
    name: "an exception counts for its own block only",
    steps: [{
      policies: [
        policy("x", ({ range, blockOf }) =>
          fromA({
            to: [
              { ipBlock: { cidr: range, except: [blockOf("y/a"), blockOf("y/b")] } },
              { ipBlock: { cidr: blockOf("y/b") } },
            ],
          })),
      ],
      expected: [on(80, [["x/a", "y/a", false]])],
    }, {
      policies: [
        policy("x", ({ range, blockOf }) =>
          fromA({
            to: [
              { ipBlock: { cidr: range, except: [blockOf("y/a")] } },
              { ipBlock: { cidr: range, except: [blockOf("y/b")] } },
            ],
          })),
      ],
      expected: [on(80, [])],
    }],
  },
  {
    name: "scattered exceptions of every address, and a block inside one of them",
    steps: [{
      policies: [policy("x", (addresses) => fromA({ to: [scattered(addresses, ["y/b"])] }))],
      expected: [on(80, [["x/a", "y/b", false]])],
    }, {
      policies: [
        policy("x", (addresses) =>
          fromA({
            to: [
              scattered(addresses, [addresses.range]),
              { ipBlock: { cidr: addresses.blockOf("y/b") } },
              { ipBlock: { cidr: addresses.range, except: [addresses.range] } },
            ],
          })),
      ],
      expected: [on(80, onlyFromA("y/b"))],
    }],
  },
  {
    name: "the whole internet is every address",
    steps: [{
      policies: [
        policy(
          "x",
          fromA({ to: [{ ipBlock: { cidr: "0.0.0.0/0" } }, { ipBlock: { cidr: "::/0" } }] }),
        ),
      ],
      expected: [on(80, [])],
    }],
  },
  {
    name: "a block of the other family opens nothing",
    steps: [{
      policies: [
        policy(
          "x",
          ({ range }) =>
            fromA({ to: [{ ipBlock: { cidr: range.includes(":") ? "0.0.0.0/0" : "::/0" } }] }),
        ),
      ],
      expected: [on(80, onlyFromA())],
    }],
  },
  {
    name: "a range of ports",
    steps: [{
      policies: [policy("x", toA({ ports: [{ port: 81, endPort: 90 }] }))],
      expected: [on(80, onlyToA()), on(81, [])],
    }],
  },
  {
    name: "ports and names of one rule add up",
    steps: [{
      policies: [
        policy(
          "x",
          fromA({ to: [{ podSelector: {} }], ports: [{ port: "serve-80-tcp" }, { port: 81 }] }),
        ),
        policy("x", toA({ ports: [{ port: "serve-80-tcp" }, { port: 81 }] }), "q"),
      ],
      expected: [80, 81].map((port) => on(port, onlyFromA("x/*"))),
    }],
  },
  {
    name: "an unknown field opens nothing and isolates",
    steps: [
      toA({ ports: [{ protocol: "QUIC", port: 80 }] }),
      toA({ ports: [{ port: "serve-80-tcp", endPort: 90 }] }),
      toA({ ports: [{ port: 90, endPort: 80 }] }),
      toA({ from: [{}] }),
      toA({ from: [{ podSelector: {}, unknownFields: ["nodeSelector"] }] }),
      toA({ from: [{ podSelector: {}, ipBlock: { cidr: "0.0.0.0/0" } }] }),
      toA({ from: [{ ipBlock: { cidr: "10.0.0.0/80" } }] }),
      toA({ from: [{ ipBlock: { cidr: "0.0.0.0/0", except: ["x"] } }] }),
      toA({ from: [{ ipBlock: { unknownFields: ["ranges"] } }] }),
      toA({ from: [{ podSelector: { matchExpressions: [{ unknownFields: ["name"] }] } }] }),
      toA({ unknownFields: ["when"] }),
      toA({
        from: [{
          podSelector: { matchExpressions: [{ key: "a", operator: "Near", values: ["b"] }] },
        }],
      }),
      { ...toA({}), unknownFields: ["priority"] },
      { podSelector: { ...pod("a"), unknownFields: ["matchFields"] }, ingress: [{}] },
      { podSelector: pod("a"), policyTypes: ["Forward"], egress: [{}] },
    ].map((spec) => ({
      policies: [policy("x", spec)],
      expected: [on(80, onlyToA()), on(80, onlyToA(), "UDP")],
    })),
  },
];

/** Another pod has the address of a deleted one by now, whichever is older. */
const FORMER_PODS: readonly PolicyCase[] = [true, false].map((isEnded): PolicyCase => ({
  name: `an address that was handed on is that of the live pod (${
    isEnded ? "the other one has ended" : "the other one is being deleted"
  })`,
  steps: ["2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"].flatMap((created) => [{
    // As a peer: the deleted pod is allowed, the live one is not.
    formerPods: [{ key: "x/old", holder: "y/b", created, isEnded }],
    policies: [
      policy("x", toA({ from: [{ podSelector: pod("old") }] })),
      policy(
        "x",
        fromA({ to: [{ podSelector: pod("old") }], ports: [{ port: "serve-80-tcp" }] }),
        "q",
      ),
    ],
    expected: [on(80, [...onlyToA(), ...onlyFromA()]), on(81, [...onlyToA(), ...onlyFromA()])],
  }, {
    // As a peer: the live pod is allowed, the deleted one is not.
    formerPods: [{ key: "x/old", holder: "y/b", created, isEnded }],
    policies: [policy("x", toA({ from: [{ namespaceSelector: ns("y") }] }))],
    expected: [on(80, onlyToA("y/*"))],
  }, {
    // The live pod is isolated, the deleted one is not; and the other way round.
    formerPods: [
      { key: "z/old", holder: "x/a", created, isEnded },
      { key: "x/old", holder: "z/a", created, isEnded },
    ],
    policies: [policy("x", DENY_INGRESS)],
    expected: [on(80, [["*", "x/*", false]])],
  }]),
}));

/** All cases. */
export const POLICY_CASES: readonly PolicyCase[] = [
  ...UPSTREAM_CASES,
  ...MORE_CASES,
  ...FORMER_PODS,
  ...CLUSTER_CASES,
];
