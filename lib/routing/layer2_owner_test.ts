import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../net/cidr.ts";
import { type IpAddress, parseIpAddress } from "../net/ip_address.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import type { LabelSelector } from "../policy/label_selector.ts";
import {
  type LinkObstacle,
  type MemberReport,
  memberReport,
  parseMemberReport,
} from "./layer2_member.ts";
import { type Layer2Address, Layer2Owners } from "./layer2_owner.ts";
import { routingNodeOf } from "./routing_node.ts";
import { type NodeParts, pool, routedNode } from "../../tests/support/builders/routed_objects.ts";

const ADDRESS = parseIpAddress("192.0.2.1");
const RACK_A = {
  text: "rack",
  isInvalid: false,
  requirements: [{ key: "rack", operator: "In" as const, values: new Set(["a"]) }],
};

function setNode(owners: Layer2Owners, parts: NodeParts): void {
  owners.setNode(parts.name, routingNodeOf(routedNode(parts)));
}

/** Owners with live nodes of these names. */
function ownersOf(...names: readonly string[]): Layer2Owners {
  const owners = new Layer2Owners([]);
  for (const name of names) setNode(owners, { name });
  owners.setLive(new Set(names));
  return owners;
}

function addresses(count: number): readonly IpAddress[] {
  return Array.from(
    { length: count },
    (_, index) => parseIpAddress(`10.0.${index >> 8}.${index & 255}`),
  );
}

Deno.test("Layer2Owners spreads addresses evenly, and the choice never changes with releases", () => {
  const names = Array.from({ length: 10 }, (_, index) => `node-${index}`);
  const owners = ownersOf(...names);
  for (const address of addresses(1000)) owners.setAddress(address, {});
  owners.update();
  const counts = new Map<string, number>();
  for (const address of addresses(1000)) {
    const owner = owners.ownerOf(address)!;
    counts.set(owner, (counts.get(owner) ?? 0) + 1);
  }
  for (const name of names) {
    const count = counts.get(name) ?? 0;
    assert(count > 60 && count < 140, `${name} owns ${count} of 1000`);
  }
  // Two releases in one cluster have to agree.
  assertEquals(addresses(6).map((address) => owners.ownerOf(address)), GOLDEN);
});

const GOLDEN = ["node-7", "node-9", "node-9", "node-3", "node-1", "node-2"];

Deno.test("Layer2Owners says why a node cannot own an address", () => {
  const owners = ownersOf("a", "b", "c", "d", "e", "f");
  setNode(owners, { name: "a", labels: { rack: "a" } });
  const label = "node.kubernetes.io/exclude-from-external-load-balancers";
  setNode(owners, { name: "b", labels: { rack: "a", [label]: "" } });
  setNode(owners, {
    name: "c",
    labels: { rack: "a" },
    taints: ["node.kubernetes.io/out-of-service"],
  });
  setNode(owners, { name: "d", labels: { rack: "b" } });
  setNode(owners, { name: "e", labels: { rack: "a" } });
  owners.setNode("f", undefined);
  setNode(owners, { name: "g", labels: { rack: "a" } });
  owners.setAddress(ADDRESS, { nodeSelector: RACK_A, endpointNodes: new Set(["a", "d"]) });
  assertEquals(owners.update(), new Map([[ADDRESS, { after: "a" }]]));
  assertEquals(owners.candidates(ADDRESS), [
    { node: "a" },
    { node: "b", obstacle: `the Node has the label ${label}` },
    { node: "c", obstacle: "the Node has the taint node.kubernetes.io/out-of-service" },
    { node: "d", obstacle: "the nodeSelector of the pool does not match the Node" },
    { node: "e", obstacle: "the Node has no ready endpoint, which policy Local requires" },
    { node: "f", obstacle: "the Node does not exist" },
    { node: "g", obstacle: "kube-relay does not renew its Lease there" },
  ]);
  owners.setAddress(ADDRESS, { endpointNodes: new Set() });
  assertEquals(owners.update(), new Map([[ADDRESS, { before: "a" }]]));
  owners.setAddress(ADDRESS, { endpointNodes: new Set(["e"]) });
  owners.update();
  owners.setAddress(ADDRESS, undefined);
  assertEquals(owners.update(), new Map([[ADDRESS, { before: "e" }]]));
});

