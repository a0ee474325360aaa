import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { type IpAddress, parseIpAddress } from "../net/ip_address.ts";
import { type Layer2Address, Layer2Owners } from "./layer2_owner.ts";
import { routingNodeOf } from "./routing_node.ts";
import { type NodeParts, routedNode } from "../../tests/support/builders/routed_objects.ts";

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
  const owners = new Layer2Owners();
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

Deno.test("Layer2Owners moves only the addresses of a node that goes", () => {
  const owners = ownersOf("a", "b", "c");
  const all = addresses(300);
  for (const address of all) owners.setAddress(address, {});
  owners.update();
  const before = all.map((address) => owners.ownerOf(address));
  owners.setLive(new Set(["a", "c"]));
  const changes = owners.update();
  assertEquals(changes.size, before.filter((owner) => owner === "b").length);
  for (const { before: old } of changes.values()) assertEquals(old, "b");
  owners.setLive(new Set(["a", "b", "c"]));
  owners.update();
  assertEquals(all.map((address) => owners.ownerOf(address)), before);
});

Deno.test("Layer2Owners keeps owners while the Leases are unknown", () => {
  const owners = ownersOf("a", "b");
  owners.setAddress(ADDRESS, {});
  owners.update();
  owners.setLive(undefined);
  assertEquals(owners.update().size, 0);
  assert(owners.ownerOf(ADDRESS) !== undefined);
});

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

/** A step of a history. */
type Step =
  | { readonly node: number; readonly rack: "a" | "b" | undefined; readonly isGone: boolean }
  | { readonly live: readonly number[] | undefined }
  | {
    readonly address: number;
    readonly isGone: boolean;
    readonly hasSelector: boolean;
    readonly endpoints: readonly number[] | undefined;
  };

const numbers = fc.subarray([0, 1, 2, 3, 4]);
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    node: fc.nat(4),
    rack: fc.constantFrom("a" as const, "b" as const, undefined),
    isGone: fc.constantFrom(false, false, true),
  }),
  fc.record({ live: fc.option(numbers, { nil: undefined }) }),
  fc.record({
    address: fc.nat(9),
    isGone: fc.constantFrom(false, false, false, true),
    hasSelector: fc.boolean(),
    endpoints: fc.option(numbers, { nil: undefined }),
  }),
);

function namesOf(list: readonly number[]): ReadonlySet<string> {
  return new Set(list.map((number) => `node-${number}`));
}

Deno.test("Layer2Owners decides in steps as from scratch, in any history", () => {
  fc.assert(
    fc.property(fc.array(fc.array(step, { maxLength: 4 }), { maxLength: 10 }), (history) => {
      const owners = new Layer2Owners();
      const nodes = new Map<string, NodeParts>();
      const wanted = new Map<IpAddress, Layer2Address>();
      let live: ReadonlySet<string> = new Set();
      let known = new Map<IpAddress, string>();
      for (const steps of history) {
        for (const each of steps) {
          if ("live" in each) {
            if (each.live) live = namesOf(each.live);
            owners.setLive(each.live && namesOf(each.live));
          } else if ("node" in each) {
            const name = `node-${each.node}`;
            const parts = { name, ...(each.rack && { labels: { rack: each.rack } }) };
            if (each.isGone) nodes.delete(name);
            else nodes.set(name, parts);
            owners.setNode(name, each.isGone ? undefined : routingNodeOf(routedNode(parts)));
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
          if (after === undefined) known.delete(address);
          else known.set(address, after);
        }
        const scratch = new Layer2Owners();
        for (const parts of nodes.values()) setNode(scratch, parts);
        for (const [address, layer2] of wanted) scratch.setAddress(address, layer2);
        scratch.setLive(live);
        scratch.update();
        const expected = new Map<IpAddress, string>();
        for (const address of wanted.keys()) {
          const owner = scratch.ownerOf(address);
          if (owner !== undefined) expected.set(address, owner);
          assertEquals(owners.ownerOf(address), owner);
          const able = scratch.candidates(address).filter(({ obstacle }) => obstacle === undefined);
          assertEquals(owner !== undefined, able.length > 0, "one owner if any node can be it");
          if (owner !== undefined) assert(able.some(({ node }) => node === owner));
        }
        assertEquals(new Map([...known].sort()), new Map([...expected].sort()));
        known = expected;
      }
    }),
    { numRuns: 300 },
  );
});

Deno.test("Layer2Owners gives the address of a node to no node, whatever the status of Services has", () => {
  const owners = ownersOf("a", "b");
  owners.setAddress(ADDRESS, {});
  owners.update();
  assert(owners.ownerOf(ADDRESS) !== undefined);
  setNode(owners, { name: "c", addresses: ["192.0.2.1"] });
  owners.update();
  assertEquals(owners.ownerOf(ADDRESS), undefined);
  assertEquals(owners.candidates(ADDRESS).map(({ obstacle }) => obstacle), [
    "it is the address of node c",
    "it is the address of node c",
    "it is the address of node c",
  ]);
  owners.setNode("c", undefined);
  owners.update();
  assert(owners.ownerOf(ADDRESS) !== undefined, "the address is free again");
});
