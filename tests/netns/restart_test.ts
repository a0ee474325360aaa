/** Tests the effect of a stop and a start on clients. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { ApiProcess } from "../support/drivers/api_process.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { testNeeding } from "../support/requirement.ts";
import {
  VIP,
  VIP_6,
  VIP_UDP,
  webObjects,
  webServices,
  webSlices,
} from "../support/builders/web_service.ts";

const test = testNeeding("restarts with real packets", netnsRequirements());

const { IPv4, IPv6 } = ADDRESSES;
for (const kind of ["manifests", "an API server"] as const) {
  test(`restart: after kill -9 the addresses stay, and new connections work after a start: ${kind}`, async () => {
    await using scene = await RelayScene.create();
    const options = kind === "manifests" ? {} : { source: await startApi(scene) };
    await scene.write(webServices(), webSlices("a1"));
    const first = scene.start([], options);
    await first.settled();
    const client = ProbeClient.start(scene.cluster.client);
    assertEquals(await client.who(VIP), "pod-a1");
    const before = await scene.snapshot();
    const kept = await client.open(VIP);
    await kept.who();
    await first.kill();
    assertEquals(await scene.snapshot(), before);
    assertEquals(await client.who(VIP), "refused");
    assert(await kept.who() !== "pod-a1", "an open connection is lost");

    scene.start([], options);
    for (const target of [VIP, VIP_6, VIP_UDP]) {
      await eventually(
        "a connection works again",
        async () => await client.who(target, 50) === "pod-a1",
      );
    }
    assertEquals(await scene.snapshot(), before);
  });
}

/** Starts an API server that has the Service of {@linkcode webServices}, on the node. */
async function startApi({ cluster, folder }: RelayScene): Promise<readonly string[]> {
  const api = await ApiProcess.start(cluster.node, `${folder}/kubeconfig`);
  await api.write(webObjects("a1"));
  return [`--kubeconfig=${api.kubeconfig}`];
}

test("restart: SIGTERM stops accepting, lets an open connection finish, and exits with 0", async () => {
  await using scene = await RelayScene.create();
  await scene.write(webServices(), webSlices("a1"));
  const relay = scene.start(["--drain-timeout=10m"]);
  await relay.settled();
  const client = ProbeClient.start(scene.cluster.client);
  const open = await client.open(VIP);
  assertEquals(await open.who(), "pod-a1");
  relay.terminate();
  await eventually("no new connection is taken", async () => await client.who(VIP) === "refused");
  for (let i = 0; i < 5; i++) assertEquals(await open.who(), "pod-a1");
  await open.close();
  // Long before the time-out.
  assertEquals(await relay.ended(), 0);
});

test("restart: SIGTERM waits no longer than --drain-timeout", async () => {
  await using scene = await RelayScene.create();
  await scene.write(webServices(), webSlices("a1"));
  const relay = scene.start(["--drain-timeout=1s"]);
  await relay.settled();
  const open = await ProbeClient.start(scene.cluster.client).open(VIP);
  assertEquals(await open.who(), "pod-a1");
  const start = performance.now();
  assertEquals(await relay.stop(), 0);
  assert(performance.now() - start >= 1_000);
  assert(await open.who() !== "pod-a1");
});

test("restart: --cleanup after kill -9 leaves the node as it was before the first start", async () => {
  await using scene = await RelayScene.create();
  const before = await scene.snapshot();
  await scene.write(webServices(), webSlices("a1"));
  for (const mode of ["each", "anyip"]) {
    const ranges = `--service-cidr=${IPv4.serviceCidr},${IPv6.serviceCidr}`;
    const relay = scene.start([`--address-mode=${mode}`, ranges]);
    await relay.settled();
    assertEquals(await ProbeClient.start(scene.cluster.client).who(VIP), "pod-a1");
    assert(await scene.snapshot() !== before);
    await relay.kill();
    assertStringIncludes(await scene.cleanup(), "removed ");
    assertEquals(await scene.snapshot(), before, mode);
  }
});
