/**
 * The meaning of ClusterNetworkPolicies, next to NetworkPolicies, as one table. The first cases are those
 * of the conformance suite of the working group.
 */
import type {
  ClusterNetworkPolicySpec,
  ClusterPolicyRule,
} from "../../lib/api/kinds/cluster_network_policy.ts";
import type { LabelSelectorSpec } from "../../lib/api/kinds/network_policy.ts";
import { type Protocol, PROTOCOLS } from "../../lib/net/port.ts";
import type {
  CaseAddresses,
  CaseClusterPolicy,
  CasePolicy,
  PolicyCase,
  PolicyExpectation,
  PolicyStep,
} from "./policy_case.ts";

type Rows = PolicyExpectation["rows"];
type Action = "Accept" | "Deny" | "Pass";
type Rule = Partial<ClusterPolicyRule>;

const ns = (name: string): LabelSelectorSpec => ({ matchLabels: { ns: name } });
const pod = (name: string): LabelSelectorSpec => ({ matchLabels: { pod: name } });
/** Peers: all pods of some namespaces. */
const of = (...names: string[]) => names.map((name) => ({ namespaces: ns(name) }));
const ANYONE = [{ namespaces: {} }];

const accept = (rule: Rule): Rule => ({ action: "Accept", ...rule });
const deny = (rule: Rule): Rule => ({ action: "Deny", ...rule });
const pass = (rule: Rule): Rule => ({ action: "Pass", ...rule });

/** One port of one protocol. */
function port(number: number, protocol: Protocol = "TCP") {
  return [{ [protocol.toLowerCase()]: { destinationPort: { number } } }];
}

/** A policy for the pods of namespace x. */
function forX(
  tier: string,
  spec: { readonly ingress?: readonly Rule[]; readonly egress?: readonly Rule[] },
  { name = "p", priority = 10, subject = { namespaces: ns("x") } }: {
    readonly name?: string;
    readonly priority?: number;
    readonly subject?: ClusterNetworkPolicySpec["subject"];
  } = {},
): CaseClusterPolicy {
  return { name, spec: { tier, priority, subject, ...spec } as ClusterNetworkPolicySpec };
}

const admin = forX.bind(undefined, "Admin");
const baseline = forX.bind(undefined, "Baseline");

function on(number: number, rows: Rows, protocol: Protocol = "TCP"): PolicyExpectation {
  return { protocol, port: number, rows };
}

/** These do not reach the pods of x; everything else is open. */
const notToX = (...from: string[]): Rows => from.map((each) => [each, "x/*", false]);
/** The pods of x do not reach these. */
const notFromX = (...to: string[]): Rows => to.map((each) => ["x/*", each, false]);

function networkPolicy(spec: CasePolicy["spec"], name = "p"): CasePolicy {
  return { namespace: "x", name, spec };
}

const ISOLATED = networkPolicy({ podSelector: {}, policyTypes: ["Ingress"] });
const FROM_Y = networkPolicy({
  podSelector: {},
  policyTypes: ["Ingress"],
  ingress: [{ from: [{ namespaceSelector: ns("y") }] }],
});

/** A case of one step with one policy. */
function simple(
  name: string,
  policy: CaseClusterPolicy,
  ...expected: readonly PolicyExpectation[]
): PolicyCase {
  return { name, steps: [{ clusterPolicies: [policy], expected }] };
}

function steps(name: string, ...found: readonly PolicyStep[]): PolicyCase {
  return { name, steps: found };
}

const TIERS = { Admin: admin, Baseline: baseline } as const;

