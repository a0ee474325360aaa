import { assert, assertEquals, assertRejects } from "@std/assert";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { testProxyPlan, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { FakeIptables } from "../../tests/support/fakes/fake_iptables.ts";
import { explainPacket } from "../../lib/proxy/explain_packet.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import { findHit } from "../../lib/proxy/packet_hit.ts";
import { explainIptables, findMissingRules } from "./explain.ts";
import { layOut, renderIptables } from "./render.ts";

const CARRIER = {
  object: "rule",
  name: "nat KUBE-SERVICES",
  text: "-A KUBE-SERVICES -d 10.96.0.1 -m tcp -p tcp --dport 80 -j DROP",
};
const PRINTED = "-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DROP";

async function kinds(found: readonly string[] | undefined): Promise<readonly string[]> {
  const asked: string[] = [];
  const rulesOf = (table: string, chain: string) => {
    asked.push(`${table} ${chain}`);
    return Promise.resolve(found);
  };
  const differences = await findMissingRules({ rulesOf }, [CARRIER, CARRIER]);
  assertEquals(asked, ["nat KUBE-SERVICES"], "each chain is read once");
  return differences.map(({ kind, object, name }) => `${kind} ${object} ${name}`);
}

Deno.test("findMissingRules() knows a rule as the tools print it", async () => {
  assertEquals(await kinds(["-j RETURN", PRINTED]), []);
});

Deno.test("findMissingRules() names missing rules, or the missing chain", async () => {
  const rule = "missing rule nat KUBE-SERVICES";
  assertEquals(await kinds(["-j RETURN"]), [rule, rule]);
  assertEquals(await kinds(undefined), ["missing chain nat KUBE-SERVICES"]);
});

Deno.test("findMissingRules() rejects before there is anybody to ask", async () => {
  await assertRejects(() => findMissingRules(undefined, []), Error, "has not succeeded");
});

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
  const { carriers } = explainIptables(
    explainPacket(plan, packet),
    findHit(plan, packet),
    layOut(plan, options),
  );
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
