/**
 * Tests idle clients in the modes whose rules are in the kernel: they use no file that a tool or
 * the API needs.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { ADDRESSES, THIS_NODE } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import type { Namespace } from "../support/stages/netns.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { isMissing, program } from "../support/requirement.ts";
import { RULE_MODES } from "../support/stages/rule_modes.ts";
import { VIP, webServices, webSlices } from "../support/builders/web_service.ts";

const { node: NODE } = ADDRESSES.IPv4;
const HEALTH_PORT = 10_256;
const HEALTH_CHECK_NODE_PORT = 32_001;
/** Soft and hard limit of the process, and more clients of each port than that. */
const OPEN_FILES = 300;
const TOO_MANY = 400;
/** The addresses of the machine are looked at every 10 s, which takes a file. */
const ONE_LOOK_MS = 11_000;

/** A Service that load balancers check on this node. */
const CHECKED = testService("checked", {
  type: "LoadBalancer",
  externalTrafficPolicy: "Local",
  healthCheckNodePort: HEALTH_CHECK_NODE_PORT,
  clusterIP: "172.30.0.60",
});
const CHECKED_SLICE = testEndpointSlice("checked", {
  endpoints: [{ addresses: [ADDRESSES.IPv4.localPods[0]], nodeName: THIS_NODE }],
});

/** The status of an answer of the node's to a client. */
async function statusFor(client: Namespace, port: number, path: string): Promise<number> {
  const code = `console.log((await fetch("http://${NODE}:${port}${path}")).status)`;
  return Number(await client.output(Deno.execPath(), ["eval", code]));
}

for (const { name, args, requirements, prepare } of RULE_MODES) {
  Deno.test({
    name: `${name}: idle clients of the own ports hold up neither health checks nor syncs`,
    ignore: isMissing(`${name} with few open files`, [...requirements(), program("prlimit")]),
    async fn() {
      await using scene = await RelayScene.create();
      const { node, client } = scene.cluster;
      await prepare(node);
      await scene.write([...webServices(), CHECKED], [...webSlices("a1"), CHECKED_SLICE]);
      const limit = `--nofile=${OPEN_FILES}:${OPEN_FILES}`;
      const relay = scene.start([...args, "--metrics-bind-address=0.0.0.0"], {
        by: ["prlimit", limit],
      });
      await relay.settled();
      const ports = [HEALTH_PORT, HEALTH_CHECK_NODE_PORT, 10_249];
      const idle = client.startDeno(
        new URL("../support/drivers/idle_clients.ts", import.meta.url),
        [String(TOO_MANY), ...ports.flatMap((port) => [NODE, String(port)])],
      );
      assertEquals(await idle.nextLine(), "open");
      const start = performance.now();
      await eventually(
        "the addresses were looked at",
        () => performance.now() - start > ONE_LOOK_MS,
        { deadlineMs: 2 * ONE_LOOK_MS },
      );
      assertEquals(await statusFor(client, HEALTH_PORT, "/livez"), 200);
      assertEquals(await statusFor(client, HEALTH_CHECK_NODE_PORT, "/"), 200);
      assertEquals(await statusFor(client, 10_249, "/metrics"), 200);
      const probe = ProbeClient.start(client);
      assertEquals(await probe.who(VIP), "pod-a1");
      await scene.write([...webServices(), CHECKED], [...webSlices("b1"), CHECKED_SLICE]);
      await eventually("a change is synced", async () => await probe.who(VIP) === "pod-b1");
      assertEquals(await relay.stop(), 0, relay.log);
      assert(!/os error 24|EMFILE/.test(relay.log), relay.log);
    },
  });
}
