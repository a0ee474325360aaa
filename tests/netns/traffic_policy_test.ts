/** The external traffic policy of a load balancer changes while it serves. */
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { ON_NODE_PORTS, VIP, webServices, webSlices } from "../support/builders/web_service.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { testNeeding } from "../support/requirement.ts";
import { NFTABLES_MODE, RULE_MODES, type RuleMode } from "../support/stages/rule_modes.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";

const { loadBalancerIp, node } = ADDRESSES.IPv4;
const LOAD_BALANCER = { ...VIP, address: loadBalancerIp };
const TARGETS = [
  LOAD_BALANCER,
  { ...LOAD_BALANCER, protocol: "UDP" },
  { ...VIP, address: node, port: 30080 },
] as const;
const CHANGES = 6;

const USERSPACE: RuleMode = {
  ...{ ...NFTABLES_MODE, name: "userspace mode", mode: "userspace", args: ["--mode=userspace"] },
};

function services(policy: "Cluster" | "Local") {
  const [web, ...others] = webServices({
    ...{ ...ON_NODE_PORTS, type: "LoadBalancer", externalIPs: [], externalTrafficPolicy: policy },
    ...(policy === "Local" && { healthCheckNodePort: 30111 }),
  });
  const status = { loadBalancer: { ingress: [{ ip: loadBalancerIp }] } };
  return [{ ...web!, status }, ...others];
}

for (const mode of [...RULE_MODES, USERSPACE]) {
  const test = testNeeding(`traffic policy in ${mode.name}`, mode.requirements());

  test(`the policy of ${mode.name} changes under load: no connection fails, and those that are open go on`, async () => {
    await using stage = await RuleScene.create(mode);
    const slices = webSlices("a1", "b1");
    await stage.scene.write(services("Cluster"), slices);
    const relay = stage.start();
    await relay.settled();
    const watcher = ProbeClient.start(stage.scene.cluster.client);
    await stage.assertNoFailureWhile(async () => {
      for (let change = 0; change < CHANGES; change++) {
        const isLocal = change % 2 === 0;
        await stage.scene.write(services(isLocal ? "Local" : "Cluster"), slices);
        const servers = isLocal ? "pod-a1" : "pod-a1 pod-b1";
        await eventually(`clients reach ${servers}`, async () => {
          const names = await watcher.whoAll(Array(20).fill(LOAD_BALANCER));
          return [...new Set(names)].sort().join(" ") === servers;
        });
      }
    }, {
      ...{ expect: ["pod-a1", "pod-b1"], to: TARGETS },
      // A busy machine cannot forward more here, with policy changes or without.
      ...(mode === USERSPACE && { perSecond: 20 }),
    });
    await relay.stop();
  });
}
