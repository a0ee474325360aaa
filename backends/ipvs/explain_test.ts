import { assertEquals } from "@std/assert";
import { explainPacket } from "../../lib/proxy/explain_packet.ts";
import { type IpAddress, parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import type { ModeExplanation } from "../../lib/proxy/packet_explanation.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { testProxyPlan, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { explainIpvs } from "./explain.ts";
import { defaultIpvsOptions } from "./render_service.ts";

const WEB = testServicePlan({
  clusterIp: "10.96.0.1",
  externalIps: ["192.0.2.80"],
  to: ["10.0.0.1:80", "10.0.0.2:80"],
});
const OTHER = testServicePlan({ name: "other", clusterIp: "10.96.0.1", port: 81 });

function explain(
  services: readonly ServicePlan[],
  { to = "10.96.0.1", port = 80, from = "outside", isRefused = false, nodeAddresses = new Set() }: {
    readonly nodeAddresses?: ReadonlySet<IpAddress>;
    readonly to?: string;
    readonly port?: number;
    readonly from?: Packet["from"]["kind"];
    /** Whether the kernel refused the first Service. */
    readonly isRefused?: boolean;
  } = {},
) {
  const plan = testProxyPlan(services);
  const packet = {
    from: { kind: from, address: parseIpAddress("203.0.113.1") },
    to: parseIpAddress(to),
    port: parsePort(port),
    protocol: "TCP",
  } as const;
  const quarantined = isRefused ? [{ key: WEB.key, reason: "refused" }] : [];
  let explained: ModeExplanation = { carriers: [] };
  const options = { ...defaultIpvsOptions("IPv4"), nodeAddresses };
  explainPacket(plan, packet, {
    mode: "ipvs",
    explain: (...question) => explained = explainIpvs(...question, options),
  }, { quarantined });
  return explained;
}

Deno.test("explainIpvs() knows that Service addresses are closed for all else", () => {
  for (const to of ["10.96.0.1", "192.0.2.80"]) {
    for (const from of ["node", "outside"] as const) {
      const { deviations, carriers } = explain([WEB], { to, port: 22, from });
      assertEquals(deviations?.outcome?.kind, "reject", `${to} ${from}`);
      assertEquals(carriers.at(-1)?.text, `add KUBE-IPVS-IPS ${to}`);
    }
  }
  assertEquals(explain([WEB], { to: "10.96.0.2" }), { carriers: [] });
  // Its own address, and the port of the health check, which is open on every address.
  const nodeAddresses = new Set([parseIpAddress("192.0.2.80")]);
  assertEquals(explain([WEB], { to: "192.0.2.80", port: 22, nodeAddresses }), { carriers: [] });
  const checked = { ...WEB, healthCheckNodePort: parsePort(30_022) };
  assertEquals(explain([checked], { port: 30_022 }), { carriers: [] });
});

Deno.test("explainIpvs() has nothing of a ServicePort in quarantine", () => {
  assertEquals(explain([WEB], { isRefused: true }), { carriers: [] });
  assertEquals(explain([WEB, OTHER], { isRefused: true }).deviations?.outcome?.kind, "reject");
});

Deno.test("explainIpvs() says who has direct server return", () => {
  const plan = { ...WEB, annotations: { "kube-relay.io/dsr": "tunnel" } };
  const { deviations, carriers } = explain([plan], { to: "192.0.2.80" });
  assertEquals(deviations?.source?.rewritten, "never");
  const [real] = carriers.filter(({ object }) => object === "real server");
  assertEquals(real?.text, "-a -t 192.0.2.80:80 -r 10.0.0.1:80 -i -w 1");
  const node = explain([plan], { to: "192.0.2.80", from: "node" });
  assertEquals(node.carriers.filter(({ text }) => text.includes(" -i ")), []);
});

Deno.test("explainIpvs() knows that the node uses the Service address itself as its source", () => {
  const plan = { ...WEB, masqueradeInternal: "none" } as const;
  assertEquals(explain([plan], { from: "node" }).deviations?.source?.rewritten, "always");
  assertEquals(explain([plan]).deviations, {});
  assertEquals(explain([{ ...WEB, masqueradeInternal: "all" }], { from: "node" }).deviations, {});
  const own = testServicePlan({
    clusterIp: "10.96.0.1",
    to: ["203.0.113.1:80"],
    masqueradeInternal: "none",
  });
  assertEquals(explain([own], { from: "node" }).deviations, {});
});