/** What a node says that can answer in some networks, and knows some pools. */
function reportOf(
  { networks, pools = ["0.0.0.0/0"], nodeSelector, labels }: {
    readonly networks: Readonly<Record<string, LinkObstacle | undefined>>;
    readonly pools?: readonly string[];
    readonly nodeSelector?: LabelSelector;
    readonly labels?: NodeParts["labels"];
  },
): MemberReport {
  const links = Object.entries(networks).map(([network, obstacle]) => ({
    ...{ network: parseCidr(network), device: "eth0" },
    ...(obstacle && { obstacle }),
  }));
  const node = routingNodeOf(routedNode({ name: "any", ...(labels && { labels }) }));
  const known = pool("any", pools, nodeSelector && { nodeSelector });
  return parseMemberReport(JSON.stringify(memberReport([known], { node, links })))!;
}

const EVERYWHERE = reportOf({ networks: { "0.0.0.0/0": undefined } });

Deno.test("Layer2Owners: only nodes that can answer own an address, by their own words", () => {
  const owners = ownersOf("a", "b", "c", "d", "e", "f", "old");
  const all = addresses(50);
  for (const address of all) owners.setAddress(address, {});
  const network = "10.0.0.0/24";
  owners.setReport("a", reportOf({ networks: { [network]: undefined } }));
  owners.setReport("b", reportOf({ networks: { "10.99.0.0/24": undefined } }));
  owners.setReport("c", reportOf({ networks: { [network]: "no-carrier" } }));
  owners.setReport("d", reportOf({ networks: { [network]: "down" } }));
  owners.setReport("e", reportOf({ networks: { [network]: undefined }, pools: ["10.0.1.0/24"] }));
  owners.setReport(
    "f",
    reportOf({ networks: { [network]: undefined }, nodeSelector: RACK_A, labels: { rack: "b" } }),
  );
  owners.update();
  assertEquals(new Set(all.map((each) => owners.ownerOf(each))), new Set(["a", "old"]));
  assertEquals(owners.candidates(all[0]!), [
    { node: "a" },
    { node: "b", obstacle: "no interface of it has a network with the address" },
    { node: "c", obstacle: "its interface eth0 has no carrier" },
    { node: "d", obstacle: "its interface eth0 is down" },
    { node: "e", obstacle: "its configuration has no pool of layer 2 with the address" },
    { node: "f", obstacle: "the nodeSelector of the pool does not match the Node" },
    { node: "old" },
  ]);
  // Another configuration here: the node decides by its own one, so this one has to do it, too.
  for (const address of all) owners.setAddress(address, { nodeSelector: RACK_A });
  owners.update();
  assertEquals(new Set(all.map((each) => owners.ownerOf(each))), new Set(["a"]));
  for (const address of all) owners.setAddress(address, {});
  owners.setReport("a", reportOf({ networks: { [network]: "no-carrier" } }));
  owners.update();
  assertEquals(new Set(all.map((each) => owners.ownerOf(each))), new Set(["old"]));
});

Deno.test("Layer2Owners: a node that is not ready owns what no ready node can own", () => {
  const owners = ownersOf("a", "b");
  for (const address of addresses(20)) owners.setAddress(address, {});
  const owned = () => new Set(addresses(20).map((each) => owners.ownerOf(each)));
  for (const name of ["a", "b"]) owners.setReport(name, EVERYWHERE);
  setNode(owners, { name: "a", conditions: { Ready: "False" } });
  owners.update();
  assertEquals(owned(), new Set(["b"]));
  assertEquals(owners.candidates(addresses(1)[0]!)[0], {
    ...{ node: "a", obstacle: "the Node is not ready, and another one is" },
  });
  setNode(owners, { name: "b", conditions: { Ready: "Unknown" } });
  owners.update();
  assertEquals(owned(), new Set(["a", "b"]), "none is ready");
  setNode(owners, { name: "a", conditions: { Ready: "True", NetworkUnavailable: "True" } });
  owners.update();
  assertEquals(owned(), new Set(["b"]));
  setNode(owners, { name: "a", conditions: { NetworkUnavailable: "False" } });
  owners.update();
  assertEquals(owned(), new Set(["a"]));
});

