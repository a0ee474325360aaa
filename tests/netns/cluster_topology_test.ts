/**
 * The namespaces that the other tests of this folder stand on.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { IP_FAMILIES } from "../../lib/net/ip_address.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { createClusterTopology } from "../support/stages/cluster_topology.ts";
import { ProbeClient, startEchoServer } from "../support/drivers/echo_network.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { isMissing } from "../support/requirement.ts";

const ignore = isMissing("real packets in network namespaces", netnsRequirements());
const PORT = 8080;

Deno.test({
  name: "createClusterTopology() lets every pod, node and client reach every pod by its address",
  ignore,
  async fn(t) {
    await using cluster = await createClusterTopology();
    const servers = [
      { namespace: cluster.localPods[0], name: "pod-a1", of: "localPods", at: 0 },
      { namespace: cluster.remotePods[1], name: "pod-b2", of: "remotePods", at: 1 },
    ] as const;
    for (const { namespace, name, of, at } of servers) {
      const listen = IP_FAMILIES.map((family) => ({
        address: ADDRESSES[family][of][at],
        port: PORT,
      }));
      await startEchoServer(namespace, { name, listen });
    }
    const from = {
      node: cluster.node,
      otherNode: cluster.otherNode,
      client: cluster.client,
      blockedClient: cluster.blockedClient,
      localPodClient: cluster.localPodClient,
      remotePodClient: cluster.remotePodClient,
    };
    for (const [who, namespace] of Object.entries(from)) {
      const client = ProbeClient.start(namespace);
      for (const family of IP_FAMILIES) {
        for (const protocol of ["TCP", "UDP"] as const) {
          await t.step(`${who}, ${family}, ${protocol}`, async () => {
            for (const { name, of, at } of servers) {
              const address = ADDRESSES[family][of][at];
              const answer = await client.probe({ protocol, address, port: PORT });
              assertEquals(
                answer.kind === "answered" && answer.by.name,
                name,
                JSON.stringify(answer),
              );
              if (answer.kind !== "answered") return;
              const { client: outside, blockedClient, localPodClient } = ADDRESSES[family];
              if (who === "client") assertEquals(answer.by.peer, outside);
              if (who === "blockedClient") assertEquals(answer.by.peer, blockedClient);
              if (who === "localPodClient") assertEquals(answer.by.peer, localPodClient);
            }
          });
        }
      }
    }
    const client = ProbeClient.start(cluster.client);
    const { localPods, clusterIp } = ADDRESSES.IPv4;
    const closed = { protocol: "TCP", address: localPods[0], port: PORT + 1 } as const;
    assertEquals(await client.who(closed), "refused");
    // The node forwards packets to an unserved address, and no server answers for a Service.
    assertEquals((await client.who({ ...closed, address: clusterIp }, 300)).includes("pod"), false);
  },
});

Deno.test({
  name: "ProbeClient.startLoad() counts every attempt, and finds unexpected servers",
  ignore,
  async fn() {
    await using cluster = await createClusterTopology();
    const address = ADDRESSES.IPv4.localPods[0];
    const listen = [{ address, port: PORT }];
    await startEchoServer(cluster.localPods[0], { name: "pod-a1", listen });
    const client = ProbeClient.start(cluster.client);
    const target = { protocol: "TCP", address, port: PORT } as const;
    // The first exchange is slow, and only the first twenty failures are kept as examples.
    assertEquals(await client.who(target), "pod-a1");
    await client.startLoad([
      { ...target, expect: ["pod-a1"] },
      { ...target, protocol: "UDP", expect: [] },
      { ...target, expect: ["pod-b1"] },
      { ...target, port: PORT + 1, expect: [] },
    ], { perSecond: 100 });
    const kept = await ProbeClient.start(cluster.localPodClient).open(target);
    for (let i = 0; i < 20; i++) assertEquals(await kept.who(), "pod-a1");
    await kept.close();
    const report = await client.stopLoad();
    assertEquals(report.attempts, report.answered + report.failures);
    assertEquals(Math.abs(report.answered - report.failures) <= 2, true, JSON.stringify(report));
    for (const what of ['"pod-a1"', '"refused"']) {
      assertEquals(report.examples.some((example) => example.includes(what)), true, what);
    }
  },
});
