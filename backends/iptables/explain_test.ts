import { assert, assertEquals } from "@std/assert";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { testProxyPlan, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { FakeIptables } from "../../tests/support/fakes/fake_iptables.ts";
import { explainPacket } from "../../lib/proxy/explain_packet.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import type { ModeExplanation } from "../../lib/proxy/packet_explanation.ts";
import { explainIptables } from "./explain.ts";
import { layOut, renderIptables } from "./render.ts";

Deno.test("explainIptables() names the jumps that lead to a chain deep in the tree", () => {
  const plan = testProxyPlan(Array.from({ length: 400 }, (_, number) =>
    testServicePlan({
      name: `service-${number}`,
      clusterIp: `10.96.${number >> 8}.${number & 255}`,
      to: ["10.1.0.1:80"],
    })));
  const packet = {
    from: { kind: "outside", address: parseIpAddress("203.0.113.1") },
    to: parseIpAddress("10.96.1.7"),
    port: parsePort(80),
    protocol: "TCP",
  } as const;
  const options = defaultRenderOptions("IPv4");
  let explained: ModeExplanation = { carriers: [] };
  explainPacket(plan, packet, {
    mode: "iptables",
    explain: (_, draft, hit) => explained = explainIptables(draft, hit, layOut(plan, options)),
  });
  const { carriers } = explained;
  const iptables = new FakeIptables();
  iptables.restore(renderIptables(plan, options).lines.join("\n"));
  assert(carriers.length > 3, `${carriers.length} rules`);
  let chain: string | undefined = "KUBE-SERVICES";
  for (const { text, isShared } of carriers) {
    const [, at, rule] = /^-A (\S+) (.*)$/.exec(text)!;
    assertEquals(at, chain);
    assert(iptables.table("nat").get(at!)?.includes(rule!), text);
    chain = isShared ? rule!.split(" ").at(-1) : chain;
  }
});