/** What both tiers have, by protocol, direction and priority. */
const OF_BOTH_TIERS = Object.entries(TIERS).flatMap(([tier, policy]): readonly PolicyCase[] => [
  ...PROTOCOLS.flatMap((protocol) => {
    const rules = (side: "from" | "to") => [
      accept({ [side]: of("y"), protocols: port(80, protocol) }),
      deny({ [side]: of("y") }),
    ];
    const others = PROTOCOLS.filter((each) => each !== protocol).slice(0, 1);
    return [
      simple(
        `${tier}: ingress of one port of ${protocol}, all else of a namespace denied`,
        policy({ ingress: rules("from") }),
        on(80, [], protocol),
        on(81, notToX("y/*"), protocol),
        ...others.map((other) => on(80, notToX("y/*"), other)),
      ),
      simple(
        `${tier}: egress to one port of ${protocol}, all else of a namespace denied`,
        policy({ egress: rules("to") }),
        on(80, [], protocol),
        on(81, notFromX("y/*"), protocol),
        ...others.map((other) => on(80, notFromX("y/*"), other)),
      ),
    ];
  }),
  simple(
    `${tier}: the first rule that matches counts`,
    policy({
      ingress: [deny({ from: of("y") }), accept({ from: ANYONE }), deny({ from: of("z") })],
    }),
    on(80, notToX("y/*")),
  ),
  steps(
    `${tier}: the smaller priority counts first, then the name`,
    ...([[1, 2], [2, 1], [0, 1000], [5, 5]] as const).map(([one, other]) => ({
      clusterPolicies: [
        policy({ ingress: [accept({ from: of("y") })] }, { name: "b", priority: other }),
        policy({ ingress: [deny({ from: of("y", "z") })] }, { name: "a", priority: one }),
      ],
      expected: [on(80, one <= other ? notToX("y/*", "z/*") : notToX("z/*"))],
    })),
  ),
  simple(
    `${tier}: Pass skips the other rules of the tier`,
    policy({ ingress: [pass({ from: of("y") }), deny({ from: ANYONE })] }),
    on(80, [["*", "x/*", false], ["y/*", "x/*", true]]),
  ),
  simple(
    `${tier}: rules of both directions, which isolate nothing by themselves`,
    policy({
      ingress: [accept({ from: of("z") }), deny({ from: of("y"), protocols: port(80) })],
      egress: [deny({ to: of("y"), protocols: port(81) })],
    }),
    on(80, notToX("y/*")),
    on(81, notFromX("y/*")),
  ),
  simple(
    `${tier}: Accept of the sender does not spare the receiver`,
    policy(
      { egress: [accept({ to: ANYONE })], ingress: [deny({ from: of("y") })] },
      { subject: { namespaces: {} } },
    ),
    on(80, [["y/*", "*", false]]),
  ),
  steps(
    `${tier}: pods and namespaces that get and lose labels`,
    ...[{}, { y: { on: "" } }, { y: { on: "" }, "y/a": { on: "" } }, { "y/a": { on: "" } }].map(
      (labels): PolicyStep => {
        const selected: LabelSelectorSpec = {
          matchExpressions: [{ key: "on", operator: "Exists" }],
        };
        const both = { namespaceSelector: selected, podSelector: selected };
        const [all, one] = ["y" in labels, "y" in labels && "y/a" in labels];
        return {
          clusterPolicies: [
            policy({ ingress: [deny({ from: of("z") })] }, { subject: { namespaces: selected } }),
            policy({ egress: [deny({ to: of("z") })] }, { name: "q", subject: { pods: both } }),
            policy({ ingress: [deny({ from: [{ pods: both }] })] }, { name: "r" }),
          ],
          labels,
          expected: [on(80, [
            ...(all ? [["z/*", "y/*", false] as const] : []),
            ...(one ? [["y/a", "z/*", false], ["y/a", "x/*", false]] as const : []),
          ])],
        };
      },
    ),
  ),
  steps(
    `${tier}: networks, which match pods as well`,
    ...([
      [({ range }) => [range], notFromX("*")],
      [({ blockOf }) => [blockOf("y/a"), blockOf("z/b")], notFromX("y/a", "z/b")],
      [() => ["0.0.0.0/0", "::/0"], notFromX("*")],
      [({ range }) => [range.includes(":") ? "0.0.0.0/0" : "::/0"], []],
    ] as const satisfies readonly (readonly [(addresses: CaseAddresses) => string[], Rows])[]).map((
      [networks, rows],
    ): PolicyStep => ({
      clusterPolicies: [{
        name: "p",
        spec: (addresses) =>
          policy({
            egress: [deny({ to: [{ networks: networks(addresses) }] })],
          }).spec as ClusterNetworkPolicySpec,
      }],
      expected: [on(80, rows), on(80, rows, "UDP")],
    })),
  ),
  steps(
    `${tier}: nodes by their labels, one of which is taken away`,
    ...[{ role: "edge" }, {}].map((labels): PolicyStep => ({
      nodes: { "z/c": { role: "edge" }, "y/b": labels, "y/c": {} },
      clusterPolicies: [
        policy({ egress: [deny({ to: [{ nodes: { matchLabels: { role: "edge" } } }] })] }),
        policy({ egress: [deny({ to: [{ nodes: {} }], protocols: port(81) })] }, { name: "q" }),
      ],
      expected: [
        on(80, notFromX("z/c", ...("role" in labels ? ["y/b"] : []))),
        on(81, notFromX("z/c", "y/b", "y/c")),
      ],
    })),
  ),
  simple(
    `${tier}: named ports are those of the receiver`,
    policy({
      ingress: [deny({ from: of("y"), protocols: [{ destinationNamedPort: "serve-80-tcp" }] })],
      egress: [
        accept({ to: of("y"), protocols: [{ destinationNamedPort: "serve-81-tcp" }] }),
        deny({ to: ANYONE, protocols: [{ tcp: {} }] }),
      ],
    }),
    on(80, [...notToX("y/*"), ...notFromX("*")]),
    on(81, [...notFromX("*"), ["x/*", "y/*", true]]),
    on(81, [], "UDP"),
  ),
  simple(
    `${tier}: ranges of ports, and whole protocols`,
    policy({
      ingress: [
        deny({
          from: of("y"),
          protocols: [
            { tcp: { destinationPort: { range: { start: 81, end: 90 } } } },
            { udp: {} },
          ],
        }),
      ],
    }),
    on(80, []),
    on(81, notToX("y/*")),
    on(80, notToX("y/*"), "UDP"),
    on(81, [], "SCTP"),
  ),
]);

