import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_state.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import { testSharedPlan } from "../../tests/support/builders/service_plans.ts";
import { ALL_FEATURES, renderOptionsOf, servesLocalhost } from "./render_options.ts";

const FIXED = { family: "IPv4", masqueradeBit: 14, localhostNodePorts: true } as const;
const KERNEL = {
  ...{ features: ALL_FEATURES, beLiberal: false, serviceComments: true },
  masqueradesRanges: true,
};
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

Deno.test("renderOptionsOf() has one rule for each range of cluster IPs if pods and ranges are known", () => {
  const [pods, range] = [parseCidr("10.0.0.0/8"), parseCidr("172.30.0.0/16")];
  const options = (shared: Partial<SharedPlan>, masqueradesRanges = true) =>
    renderOptionsOf(
      FIXED,
      testSharedPlan({ localTraffic: { kind: "byCidr", cidr: pods }, ...shared }),
      { ...KERNEL, masqueradesRanges },
    ).masqueradedRanges;
  assertEquals(options({ serviceCidrs: [range] }), { services: [range], pods });
  assertEquals(options({ serviceCidrs: [] }), undefined);
  assertEquals(options({ serviceCidrs: [range] }, false), undefined);
  const byBridge = { kind: "byBridge", interfaceName: "cni0" } as const;
  assertEquals(options({ serviceCidrs: [range], localTraffic: byBridge }), undefined);
  const many = Array.from({ length: 9 }, (_, index) => parseCidr(`10.${index}.0.0/16`));
  assertEquals(options({ serviceCidrs: many }), undefined);
});
