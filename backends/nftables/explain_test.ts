import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import { explainPacket } from "../../lib/proxy/explain_packet.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { testEndpoint, testProxyPlan, testServicePlan } from "../../tests/support/service_plans.ts";
import { explainNftables } from "./explain.ts";
import { defaultRenderOptions, type NftablesRenderOptions } from "./render_options.ts";

const ENDPOINTS = [testEndpoint("10.0.0.1:80"), testEndpoint("10.0.0.2:80")];
const FORWARD = { kind: "forward", endpoints: ENDPOINTS } as const;
const WEB = testServicePlan({
  clusterIp: "10.96.0.1",
  internal: FORWARD,
  endpoints: ENDPOINTS,
  reachable: ENDPOINTS,
});
const OPTIONS = defaultRenderOptions("IPv4");

function explain(
  service: ServicePlan,
  { options = OPTIONS, appliedPlan = service }: {
    readonly options?: NftablesRenderOptions;
    readonly appliedPlan?: ServicePlan;
  } = {},
) {
  const plan = testProxyPlan([service]);
  const explanation = explainPacket(plan, {
    from: { kind: "outside", address: parseIpAddress("203.0.113.1") },
    to: parseIpAddress("10.96.0.1"),
    port: parsePort(80),
    protocol: "TCP",
  });
  const main = [...ENDPOINTS].reverse();
  return explainNftables(plan, explanation, {
    options,
    table: { applied: (id) => ({ id, role: "clusterIp", plan: appliedPlan, main, local: [] }) },
  });
}

function endpointElements({ carriers }: ReturnType<typeof explain>): readonly string[] {
  return carriers.filter(({ name }) => name === "endpoints")
    .map(({ text }) => text.slice(text.lastIndexOf("0x"))).sort();
}

Deno.test("explainNftables() numbers endpoints as the kernel has them", () => {
  assertEquals(endpointElements(explain(WEB)), [
    "0x80000000 : 10.0.0.2 . 80",
    "0x80000001 : 10.0.0.1 . 80",
  ]);
});

Deno.test("explainNftables() goes by the plan where the kernel holds an older one", () => {
  assertEquals(endpointElements(explain(WEB, { appliedPlan: { ...WEB } })), [
    "0x80000000 : 10.0.0.1 . 80",
    "0x80000001 : 10.0.0.2 . 80",
  ]);
});

Deno.test("explainNftables() knows what a kernel lacks", () => {
  const features = { affinity: false, reject: false };
  const options = { ...OPTIONS, features };
  const sticky = explain({ ...WEB, affinityTimeoutSeconds: 60 }, { options });
  assertEquals(sticky.deviations?.unserved?.startsWith("Cannot express session affinity"), true);
  const refused = explain({ ...WEB, internal: { kind: "reject" } }, { options });
  assertEquals(refused.deviations?.refusal?.kind, "drop");
});