const INTEGRATION: readonly PolicyCase[] = [
  steps(
    "an Admin rule decides before a NetworkPolicy, and Pass leaves it to that",
    ...(["Accept", "Deny", "Pass"] as const satisfies readonly Action[]).flatMap((action) => [
      {
        policies: [ISOLATED],
        clusterPolicies: [admin({ ingress: [{ action, from: of("y") }] })],
        expected: [
          on(80, [
            ["*", "x/*", false],
            ...(action === "Accept" ? [["y/*", "x/*", true] as const] : []),
          ]),
        ],
      },
      {
        policies: [FROM_Y],
        clusterPolicies: [admin({ ingress: [{ action, from: of("y", "z") }] })],
        expected: [
          on(80, [
            ["x/*", "x/*", false],
            ...{
              Accept: [],
              Deny: notToX("y/*", "z/*"),
              Pass: notToX("z/*"),
            }[action],
          ]),
        ],
      },
    ]),
  ),
  steps(
    "a baseline only judges pods that no NetworkPolicy isolates in that direction",
    ...[[], [FROM_Y], [ISOLATED]].map((policies): PolicyStep => ({
      policies,
      clusterPolicies: [
        baseline({
          ingress: [accept({ from: of("z") }), deny({ from: ANYONE })],
          egress: [deny({ to: of("z") })],
        }),
      ],
      expected: [on(80, [
        ["*", "x/*", false],
        ...(policies.includes(FROM_Y)
          ? [["y/*", "x/*", true] as const]
          : policies.length === 0
          ? [["z/*", "x/*", true] as const]
          : []),
        ...notFromX("z/*"),
      ])],
    })),
  ),
  steps("all three tiers", {
    policies: [
      networkPolicy({
        podSelector: pod("a"),
        policyTypes: ["Ingress"],
        ingress: [{ from: [{ namespaceSelector: {} }], ports: [{ port: 81 }] }],
      }),
    ],
    clusterPolicies: [
      admin({ ingress: [pass({ from: of("y") }), deny({ from: of("z") })] }, { priority: 1 }),
      admin({ ingress: [accept({ from: ANYONE })] }, {
        name: "q",
        priority: 2,
        subject: {
          pods: {
            namespaceSelector: ns("x"),
            podSelector: pod("c"),
          },
        },
      }),
      baseline({ ingress: [deny({ from: ANYONE, protocols: port(80) })] }, { name: "r" }),
    ],
    expected: [
      on(80, [["*", "x/*", false], ["x/*", "x/c", true]]),
      on(81, notToX("z/*")),
    ],
  }),
];

/** Deny from y to z, which every step also has: a policy with a fault never stops others. */
const GOOD: CaseClusterPolicy = forX(
  "Admin",
  { ingress: [deny({ from: of("y") })] },
  { name: "good", subject: { namespaces: ns("z") }, priority: 500 },
);

