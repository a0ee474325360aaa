import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { ipvsPlanOf, IpvsRuns } from "../../tests/support/stages/ipvs_stage.ts";

const [MACHINE, FREE, BALANCER, CLUSTER_IP] = [
  "192.0.2.1",
  "192.0.2.2",
  "192.0.2.3",
  "172.30.0.1",
] as const;

Deno.test("IpvsBackend.disown() gives up external addresses of an earlier run, and no cluster IP", async () => {
  const runs = new IpvsRuns();
  const plan = ipvsPlanOf(testServicePlan({
    ...{ name: "web", clusterIp: CLUSTER_IP, to: ["10.1.0.1:8080"] },
    externalIps: [MACHINE, FREE].map(parseIpAddress),
    loadBalancerVips: [parseIpAddress(BALANCER)],
  }));
  await runs.run((stage) => stage.sync(plan).then(() => {}));
  const { addresses } = runs.machine.kernel;
  assertEquals([...addresses].sort(), [CLUSTER_IP, MACHINE, FREE, BALANCER].sort());
  await runs.run(async ({ backend }) => {
    const foreign: readonly string[] = [MACHINE, BALANCER, CLUSTER_IP];
    const given = await backend.disown!((address) => foreign.includes(address));
    assertEquals(given.map(String).sort(), [MACHINE, BALANCER]);
    assertEquals([...addresses].sort(), [CLUSTER_IP, FREE].sort());
    assertEquals(await backend.disown!((address) => foreign.includes(address)), []);
  });
});
