import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { NodePortAddresses } from "../../lib/proxy/node_state.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import {
  testProxyPlan,
  type TestServicePlan,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import {
  ALL_FEATURES,
  allowsRanges,
  hasServiceComments,
  renderOptionsOf,
  servesLocalhost,
} from "./render_options.ts";

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

Deno.test("renderOptionsOf() gives kube-proxy's defaults", () => {
  for (const family of ["IPv4", "IPv6"] as const) {
    assertEquals(
      renderOptionsOf({ ...FIXED, family }, testSharedPlan(), KERNEL),
      defaultRenderOptions(family),
    );
  }
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

Deno.test("allowsRanges() only without an external address in a range whose packets keep their source", () => {
  const shared = { serviceCidrs: [parseCidr("172.30.0.0/16")] };
  const allows = (plan: TestServicePlan) =>
    allowsRanges(testProxyPlan([testServicePlan(plan)], { shared }));
  const local = { externalTrafficPolicy: "Local" } as const;
  assertEquals(allows({ clusterIp: "172.30.0.1" }), true);
  assertEquals(allows({ ...local, nodePort: 30080 }), true);
  assertEquals(allows({ ...local, externalIps: ["192.0.2.1"] }), true);
  assertEquals(allows({ externalIps: ["172.30.0.2"] }), true);
  assertEquals(allows({ ...local, externalIps: ["192.0.2.1", "172.30.0.2"] }), false);
  assertEquals(allows({ ...local, loadBalancerVips: ["172.30.0.2"] }), false);
});

Deno.test("allowsRanges() examines the given ServicePorts only", () => {
  const shared = { serviceCidrs: [parseCidr("172.30.0.0/16")] };
  const [web, api] = ["web", "api"].map((name) =>
    testServicePlan({ name, externalTrafficPolicy: "Local", externalIps: ["172.30.0.2"] })
  );
  const plan = testProxyPlan([web!], { shared });
  assertEquals(allowsRanges(plan, [api!.key]), true);
  assertEquals(allowsRanges(plan, [api!.key, web!.key]), false);
});

Deno.test("hasServiceComments() changes its answer once for a cluster around either limit", () => {
  const answers: boolean[] = [];
  for (const servicePorts of [1000, 1001, 1000, 501, 500, 501, 1000, 1001]) {
    answers.push(hasServiceComments(servicePorts, answers.at(-1)));
  }
  assertEquals(answers, [true, false, false, false, true, true, true, false]);
});