const UNREADABLE_PEERS: readonly unknown[] = [
  {},
  { unknownFields: ["serviceAccounts"] },
  { namespaces: { ...ns("y"), unknownFields: ["matchFields"] } },
  { namespaces: { matchExpressions: [{ key: "a", operator: "Near", values: ["b"] }] } },
  { pods: { namespaceSelector: {}, podSelector: {}, unknownFields: ["ports"] } },
  { namespaces: {}, pods: { namespaceSelector: {}, podSelector: {} } },
  { networks: ["10.0.0.0/80"] },
  { nodes: { unknownFields: ["names"] } },
];

const UNREADABLE_PROTOCOLS: readonly unknown[] = [
  {},
  { unknownFields: ["http"] },
  { tcp: { unknownFields: ["flags"] } },
  { tcp: { destinationPort: {} } },
  { tcp: { destinationPort: { number: 80, range: { start: 80, end: 90 } } } },
  { tcp: { destinationPort: { range: { start: 90, end: 80 } } } },
  { tcp: { destinationPort: { range: { start: 80 } } } },
  { tcp: {}, udp: {} },
];

/** What the faults of a rule make of it, by its action. */
function closed(action: string): Rows {
  return action === "Accept" ? [] : notToX("y/*", "z/*", "x/*");
}

function faulty(
  name: string,
  policies: readonly (readonly [CaseClusterPolicy, Rows])[],
): PolicyCase {
  return steps(
    name,
    ...policies.map(([policy, rows]): PolicyStep => ({
      clusterPolicies: [policy, GOOD],
      expected: [on(80, [...rows, ["y/*", "z/*", false]])],
    })),
  );
}

/** Faults, of which each has a problem. */
export const FAULTY_CASES: readonly PolicyCase[] = [
  ...["Accept", "Deny", "Pass"].map((action) =>
    faulty(`${action} with a part that is not understood fails closed`, [
      ...UNREADABLE_PEERS.map((peer) =>
        [admin({ ingress: [{ action, from: [peer] } as Rule] }), closed(action)] as const
      ),
      ...UNREADABLE_PROTOCOLS.map((each) =>
        [
          admin({ ingress: [{ action, from: ANYONE, protocols: [each] } as Rule] }),
          closed(action),
        ] as const
      ),
      [admin({ ingress: [{ action, from: [] }] }), closed(action)],
      [admin({ ingress: [{ action, from: of("y"), unknownFields: ["when"] }] }), closed(action)],
    ])
  ),
  faulty("an unknown action denies", [
    [admin({ ingress: [{ action: "Log", from: of("x") }] }), [["x/*", "x/*", false]]],
    [admin({ ingress: [{ from: of("x") }] }), [["x/*", "x/*", false]]],
  ]),
  faulty("a policy whose tier or subject is not understood has no effect", [
    [forX("Tenant", { ingress: [deny({ from: ANYONE })] }), []],
    [admin({ ingress: [deny({ from: ANYONE })] }, { subject: {} }), []],
    [
      admin({ ingress: [deny({ from: ANYONE })] }, {
        subject: { namespaces: {}, unknownFields: ["serviceAccounts"] },
      }),
      [],
    ],
  ]),
  faulty("domain names match nothing, and named ports of networks only count for pods", [
    [admin({ egress: [accept({ to: [{ domainNames: ["kubernetes.io"] }] })] }), []],
    [
      admin({
        egress: [deny({
          to: [{ networks: ["192.0.2.0/24", "2001:db8::/32"] }],
          protocols: [{ destinationNamedPort: "serve-81-tcp" }],
        })],
      }),
      [],
    ],
  ]),
  faulty("rules that cannot be read deny everything in their direction", [[
    { name: "p", spec: { ...admin({}).spec, unknownFields: ["ingress"] } },
    notToX("*"),
  ], [
    {
      name: "p",
      spec: { ...admin({ ingress: [pass({ from: of("y") })] }).spec, unknownFields: ["mode"] },
    },
    notToX("*"),
  ]]),
];

/** All cases of ClusterNetworkPolicies. */
export const CLUSTER_CASES: readonly PolicyCase[] = [
  ...OF_BOTH_TIERS,
  ...INTEGRATION,
  ...FAULTY_CASES,
];
