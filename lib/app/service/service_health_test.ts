import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import {
  testEndpoint,
  testPlanChanges,
  testProxyPlan,
  testServicePlan,
} from "../../../tests/support/builders/service_plans.ts";
import { configurationOf } from "../../../tests/support/drivers/own_flags.ts";
import { unusedPort } from "../../../tests/support/drivers/unused_port.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { ProxyHealth } from "../../health/proxy_health.ts";
import type { KubeEvent } from "../../kube/event.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import { OpenFiles } from "../../os/open_files.ts";
import { systemNetwork } from "../../os/network.ts";
import { createServiceHealth } from "./service_controller.ts";

const LOOPBACK = parseIpAddress("127.0.0.1");

/** The servers, after a sync of one Service with this health check node port and one endpoint. */
async function serve(
  port: number,
  { healthzBindAddress = "0.0.0.0:10256", nodePortAddresses = ["127.0.0.0/8"] } = {},
) {
  const events: KubeEvent[] = [];
  const counted: "failure"[] = [];
  const clock = new FakeClock();
  const informers = new InformerSet();
  informers.subscribe(SERVICE).upsert({
    metadata: { namespace: "ns", name: "web", uid: "uid of ns/web" },
    spec: {},
  });
  const loaded = await configurationOf(["--manifests=/m", "--control-socket=/run/t/c.sock"]);
  const proxy = { ...loaded.proxy, healthzBindAddress };
  const configuration = { ...loaded, proxy, mode: "userspace", families: ["IPv4"] } as const;
  const current = { proxy: { ...proxy, nodePortAddresses } };
  const health = new ProxyHealth({ clock }, { timeoutMs: 0 });
  const server = createServiceHealth({
    clock,
    logger: new MemoryLogger(),
    network: systemNetwork,
    openFiles: new OpenFiles(),
    random: () => 0,
    startUp: { events: { record: (event) => events.push(event) } },
    metrics: { healthBindFailed: () => void counted.push("failure") },
    ...{ configuration, current, health, informers },
  });
  const plan = testProxyPlan([testServicePlan({
    healthCheckNodePort: parsePort(port),
    endpoints: [testEndpoint("10.0.0.1:80", { isLocal: true })],
  })], { shared: { nodePortAddresses: [LOOPBACK] } });
  server.synced("IPv4", plan, testPlanChanges(plan));
  await server.settled();
  const ask = async () => {
    const answer = await fetch(`http://127.0.0.1:${port}/`);
    await answer.body?.cancel();
    return answer.status;
  };
  return { server, plan, health, events, counted, current, ask };
}

Deno.test("createServiceHealth() moves to other addresses when the configuration changes", async () => {
  const port = unusedPort();
  const { server, plan, current } = await serve(port);
  const all = parseIpAddress("127.0.0.2");
  const status = async () => {
    const answer = await fetch(`http://${all}:${port}/`).catch(() => undefined);
    await answer?.body?.cancel();
    return answer?.status;
  };
  assertEquals(await status(), undefined);
  const { proxy } = current;
  current.proxy = { ...proxy, nodePortAddresses: [] };
  // As in a sync after new settings: everything is planned again, with the same result.
  server.synced("IPv4", plan, testPlanChanges(plan));
  await server.settled();
  assertEquals(await status(), 200);
  current.proxy = proxy;
  server.synced("IPv4", plan, testPlanChanges(plan));
  await server.settled();
  assertEquals(await status(), undefined);
  await server.stop();
});

Deno.test("createServiceHealth() reports a port in use by an event on the Service, and counts it", async () => {
  using taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = taken.addr;
  const { server, events, counted } = await serve(port);
  assertEquals([events.length, counted], [1, ["failure"]]);
  const { note, ...event } = events[0]!;
  assertEquals(event, {
    type: "Warning",
    reason: "FailedToStartServiceHealthcheck",
    action: "Listen",
    regarding: {
      apiVersion: "v1",
      kind: "Service",
      namespace: "ns",
      name: "web",
      uid: "uid of ns/web",
    },
  });
  assertEquals(note.includes(`health check node port ${port}: `), true, note);
  await server.stop();
});
