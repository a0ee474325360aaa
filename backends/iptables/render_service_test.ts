import { assert, assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import {
  testForward,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import type { TreeId } from "./base_chains.ts";
import {
  ALL_FEATURES,
  type IptablesFeatures,
  type IptablesRenderOptions,
} from "./render_options.ts";
import { renderService } from "./render_service.ts";

const VIP = "-d 172.30.0.1 -m tcp -p tcp --dport 80";

function plan(options: TestServicePlan = {}): ServicePlan {
  return testServicePlan({ clusterIp: "172.30.0.1", to: ["10.0.0.1:8080"], ...options });
}

function render(service: ServicePlan, overrides: Partial<IptablesRenderOptions> = {}) {
  const options = { ...defaultRenderOptions("IPv4"), serviceComments: false, ...overrides };
  const localTraffic = { kind: "byCidr" as const, cidr: parseCidr("10.0.0.0/8") };
  const { entries, chains, quarantined } = renderService(service, localTraffic, options);
  return {
    rulesOf: (tree: TreeId) =>
      [...entries.values()].filter((entry) => entry.tree === tree).flatMap(({ rules }) => rules),
    chains: Array.from(chains, ([name, rules]) => [name.slice(0, 8), ...rules]),
    quarantined,
  };
}

function without(feature: keyof IptablesFeatures): Partial<IptablesRenderOptions> {
  return { features: { ...ALL_FEATURES, [feature]: false } };
}

Deno.test("renderService() leaves the masquerade of a cluster IP to the rule for its range", () => {
  const marks = (service: TestServicePlan, range = "172.30.0.0/16") => {
    const masqueradedRanges = {
      services: [parseCidr("10.96.0.0/12"), parseCidr(range)],
      pods: parseCidr("10.0.0.0/8"),
    };
    const rules = render(plan(service), { masqueradedRanges }).rulesOf("services");
    assertEquals(rules.filter((rule) => rule.includes("DNAT")).length, 1);
    return rules.filter((rule) => rule.endsWith("-j KUBE-MARK-MASQ")).length;
  };
  assertEquals(marks({ masqueradeInternal: "off-cluster" }), 0);
  assertEquals(marks({ masqueradeInternal: "off-cluster" }, "172.31.0.0/16"), 1);
  assertEquals(marks({ masqueradeInternal: "all" }), 1);
});

Deno.test("renderService() names the owner of a rule, in quotes", () => {
  const { rulesOf } = render(plan({ name: 'a" -j ACCEPT' }), { serviceComments: true });
  assertEquals(rulesOf("services"), [
    `${VIP} -m comment --comment "ns/a\\" -j ACCEPT cluster IP" -j DNAT --to-destination 10.0.0.1:8080`,
  ]);
});

Deno.test("renderService() admits no client if no source range is valid", () => {
  const { rulesOf } = render(plan({ loadBalancerVips: ["1.2.3.4"], sourceRanges: [] }));
  assertEquals(rulesOf("services").filter((rule) => rule.includes("1.2.3.4")), []);
  assertEquals(rulesOf("firewall").length, 1);
});

Deno.test("renderService() gives the endpoints of policy Local a chain of their own", () => {
  const to = [1, 2, 3, 4, 5].map((host) => `10.0.0.${host}:80`);
  const [internal, external] = [testForward(...to), testForward(...to.slice(1))];
  const { chains } = render(
    plan({
      ...{ internal, external, externalFromCluster: internal },
      ...{ nodePort: 30080, externalTrafficPolicy: "Local" },
    }),
  );
  const counts = chains.map(([name, ...rules]) => [
    name,
    rules.filter((rule) => rule.includes(" DNAT ")).length,
  ]);
  assertEquals(counts.sort(), [["KUBE-EXT", 0], ["KUBE-SVC", 5], ["KUBE-SVL", 4]]);
});

Deno.test("renderService() counts connections to node ports on loopback if it can", () => {
  const features = { ...ALL_FEATURES, nfacct: true };
  const [counter] = render(plan({ nodePort: 30080 }), { features }).rulesOf("nodePorts");
  assertEquals(
    counter,
    "-d 127.0.0.0/8 -m tcp -p tcp --dport 30080 -m nfacct --nfacct-name localhost_nps_accepted_pkts",
  );
});

Deno.test("renderService() names features that a kernel cannot express, and leaves out only those", () => {
  const two = plan({ to: ["10.0.0.1:80", "10.0.0.2:80"] });
  const sticky = plan({ affinityTimeoutSeconds: 60 });
  const sctp = plan({ protocol: "SCTP" });
  for (
    const [service, feature] of [[two, "statistic"], [sticky, "recent"], [sctp, "sctp"]] as const
  ) {
    const { rulesOf, quarantined } = render(service, without(feature));
    assertEquals(rulesOf("services"), []);
    assertEquals(quarantined.map(({ key }) => key), [service.key]);
    assert(quarantined[0]?.reason.includes(`xt_${feature}`));
    assertEquals(render(plan(), without(feature)).quarantined, []);
  }
  const local = plan({ nodePort: 30080, externalTrafficPolicy: "Local" });
  const { rulesOf, quarantined } = render(local, without("addrtype"));
  assertEquals([rulesOf("services").length, rulesOf("nodePorts").length], [1, 0]);
  assertEquals(quarantined[0]?.address, "external addresses");
});

Deno.test("renderService() writes no comment if the kernel has none", () => {
  const service = plan({ to: [], nodePort: 30080 });
  const { rulesOf } = render(service, { ...without("comment"), serviceComments: false });
  assertEquals(rulesOf("refused"), [`${VIP} -j REJECT`]);
});
