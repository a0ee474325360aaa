import { assert, assertEquals } from "@std/assert";
import type { BgpPeerObject, LoadBalancerPool } from "../api/kinds/routing_objects.ts";
import { defaultConfiguration } from "./configuration.ts";
import { isAccepted, type JoinedRouting, joinRoutingObjects } from "./routing_objects.ts";
import type { RoutingConfiguration } from "./routing.ts";

type Spec = Readonly<Record<string, unknown>>;

const { routing } = defaultConfiguration();
const ROUTING: RoutingConfiguration = { ...routing, bgp: { ...routing.bgp, enabled: true } };

function join(
  { pools = {}, peers = {} }: {
    readonly pools?: Readonly<Record<string, Spec>>;
    readonly peers?: Readonly<Record<string, Spec>>;
  },
  former?: JoinedRouting,
  accepted: readonly string[] = [],
): JoinedRouting {
  const objects = (specs: Readonly<Record<string, Spec>>) =>
    Object.entries(specs).map(([name, spec], index) => ({
      metadata: { name, generation: 1, creationTimestamp: `2026-01-01T00:00:${index + 10}Z` },
      spec,
      ...(accepted.includes(name) && {
        status: { conditions: [{ type: "Accepted", status: "True", observedGeneration: 1 }] },
      }),
    }));
  return joinRoutingObjects(ROUTING, {
    pools: objects(pools) as unknown as readonly LoadBalancerPool[],
    peers: objects(peers) as unknown as readonly BgpPeerObject[],
  }, former);
}

const PEER = { address: "198.51.100.1", as: 64513 };

/** Values that the definitions may have let through, and what is said of them. */
const WRONG:
  readonly (readonly [kind: "pools" | "peers", name: string, spec: Spec, says: string])[] = [
    ["pools", "a", {}, "spec.addresses: Expected at least one range"],
    [
      "pools",
      "a",
      { addresses: Array(65).fill("192.0.2.1") },
      "spec.addresses: Expected at most 64",
    ],
    ["pools", "a", { addresses: ["x".repeat(10_000)] }, "spec.addresses[0]: Expected a CIDR"],
    ["pools", "a", { addresses: ["::/0"] }, "spec.addresses[0]: Expected addresses that are not"],
    [
      "pools",
      "a",
      { addresses: ["192.0.2.1"], autoAssign: "yes" },
      "spec.autoAssign: Expected true",
    ],
    [
      "pools",
      "a",
      { addresses: ["192.0.2.1"], spare: 1 },
      "spec.spare: Expected one of the fields",
    ],
    [
      "pools",
      "a",
      { addresses: ["192.0.2.1"], nodeSelector: { matchLabels: { a: 5 } } },
      "spec.nodeSelector.matchLabels.a: Expected text",
    ],
    ["pools", "A_", { addresses: ["192.0.2.1"] }, "metadata.name: Expected a name"],
    ["peers", "tor_1", PEER, "metadata.name: Expected small letters"],
    ["peers", "1tor", PEER, "metadata.name: Expected at most 55 letters"],
    [
      "peers",
      "tor",
      { ...PEER, as: 23_456 },
      "spec.as: Expected an AS number that is not reserved",
    ],
    ["peers", "tor", { ...PEER, address: "::" }, "spec.address: Expected an IP address"],
    ["peers", "tor", { ...PEER, passwordFile: "/a\nb" }, "spec.passwordFile: Expected an absolute"],
    [
      "peers",
      "tor",
      { ...PEER, passwordSecret: { name: "../x" } },
      "spec.passwordSecret.name: Exp",
    ],
    [
      "peers",
      "tor",
      { ...PEER, passwordSecret: { key: ".." } },
      "spec.passwordSecret.key: Expected",
    ],
    [
      "peers",
      "tor",
      { ...PEER, passwordFile: "/a", passwordSecret: {} },
      "spec.passwordSecret: Expected one source",
    ],
    [
      "peers",
      "tor",
      { ...PEER, import: { prefixes: [{ prefix: "fd00::/8" }] } },
      "spec.import.prefixes[0].prefix: Expected an IPv4 prefix",
    ],
  ];