/** A step of a history. */
type Step =
  | {
    readonly node: number;
    readonly rack: "a" | "b" | undefined;
    readonly isReady: boolean;
    /** The number of an address that the node has. */
    readonly own: number | undefined;
    readonly isGone: boolean;
  }
  | { readonly live: readonly number[] | undefined }
  | { readonly reporter: number; readonly networks: readonly number[] | undefined }
  | {
    readonly address: number;
    readonly isGone: boolean;
    readonly hasSelector: boolean;
    readonly endpoints: readonly number[] | undefined;
  };

/** Events of a world. Most leave nodes able to own addresses: without owners, little can go wrong. */
function steps({ nodes, addresses }: { readonly nodes: number; readonly addresses: number }) {
  const all = Array.from({ length: nodes }, (_, index) => index);
  const numbers = fc.oneof(fc.constant(all), fc.subarray(all));
  const seldom = { depth: 0, freq: 5, nil: undefined };
  const mostly = <T>(usual: T, other: T) => fc.constantFrom(usual, usual, usual, other);
  return fc.oneof<fc.WeightedArbitrary<Step>[]>(
    {
      weight: 2,
      arbitrary: fc.record({
        node: fc.nat(nodes - 1),
        rack: fc.constantFrom("a" as const, "b" as const, undefined),
        isReady: fc.boolean(),
        own: mostly<number | undefined>(undefined, 0),
        isGone: mostly(false, true),
      }),
    },
    { weight: 1, arbitrary: fc.record({ live: fc.option(numbers, seldom) }) },
    {
      weight: 2,
      arbitrary: fc.record({
        reporter: fc.nat(nodes - 1),
        networks: fc.option(numbers, seldom),
      }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
        address: fc.nat(addresses - 1),
        isGone: fc.boolean(),
        hasSelector: mostly(false, true),
        endpoints: mostly<readonly number[] | undefined>(undefined, [0]),
      }),
    },
  );
}

/** Every node is live, and every address wanted. */
function beginning(
  { nodes, addresses }: { readonly nodes: number; readonly addresses: number },
): readonly Step[] {
  const all = Array.from({ length: nodes }, (_, index) => index);
  const [rack, own] = ["a" as const, undefined];
  return [
    { live: all },
    ...all.map((node) => ({ node, rack, own, isReady: true, isGone: false })),
    ...Array.from({ length: addresses }, (_, address) => ({
      ...{ address, isGone: false, hasSelector: false, endpoints: undefined },
    })),
  ];
}

function namesOf(list: readonly number[]): ReadonlySet<string> {
  return new Set(list.map((number) => `node-${number}`));
}

/** Decides the owners in steps, and compares them with those of new owners after each update. */
function replay(history: readonly (readonly Step[])[]): void {
  const owners = new Layer2Owners([]);
  const nodes = new Map<string, NodeParts>();
  const reports = new Map<string, MemberReport>();
  const wanted = new Map<IpAddress, Layer2Address>();
  let live: ReadonlySet<string> = new Set();
  let known = new Map<IpAddress, string>();
  for (const events of history) {
    for (const each of events) {
      if ("live" in each) {
        if (each.live) live = namesOf(each.live);
        owners.setLive(each.live && namesOf(each.live));
      } else if ("node" in each) {
        const name = `node-${each.node}`;
        const parts = {
          name,
          ...(each.own !== undefined && { addresses: [addresses(1)[each.own]!] }),
          ...(each.rack && { labels: { rack: each.rack } }),
          conditions: { Ready: each.isReady ? "True" : "False" },
        };
        if (each.isGone) nodes.delete(name);
        else nodes.set(name, parts);
        owners.setNode(name, each.isGone ? undefined : routingNodeOf(routedNode(parts)));
      } else if ("reporter" in each) {
        const name = `node-${each.reporter}`;
        const report = each.networks && reportOf({
          networks: Object.fromEntries(
            each.networks.map((half) => [`10.0.0.${2 * half}/31`, undefined]),
          ),
        });
        if (report) reports.set(name, report);
        else reports.delete(name);
        owners.setReport(name, report);
      } else {
        const address = addresses(10)[each.address]!;
        const layer2 = {
          ...(each.hasSelector && { nodeSelector: RACK_A }),
          ...(each.endpoints && { endpointNodes: namesOf(each.endpoints) }),
        };
        if (each.isGone) wanted.delete(address);
        else wanted.set(address, layer2);
        owners.setAddress(address, each.isGone ? undefined : layer2);
      }
    }
    for (const [address, { before, after }] of owners.update()) {
      assertEquals(before, known.get(address));
      assert(before !== after, `${address}: a change`);
      if (after === undefined) known.delete(address);
      else known.set(address, after);
    }
    const scratch = new Layer2Owners([]);
    for (const [name, report] of reports) scratch.setReport(name, report);
    for (const parts of nodes.values()) setNode(scratch, parts);
    for (const [address, layer2] of wanted) scratch.setAddress(address, layer2);
    scratch.setLive(live);
    scratch.update();
    const expected = new Map<IpAddress, string>();
    for (const address of wanted.keys()) {
      const owner = scratch.ownerOf(address);
      if (owner !== undefined) expected.set(address, owner);
      assertEquals(owners.ownerOf(address), owner);
      assertEquals(owners.candidates(address), scratch.candidates(address));
      const able = scratch.candidates(address).filter(({ obstacle }) => obstacle === undefined);
      assertEquals(owner !== undefined, able.length > 0, "one owner if any node can be it");
      if (owner !== undefined) assert(able.some(({ node }) => node === owner));
    }
    assertEquals(new Map([...known].sort()), new Map([...expected].sort()));
    for (const name of [0, 1, 2, 3, 4].map((each) => `node-${each}`)) {
      const owned = [...expected.values()].filter((each) => each === name);
      assertEquals(owners.isOwner(name), owned.length > 0, name);
      assertEquals([...owners.ownedBy(name)].length, owned.length);
    }
    known = expected;
  }
}

