import type { Node } from "../api/kinds/node.ts";
import { assertEquals } from "@std/assert";
import { testNode } from "../../tests/support/builders/builders.ts";
import { nodeStateFromNode } from "./node_state.ts";

Deno.test("nodeStateFromNode() uses InternalIPs, then ExternalIPs, in their order", () => {
  const node: Node = {
    metadata: { name: "node-a" },
    spec: {},
    status: {
      addresses: [
        { type: "Hostname", address: "node-a" },
        { type: "ExternalIP", address: "203.0.113.1" },
        { type: "InternalIP", address: "2001:DB8::2" },
        { type: "InternalIP", address: "nonsense" },
        { type: "InternalIP", address: "192.168.000.002" },
        { type: "ExternalIP", address: "203.0.113.2" },
        { type: "InternalDNS", address: "10.0.0.1" },
      ],
    },
  };
  assertEquals<unknown>(nodeStateFromNode(node, "node-a"), {
    name: "node-a",
    addresses: ["2001:db8::2", "192.168.0.2", "203.0.113.1", "203.0.113.2"],
    podCidrs: [],
  });
});

for (
  const [name, labels, zone] of [
    ["reads the zone", { "topology.kubernetes.io/zone": "zone-a" }, "zone-a"],
    ["has no zone without the label", { "topology.kubernetes.io/region": "r" }, undefined],
    ["takes an empty zone for none", { "topology.kubernetes.io/zone": "" }, undefined],
  ] as const
) {
  Deno.test(`nodeStateFromNode() ${name}`, () => {
    assertEquals(nodeStateFromNode(testNode({ labels }), "node-a").zone, zone);
  });
}

for (
  const [name, spec, podCidrs] of [
    ["reads podCIDRs", { podCIDR: "10.1.0.0/24", podCIDRs: ["10.1.0.0/24", "fd00::/64"] }, [
      "10.1.0.0/24",
      "fd00::/64",
    ]],
    ["falls back to podCIDR", { podCIDR: "10.1.0.0/24" }, ["10.1.0.0/24"]],
    ["skips invalid ranges", { podCIDRs: ["10.1.0.0", "fd00::/64"] }, ["fd00::/64"]],
    ["has none where none is set", { podCIDR: "" }, []],
  ] as const
) {
  Deno.test(`nodeStateFromNode() ${name}`, () => {
    assertEquals<readonly string[]>(
      nodeStateFromNode(testNode({ spec }), "node-a").podCidrs,
      podCidrs,
    );
  });
}

Deno.test("nodeStateFromNode() knows only the name without a Node", () => {
  assertEquals(nodeStateFromNode(undefined, "node-a"), {
    name: "node-a",
    addresses: [],
    podCidrs: [],
  });
});
