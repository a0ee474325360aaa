/** Tests packets during a sync: after each part of it that takes effect. */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { walkIptables } from "../support/walk/iptables_walk.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { defaultRenderOptions } from "../support/builders/iptables_render_options.ts";
import { randomServicePlan } from "../support/builders/random_service_plan.ts";
import { testSharedPlan } from "../support/builders/service_plans.ts";
import type { FakeIptables } from "../support/fakes/fake_iptables.ts";
import { FakeIptablesMachine } from "../support/fakes/fake_iptables_machine.ts";
import { IptablesWriterStage } from "../support/stages/iptables_writer_stage.ts";

const { IPv4 } = ADDRESSES;
const OPTIONS = defaultRenderOptions("IPv4");
const SHARED = testSharedPlan({ localTraffic: { kind: "byCidr", cidr: IPv4.podCidr } });

/** Whether every first packet to the cluster IP gets an endpoint or an answer. */
function isClaimed(tool: FakeIptables, { clusterIp, port, protocol }: ServicePlan): boolean {
  const packet = {
    source: IPv4.localPodClient,
    destination: clusterIp,
    port,
    protocol,
    inInterface: "cni0",
  };
  const host = {
    isLocal: (address: string) => address === "127.0.0.1" || address === IPv4.node,
    isListed: () => false,
  };
  return walkIptables((table, chain) => tool.table(table).get(chain), packet, host)
    .every(({ verdict, endpoint }) => verdict !== "ACCEPT" || endpoint !== undefined);
}

Deno.test("a sync leaves no packet to a Service unclaimed at any moment", async () => {
  const batches = fc.array(
    fc.array(randomServicePlan, { minLength: 1, maxLength: 30 }),
    { minLength: 3, maxLength: 8, size: "max" },
  );
  let checks = 0;
  await fc.assert(
    fc.asyncProperty(batches, async (batches) => {
      let claims: readonly ServicePlan[] = [];
      const unclaimed: string[] = [];
      const machine: FakeIptablesMachine = new FakeIptablesMachine((table) => {
        checks += claims.length;
        for (const plan of claims) {
          if (isClaimed(machine.tool, plan)) continue;
          unclaimed.push(`${plan.key} at ${plan.clusterIp} after ${table}`);
        }
      });
      const stage = new IptablesWriterStage({ machine, shared: SHARED, options: OPTIONS });
      const plans = new Map<ServicePortKey, ServicePlan>();
      await stage.write();
      for (const batch of batches) {
        const before = new Map(plans);
        for (const plan of batch) {
          plans.set(plan.key, plan);
          stage.layout.set(plan);
        }
        // What is claimed by the same ServicePort before and after has to be claimed throughout.
        claims = [...before.values()].filter((plan) => {
          const after = plans.get(plan.key);
          return after?.clusterIp === plan.clusterIp && after.port === plan.port;
        });
        await stage.write();
        assertEquals(unclaimed, []);
      }
    }),
    { numRuns: 20 },
  );
  assert(checks > 1_000, `only ${checks} packets were looked at`);
});