for (
  const { nodes, addresses, most, numRuns } of [
    { nodes: 5, addresses: 10, most: 4, numRuns: 300 },
    { nodes: 3, addresses: 2, most: 8, numRuns: 1000 },
  ]
) {
  Deno.test(`Layer2Owners decides in steps as from scratch, in any history (${nodes} nodes)`, () => {
    const world = steps({ nodes, addresses });
    fc.assert(
      fc.property(
        fc.array(fc.array(world, { maxLength: most }), { maxLength: 10 }),
        (history) => replay([beginning({ nodes, addresses }), ...history]),
      ),
      { numRuns },
    );
  });
}

Deno.test("Layer2Owners: the addresses of Services in pools with layer 2 have owners", () => {
  const owners = new Layer2Owners([
    pool("a", ["192.0.2.0/24"]),
    pool("b", ["198.51.100.0/24"], { announce: "bgp" }),
  ]);
  for (const name of ["a", "b", "c"]) owners.setNode(name, routingNodeOf(routedNode({ name })));
  owners.setLive(new Set(["a", "b", "c"]));
  const set = (name: string, address: string, ...nodes: readonly string[]) =>
    owners.setService(name as ServiceKey, {
      addresses: [
        {
          ...{ address: parseIpAddress(address), kind: "loadBalancerIps" },
          ...(nodes.length > 0 && { endpointNodes: new Set(nodes) }),
        },
        { address: parseIpAddress("192.0.2.77"), kind: "externalIps" },
      ],
      switches: {},
    });
  /** Who can own each address. */
  const able = () => {
    owners.update();
    return Object.fromEntries([...owners.addresses].map((address) => [
      address,
      owners.candidates(address).flatMap(({ node, obstacle }) => obstacle ? [] : node).join(" "),
    ]));
  };
  set("ns/web", "192.0.2.1");
  set("ns/api", "198.51.100.1");
  assertEquals(able(), { "192.0.2.1": "a b c" });
  set("ns/web", "192.0.2.2", "a", "b");
  assertEquals(able(), { "192.0.2.2": "a b" });
  set("ns/api", "192.0.2.2", "b", "c");
  assertEquals(able(), { "192.0.2.2": "b" }, "each Service needs an endpoint");
  assertEquals(`${owners.servicesAt(parseIpAddress("192.0.2.2"))}`, "ns/web,ns/api");
  owners.setService("ns/web" as ServiceKey, undefined);
  assertEquals(able(), { "192.0.2.2": "b c" });
  owners.setPools([]);
  set("ns/api", "192.0.2.2");
  assertEquals(able(), {});
});
