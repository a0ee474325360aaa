/**
 * Tests packets during a sync: after each part of it that takes effect.
 *
 * @module
 */
import { assert } from "@std/assert";
import fc from "fast-check";
import { AppliedRules } from "../../backends/iptables/applied_rules.ts";
import { baseJumps } from "../../backends/iptables/base_chains.ts";
import { diffRules } from "../../backends/iptables/diff.ts";
import { IptablesLayout } from "../../backends/iptables/layout.ts";
import { walkIptables } from "../support/walk/iptables_walk.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { defaultRenderOptions } from "../support/builders/iptables_render_options.ts";
import { randomServicePlan } from "../support/builders/random_service_plan.ts";
import { testSharedPlan } from "../support/builders/service_plans.ts";
import { FakeIptables } from "../support/fakes/fake_iptables.ts";

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

Deno.test("a sync leaves no packet to a Service unclaimed at any moment", () => {
  const batches = fc.array(
    fc.array(randomServicePlan, { minLength: 1, maxLength: 30 }),
    { minLength: 3, maxLength: 8, size: "max" },
  );
  let checks = 0;
  fc.assert(
    fc.property(batches, (batches) => {
      let claims: readonly ServicePlan[] = [];
      let commits = 0;
      const tool = new FakeIptables((table) => {
        commits++;
        checks += claims.length;
        for (const plan of claims) {
          assert(isClaimed(tool, plan), `${plan.key} at ${plan.clusterIp} after ${table}`);
        }
      });
      const layout = new IptablesLayout(SHARED, OPTIONS);
      const applied = new AppliedRules();
      const plans = new Map<ServicePortKey, ServicePlan>();
      const sync = () => {
        const batch = diffRules(
          layout,
          applied,
          commits === 0 ? { jumps: baseJumps(OPTIONS) } : {},
        );
        tool.restore([...batch.text()].join(""));
        applied.confirm(batch.applied);
        layout.settle();
      };
      sync();
      for (const batch of batches) {
        const before = new Map(plans);
        for (const plan of batch) {
          plans.set(plan.key, plan);
          layout.set(plan);
        }
        // What is claimed by the same ServicePort before and after has to be claimed throughout.
        claims = [...before.values()].filter((plan) => {
          const after = plans.get(plan.key);
          return after?.clusterIp === plan.clusterIp && after.port === plan.port;
        });
        sync();
      }
    }),
    { numRuns: 20 },
  );
  assert(checks > 1_000, `only ${checks} packets were looked at`);
});
