import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import {
  testForward,
  testPlanChanges,
  testProxyPlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { FakeIptablesMachine } from "../../tests/support/fakes/fake_iptables_machine.ts";
import { IptablesWriterStage } from "../../tests/support/stages/iptables_writer_stage.ts";
import { WantedRules } from "../netfilter/wanted_rules.ts";
import { IptablesLayout } from "./layout.ts";
import { type IptablesRules, WriteFigures } from "./target.ts";

const OPTIONS = defaultRenderOptions("IPv4");
const WEB = testServicePlan({ masqueradeInternal: "off-cluster", to: ["10.0.0.1:80"] });

/** Rules of a machine, taken from plans. */
class Stage extends IptablesWriterStage {
  readonly rules: IptablesRules;
  #previous: ProxyPlan | undefined;

  constructor(variant: "legacy" | "nft" = "nft") {
    const tellsCommitOnly = variant === "legacy";
    super({ machine: Object.assign(new FakeIptablesMachine(), { tellsCommitOnly }) });
    this.rules = new WantedRules({
      ...this,
      createLayout: (shared, options) => new IptablesLayout(shared, options),
    });
  }

  async apply(plan: ProxyPlan, options = OPTIONS): Promise<WriteFigures> {
    const figures = new WriteFigures();
    await this.rules.take(plan, { changes: testPlanChanges(plan, this.#previous), options });
    await this.rules.write(figures);
    this.#previous = plan;
    return figures;
  }
}

Deno.test("WantedRules of iptables costs as much as the change", async () => {
  const stage = new Stage();
  const others = Array.from(
    { length: 10 },
    (_, index) =>
      testServicePlan({ name: `o${index}`, clusterIp: `172.30.0.${index}`, to: ["10.0.0.2:80"] }),
  );
  await stage.apply(testProxyPlan([WEB, ...others]));
  const { reads, chains } = await stage.apply(testProxyPlan(others));
  assertEquals([reads, chains <= 2], [0, true]);
  assertEquals(stage.machine.rules(/10\.0\.0\.1:80/), []);
});

Deno.test("WantedRules of iptables keeps accepted rules while it searches for refused ones", async () => {
  const stage = new Stage("legacy");
  const { machine } = stage;
  const apiTo = (endpoint: string) =>
    testServicePlan({ name: "api", clusterIp: "172.30.0.9", to: [endpoint] });
  await stage.apply(testProxyPlan([WEB, apiTo("10.0.0.2:80")]));
  const served: number[] = [];
  machine.judge = (line) => {
    served.push(machine.rules(/ns\/web.* -j DNAT/).length);
    return line.includes("10.0.0.99:") ? "Invalid argument" : undefined;
  };
  const changed = { ...WEB, internal: testForward("10.0.0.3:80") };
  await stage.apply(testProxyPlan([changed, apiTo("10.0.0.99:80")]));
  assertEquals(served.filter((count) => count !== 1), []);
  assertEquals(stage.rules.quarantined.map(({ key }) => key), [apiTo("10.0.0.99:80").key]);
  assertEquals(machine.rules(/10\.0\.0\.3:80/).length, 1);
});

Deno.test("WantedRules of iptables follows addresses of the node without reading anything", async () => {
  const stage = new Stage();
  const options = { ...OPTIONS, features: { ...OPTIONS.features, addrtype: false } };
  const plan = testProxyPlan([WEB]);
  await stage.apply(plan, options);
  const nodePortAddresses = [parseIpAddress("192.168.0.2")];
  const moved = { ...plan, shared: { ...plan.shared, nodePortAddresses } };
  const { reads, restores } = await stage.apply(moved, options);
  assertEquals([reads, restores], [0, 1]);
  assertEquals(stage.machine.rules(/-d 192\.168\.0\.2 .*-j KUBE-NODEPORTS/).length, 1);
});

Deno.test("WantedRules of iptables lays out everything again when settings of all rules change", async () => {
  const stage = new Stage();
  const plan = testProxyPlan([WEB]);
  await stage.apply(plan);
  const localTraffic = { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") } as const;
  const known = { ...plan, shared: { ...plan.shared, localTraffic } };
  assertEquals((await stage.apply(known)).reads, 1);
  assertEquals(stage.machine.rules(/! -s 10\.0\.0\.0\/8 .*KUBE-MARK-MASQ/).length, 1);
  await stage.apply(known, { ...OPTIONS, masqueradeBit: 15 });
  assertEquals(stage.machine.rules(/--or-mark 0x00008000/).length, 1);
  assertEquals(stage.machine.rules(/0x00004000/), []);
});

Deno.test("WantedRules of iptables has nothing to verify before the first plan, and repairs afterwards", async () => {
  const stage = new Stage();
  const before = new WriteFigures();
  await stage.rules.verify(before);
  assertEquals([before.reads, stage.rules.isKnown], [0, false]);
  await stage.apply(testProxyPlan([WEB]));
  const good = stage.machine.tool.dump();
  stage.machine.tool.flush("nat");
  const figures = new WriteFigures();
  await stage.rules.verify(figures);
  assertEquals([figures.reads, figures.restores], [2, 1]);
  assertEquals(stage.machine.tool.dump(), good);
});
