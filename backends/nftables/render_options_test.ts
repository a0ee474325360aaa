import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_port_addresses.ts";
import { defaultRenderOptions } from "../../tests/support/builders/nftables_render_options.ts";
import { ALL_FEATURES, renderOptionsOf, servesLocalhost } from "./render_options.ts";

const FIXED = { family: "IPv4", masqueradeBit: 14 } as const;
const ALL: NodePortAddresses = { kind: "all" };

function only(...cidrs: readonly string[]): NodePortAddresses {
  return { kind: "cidrs", cidrs: cidrs.map(parseCidr) } as NodePortAddresses;
}

Deno.test("servesLocalhost() needs IPv4, and a range that has 127.0.0.1", () => {
  const on = (nodePortAddresses: NodePortAddresses, family: "IPv4" | "IPv6" = "IPv4") =>
    servesLocalhost({ family }, nodePortAddresses);
  assertEquals(on(only("127.0.0.0/8")), true);
  assertEquals(on(only("192.168.0.0/16", "127.0.0.1/32")), true);
  assertEquals(on(only("127.0.0.2/32")), false);
  assertEquals(on(only("::1/128"), "IPv6"), false);
  assertEquals(on(only()), false);
  assertEquals(on(ALL), false, "all addresses of the node are not enough");
});

Deno.test("renderOptionsOf() gives kube-proxy's defaults", () => {
  for (const family of ["IPv4", "IPv6"] as const) {
    assertEquals(
      renderOptionsOf({ ...FIXED, family }, { nodePortRanges: ALL }, { features: ALL_FEATURES }),
      defaultRenderOptions(family),
    );
  }
});

Deno.test("renderOptionsOf() combines the plan with the features of the kernel", () => {
  const features = { affinity: false, reject: true };
  const nodePortAddresses = only("127.0.0.0/8");
  assertEquals(
    renderOptionsOf(FIXED, { nodePortRanges: nodePortAddresses }, { features }),
    {
      ...FIXED,
      features,
      nodePortAddresses,
      localhostNodePorts: true,
    },
  );
});
