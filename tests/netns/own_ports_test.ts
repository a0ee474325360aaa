/**
 * Tenants' Services that ask for the port of the node's BGP peer, with real packets. Those that ask for
 * kube-relay's own ports are in `tests/own_ports_test.ts`, by the rules of each mode.
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { VIP, webServices, webSlices } from "../support/builders/web_service.ts";
import { ProbeClient, startEchoServer } from "../support/drivers/echo_network.ts";
import { testNeeding } from "../support/requirement.ts";
import { RULE_MODES } from "../support/stages/rule_modes.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";

const { IPv4 } = ADDRESSES;

/** Its endpoint answers as `pod-b1`. */
const SLICE = testEndpointSlice("tenant", {
  endpoints: [IPv4.remotePods[0]],
  ports: ["own", "other"].map((name) => ({ name, protocol: "TCP", port: 8080 })),
});

/** The external IP is the BGP peer of the node. */
const REDIRECTING = testService("tenant", {
  clusterIP: "172.30.0.66",
  externalIPs: [IPv4.client],
  ports: [{ name: "own", port: 179 }, { name: "other", port: 180 }],
});

for (const mode of RULE_MODES) {
  const test = testNeeding(`a BGP peer in ${mode.name}`, mode.requirements());
  test(`${mode.name}: a Service does not redirect the sessions with a BGP peer`, async () => {
    await using stage = await RuleScene.create(mode);
    const { scene, scene: { cluster: { client, node } } } = stage;
    await startEchoServer(client, {
      name: "router",
      listen: [179, 180].map((port) => ({ address: IPv4.client, port })),
    });
    await scene.write([...webServices(), REDIRECTING], [...webSlices("a1"), SLICE]);
    const peer = `--bgp-peers=64513@${IPv4.client}`;
    const relay = scene.start([...mode.args, "--routing", "--bgp", peer]);
    const { families } = await relay.settled();
    const probes = ProbeClient.start(node);
    const target = { ...VIP, address: IPv4.client };
    assertEquals(await probes.who({ ...target, port: 180 }), "pod-b1");
    assertEquals(await probes.who({ ...target, port: 179 }), "router");
    const reasons = families.flatMap(({ quarantined }) => quarantined.map(({ reason }) => reason));
    assertStringIncludes(reasons.join("\n"), `${IPv4.client} and port 179 are those of BGP peer`);
    assertEquals(await relay.stop(), 0, relay.log);
  });
}
