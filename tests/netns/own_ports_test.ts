/**
 * Tenants' Services that ask for the health port of kube-relay at the node's own address, or for the
 * port of its BGP peer, with real packets.
 *
 * @module
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { VIP, webServices, webSlices } from "../support/builders/web_service.ts";
import { ProbeClient, startEchoServer } from "../support/drivers/echo_network.ts";
import { isMissing } from "../support/requirement.ts";
import { RULE_MODES } from "../support/stages/rule_modes.ts";
import { RuleScene } from "../support/stages/rule_scene.ts";

const { IPv4 } = ADDRESSES;
const HEALTH_PORT = 10_256;
const PORTS = { own: HEALTH_PORT, other: 10_257 } as const;

/** Its endpoint answers as `pod-b1`. */
const TENANT = testService("tenant", {
  clusterIP: "172.30.0.66",
  externalIPs: [IPv4.node],
  ports: Object.entries(PORTS).map(([name, port]) => ({ name, port })),
});
const SLICE = testEndpointSlice("tenant", {
  endpoints: [IPv4.remotePods[0]],
  ports: Object.keys(PORTS).map((name) => ({ name, protocol: "TCP", port: 8080 })),
});

for (const mode of RULE_MODES) {
  Deno.test({
    name: `${mode.name}: a Service does not get the health port of the node`,
    ignore: isMissing(`the health port in ${mode.name}`, mode.requirements()),
    async fn() {
      await using stage = await RuleScene.create(mode);
      const { scene, scene: { cluster: { client } } } = stage;
      await scene.write([...webServices(), TENANT], [...webSlices("a1"), SLICE]);
      const relay = scene.start(mode.args);
      await relay.settled();
      const probes = ProbeClient.start(client);
      assertEquals(await probes.who({ ...VIP, address: IPv4.node, port: PORTS.other }), "pod-b1");
      const address = `http://${IPv4.node}:${HEALTH_PORT}/livez`;
      const code = `console.log((await fetch("${address}")).headers.get("server"))`;
      assertEquals((await client.output(Deno.execPath(), ["eval", code])).trim(), "kube-relay");
      assertEquals(await relay.stop(), 0, relay.log);
    },
  });
}

/** The external IP is the BGP peer of the node. */
const REDIRECTING = testService("tenant", {
  clusterIP: "172.30.0.66",
  externalIPs: [IPv4.client],
  ports: [{ name: "own", port: 179 }, { name: "other", port: 180 }],
});

for (const mode of RULE_MODES) {
  Deno.test({
    name: `${mode.name}: a Service does not redirect the sessions with a BGP peer`,
    ignore: isMissing(`a BGP peer in ${mode.name}`, mode.requirements()),
    async fn() {
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
      const reasons = families.flatMap(({ quarantined }) =>
        quarantined.map(({ reason }) => reason)
      );
      assertStringIncludes(reasons.join("\n"), `${IPv4.client} and port 179 are those of BGP peer`);
      assertEquals(await relay.stop(), 0, relay.log);
    },
  });
}