for (const [kind, name, spec, says] of WRONG) {
  Deno.test(`joinRoutingObjects() does not use an object of ${kind}: ${says}`, () => {
    const others = {
      pools: { good: { addresses: ["203.0.113.1"] } },
      peers: { good: { address: "203.0.113.9", as: 64514 } },
    };
    const joined = join({ ...others, [kind]: { [name]: spec, ...others[kind] } });
    const { problem, used } = joined[kind].get(name)!;
    const text = `${problem?.path}: ${problem?.message}`;
    assert(text.startsWith(says), text);
    assert(text.length < 500, "it goes to a status");
    assertEquals(used, undefined);
    assertEquals([joined.routing.pools.length, joined.routing.bgp.peers.length], [1, 1]);
  });
}

/** The addresses of pools by their names, from step to step, and which pools are used in the end. */
const CONFLICTS: readonly (readonly [
  what: string,
  steps: readonly Readonly<Record<string, string>>[],
  accepted: readonly string[],
  used: Readonly<Record<string, string>>,
])[] = [
  ["the older one wins", [{ a: "192.0.2.0/24", b: "192.0.2.1" }], [], { a: "192.0.2.0/24" }],
  ["the accepted one wins", [{ a: "192.0.2.0/24", b: "192.0.2.1" }], ["b"], { b: "192.0.2.1" }],
  [
    "a new version takes nothing away",
    [{ a: "192.0.2.1", b: "192.0.2.2" }, { a: "192.0.2.0/24", b: "192.0.2.2" }],
    [],
    { a: "192.0.2.1", b: "192.0.2.2" },
  ],
  [
    "a version that became bad keeps its addresses",
    [{ a: "192.0.2.1", b: "192.0.2.2" }, { a: "192.0.2.1/99", b: "192.0.2.0/24" }],
    [],
    { a: "192.0.2.1", b: "192.0.2.2" },
  ],
  [
    "what is given up is free",
    [{ a: "192.0.2.1", b: "192.0.2.2" }, { a: "192.0.2.9", b: "192.0.2.0-192.0.2.2" }],
    [],
    { a: "192.0.2.9", b: "192.0.2.0-192.0.2.2" },
  ],
  [
    "every node follows the status, whatever it used before",
    [{ a: "192.0.2.0/24" }, { a: "192.0.2.1/99", b: "192.0.2.1" }],
    ["b"],
    { b: "192.0.2.1" },
  ],
  [
    "a removed one is gone",
    [{ a: "192.0.2.1", b: "192.0.2.2" }, { b: "192.0.2.1" }],
    [],
    { b: "192.0.2.1" },
  ],
];

for (const [what, steps, accepted, expected] of CONFLICTS) {
  Deno.test(`joinRoutingObjects() among objects that contradict each other: ${what}`, () => {
    let joined: JoinedRouting | undefined;
    for (const step of steps) {
      const pools = Object.fromEntries(
        Object.entries(step).map(([name, range]) => [name, { addresses: [range] }]),
      );
      joined = join({ pools }, joined, accepted);
    }
    const used = joined!.routing.pools.flatMap((pool) =>
      typeof pool === "string" ? [] : [[pool.name, pool.addresses[0]]]
    );
    assertEquals(Object.fromEntries(used), expected);
  });
}

Deno.test("isAccepted() is about this version of the object", () => {
  const accepted = (status: string, observedGeneration: number, type = "Accepted") =>
    isAccepted({
      metadata: { name: "a", generation: 2 },
      spec: {},
      status: { conditions: [{ type, status, observedGeneration }] },
    });
  assertEquals(
    [accepted("True", 2), accepted("True", 1), accepted("False", 2), accepted("True", 2, "Ready")],
    [true, false, false, false],
  );
});

Deno.test("joinRoutingObjects() uses at most 128 objects of a kind, those in use first", () => {
  const pools = Object.fromEntries(
    Array.from({ length: 500 }, (_, index) => [
      `p${index}`,
      { addresses: [`10.${index % 250}.${Math.floor(index / 250)}.1`] },
    ]),
  );
  const joined = join({ pools }, undefined, ["p499"]);
  assertEquals(joined.routing.pools.length, 128);
  assert(joined.pools.get("p499")?.used, "it is in use");
  const others = [...joined.pools.values()].filter(({ problem }) =>
    problem?.message.includes("at most 128")
  );
  assertEquals(others.length, 372);
  // No node has accepted the new version yet.
  const changed = join({ pools: { ...pools, p499: { addresses: ["192.0.2.1"] } } }, joined);
  assertEquals(changed.pools.get("p499")?.used?.spec.addresses, ["192.0.2.1"]);
});
