/**
 * Tests health checks and ejection in userspace mode where the kernel decides what a failure looks like:
 * an endpoint that does not answer at all, and one without a route.
 */
import { assert, assertEquals } from "@std/assert";
import type { StatusReport } from "../../lib/tools/status/status_report.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { ProbeClient, startEchoServer } from "../support/drivers/echo_network.ts";
import { testNeeding } from "../support/requirement.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { servicesOf } from "../support/stages/relay_process.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";

const test = testNeeding("health of endpoints with real packets", netnsRequirements());

const { localPods: [, POD], remotePods: [OTHER_POD] } = ADDRESSES.IPv4;
const CHECKED = {
  name: "checked",
  address: "172.30.0.70",
  annotations: {
    "kube-relay.io/health-check": "tcp",
    "kube-relay.io/health-check-interval": "1s",
    "kube-relay.io/health-check-timeout": "500ms",
    "kube-relay.io/health-check-rise": "1",
    "kube-relay.io/health-check-fall": "1",
  },
};
const EJECTING = {
  name: "ejecting",
  address: "172.30.0.71",
  annotations: { "kube-relay.io/eject-after": "2", "kube-relay.io/ejection-time": "5s" },
};
const SERVICES = [CHECKED, EJECTING];
/** A hardware address that no device has: what is sent there is lost. */
const NOBODY = "02:00:00:00:00:99";

function healthOf(status: StatusReport, service: string) {
  const found = servicesOf(status).find(({ name }) => name === `ns1/${service}`);
  return found?.endpoints.find(({ address }) => address === `${POD}:8080`)?.health;
}

test("userspace mode skips endpoints that do not answer, or have no route, and uses them again", async (t) => {
  await using scene = await RelayScene.create();
  const { node, localPods, localPodClient } = scene.cluster;
  await startEchoServer(localPods[1], { name: "pod-a2", listen: [{ address: POD, port: 8080 }] });
  const endpoints = { endpoints: [POD, OTHER_POD], ports: [{ protocol: "TCP", port: 8080 }] };
  await scene.write(
    SERVICES.map(({ name, address, annotations }) =>
      testService(name, { clusterIP: address }, { metadata: { annotations } })
    ),
    SERVICES.map(({ name }) => testEndpointSlice(name, endpoints)),
  );
  const relay = scene.start();
  await relay.settled();
  const client = ProbeClient.start(localPodClient);

  /** The servers that answer. */
  const answers = async ({ address }: { readonly address: string }) => {
    const target = { protocol: "TCP", address, port: 80 } as const;
    const names = new Set<string>();
    for (let count = 0; count < 6; count++) names.add(await client.who(target));
    return [...names].sort();
  };
  for (const target of SERVICES) {
    assertEquals(await answers(target), ["pod-a2", "pod-b1"]);
  }
  const failures = {
    "no connection within 500ms": {
      begin: `neigh replace ${POD} lladdr ${NOBODY} nud permanent dev cni0`,
      end: `neigh del ${POD} dev cni0`,
    },
    "no route to the host": {
      begin: `route add unreachable ${POD} metric 0`,
      end: `route del unreachable ${POD}`,
    },
  };
  for (const [reason, { begin, end }] of Object.entries(failures)) {
    await t.step(`a check finds ${reason}`, async () => {
      await node.ip(begin);
      await relay.until(
        `unhealthy: ${reason}`,
        (status) => healthOf(status, "checked")?.reason === reason,
      );
      assertEquals(await answers(CHECKED), ["pod-b1"]);
    });
    await t.step(`connections find it, and eject the endpoint`, async () => {
      assertEquals(await answers(EJECTING), ["pod-b1"], "another endpoint is tried");
      const { reason: found = "" } = healthOf(
        await relay.until(
          "ejected",
          (status) => healthOf(status, "ejecting")?.state === "ejected",
        ),
        "ejecting",
      )!;
      const words = reason.startsWith("no route") ? reason : "no connection in time";
      assert(found.endsWith(`the last one: ${words}`), found);
    });
    await t.step("it is used again", async () => {
      await node.ip(end);
      await relay.until("healthy", (status) => healthOf(status, "checked")?.state === "healthy");
      await relay.until("back", (status) => healthOf(status, "ejecting")?.state === "unchecked");
      for (const target of SERVICES) {
        assertEquals(await answers(target), ["pod-a2", "pod-b1"]);
      }
    });
  }
});
