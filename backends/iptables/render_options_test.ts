import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_port_addresses.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import {
  ALL_FEATURES,
  hasServiceComments,
  renderOptionsOf,
  servesLocalhost,
} from "./render_options.ts";

const FIXED = { family: "IPv4", masqueradeBit: 14, localhostNodePorts: true } as const;
const ALL: NodePortAddresses = { kind: "all" };

function only(...cidrs: readonly string[]): NodePortAddresses {
  return { kind: "cidrs", cidrs: cidrs.map(parseCidr) } as NodePortAddresses;
}

Deno.test("servesLocalhost() needs IPv4, the setting, and an address list that has 127.0.0.1", () => {
  const on = (nodePortAddresses: NodePortAddresses, fixed = {}) =>
    servesLocalhost({ ...FIXED, ...fixed }, nodePortAddresses);
  assertEquals(on(ALL), true);
  assertEquals(on(ALL, { family: "IPv6" }), false);
  assertEquals(on(ALL, { localhostNodePorts: false }), false);
  assertEquals(on(only("127.0.0.0/8")), true);
  assertEquals(on(only("192.168.0.0/16")), false);
  assertEquals(on(only()), false);
});

Deno.test("renderOptionsOf() gives kube-proxy's defaults", () => {
  const kernel = { features: ALL_FEATURES, beLiberal: false, serviceComments: true };
  for (const family of ["IPv4", "IPv6"] as const) {
    assertEquals(
      renderOptionsOf({ ...FIXED, family }, { nodePortRanges: ALL }, kernel),
      defaultRenderOptions(family),
    );
  }
});

Deno.test("hasServiceComments() changes its answer once for a cluster around either limit", () => {
  const answers: boolean[] = [];
  for (const servicePorts of [1000, 1001, 1000, 501, 500, 501, 1000, 1001]) {
    answers.push(hasServiceComments(servicePorts, answers.at(-1)));
  }
  assertEquals(answers, [true, false, false, false, true, true, true, false]);
});
