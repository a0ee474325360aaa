/**
 * Tests direct server return in ipvs mode with real packets: a client, two nodes with a pod each, and
 * captures on the way. The namespaces of this node's pods are all that a node has in `/run/netns`.
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import type { RawObject } from "../conformance/server.ts";
import { rawEndpointSlice } from "../support/builders/raw_objects.ts";
import { type EchoAddress, ProbeClient, startEchoServer } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { IPVS_MODE } from "../support/stages/ipvs_mode.ts";
import type { Namespace } from "../support/stages/netns.ts";
import { createPodScene, type PodNode } from "../support/stages/pod_scene.ts";
import { RelayProcess } from "../support/stages/relay_process.ts";
import { GUEST } from "./guest.ts";

const test = testNeeding("direct server return through IPVS", [
  GUEST,
  ...IPVS_MODE.requirements(),
  ...["tcpdump", "unshare"].map(program),
]);

/** By family: the external IP, the port, and the client as servers see it. */
const FAMILIES = [
  { type: "IPv4", vip: "198.51.100.9", port: 9090, client: "192.0.2.254", cluster: "172.30.0.90" },
  { type: "IPv6", vip: "2001:db8:9::9", port: 9091, client: "fd00:2::fe", cluster: "fd00:30::90" },
] as const;
const DSR = { "kube-router.io/service.dsr": "tunnel" };

/** Service `web-4` or `web-6`, with the pods of these nodes. */
function service(
  index: 0 | 1,
  nodes: readonly PodNode[],
  { annotations = DSR, targetPort }: { annotations?: object; targetPort?: number } = {},
): RawObject[] {
  const { type, vip, port, cluster } = FAMILIES[index];
  const name = `web-${type}`.toLowerCase();
  const endpoints = nodes.map(({ name, podAddresses }) => ({
    ...{ address: podAddresses[index], nodeName: name },
  }));
  return [
    {
      ...{
        apiVersion: "v1",
        kind: "Service",
        metadata: { namespace: "default", name, annotations },
      },
      spec: {
        ...{ clusterIP: cluster, clusterIPs: [cluster], ipFamilies: [type], externalIPs: [vip] },
        ports: [{ port, protocol: "TCP" }],
      },
    } as RawObject,
    rawEndpointSlice(name, {
      ...{ addressType: type, endpoints },
      ports: [{ name: "", port: targetPort ?? port, protocol: "TCP" }],
    }),
  ];
}

/** A command that sees only the namespace of a pod in `/run/netns`, as a node does. */
function withPodsOf({ pod, folder }: PodNode): readonly string[] {
  const script = `mount -t tmpfs none "$0" && : >"$0/cni-pod" &&
    mount --bind "/run/netns/$1" "$0/cni-pod" && mount --rbind "$0" /run/netns && shift && exec "$@"`;
  return ["unshare", "-m", "sh", "-c", script, `${folder}/netns`, pod.name];
}

function startOn(node: PodNode, manifests: string): RelayProcess {
  return RelayProcess.start(node.namespace, {
    ...{ folder: node.folder, by: withPodsOf(node) },
    args: [
      ...IPVS_MODE.args,
      ...[`--manifests=${manifests}`, "--conntrack-max-per-core=0"],
      `--hostname-override=${node.name}`,
    ],
  });
}

/** Captures packets in a namespace during an action; returns them, one a line. */
async function captured(
  places: readonly Namespace[],
  filter: string,
  action: () => Promise<void>,
): Promise<string[]> {
  const folder = await Deno.makeTempDir();
  const captures = places.map((place, index) => ({
    file: `${folder}/${index}`,
    process: place.start("tcpdump", [
      "--immediate-mode",
      "-Uni",
      "any",
      "-w",
      `${folder}/${index}`,
      filter,
    ]),
  }));
  for (const { process } of captures) {
    await eventually("it listens", () => process.errors.includes("listening on"));
  }
  await action();
  const texts: string[] = [];
  for (const { file, process } of captures) {
    process.signal("SIGTERM");
    await process.status();
    texts.push(await places[0]!.output("tcpdump", ["-nvr", file]));
  }
  await Deno.remove(folder, { recursive: true });
  return texts;
}

test("DSR: clients see the Service's address, servers the client, and replies go past the node", async (t) => {
  await using scene = await createPodScene([2, 2]);
  const [a, b] = scene.nodes as [PodNode, PodNode];
  const { router } = scene;
  for (const [node, other] of [[a, b], [b, a]] as const) {
    await Deno.mkdir(`${node.folder}/netns`);
    await node.namespace.sysctl("net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.pod.rp_filter=1");
    await node.pod.sysctl("net.ipv4.conf.all.rp_filter=1");
    for (const [index, gateway] of other.addresses.entries()) {
      await node.namespace.ip(`route add ${other.podCidrs[index]} via ${gateway}`);
    }
    const listen: EchoAddress[] = [
      { address: "0.0.0.0", port: FAMILIES[0].port },
      { address: "::", port: FAMILIES[1].port },
    ];
    await startEchoServer(node.pod, { name: `pod-${node.name}`, listen });
  }
  for (const [index, { vip }] of FAMILIES.entries()) {
    await router.ip(`route add ${vip} via ${a.addresses[index]}`);
  }
  const before = await Promise.all([a, b].map(({ pod }) => stateOf(pod)));
  const [client, onNode] = [router, a.namespace].map((each) => ProbeClient.start(each)) as [
    ProbeClient,
    ProbeClient,
  ];
  const write = (nodes: readonly PodNode[], more: Parameters<typeof service>[2] = {}) =>
    scene.write([...service(0, nodes, more), ...service(1, nodes, more)]);
  const ask = async (index: 0 | 1, from = client) => {
    const { vip: address, port } = FAMILIES[index];
    const answer = await from.probe({ protocol: "TCP", address, port });
    return answer.kind === "answered" ? [answer.by.name, answer.by.peer] : [answer.kind];
  };
  /** Waits until these answer, each in both families. */
  const answers = async (wanted: readonly string[], from = client) => {
    for (const index of [0, 1] as const) {
      await eventually(`${wanted} of ${FAMILIES[index].type}`, async () => {
        const names = [await ask(index, from), await ask(index, from)].map(([name]) => name);
        return names.sort().join() === wanted.join();
      }).catch((cause) => {
        throw new Error(relays.map(({ log }) => log).join("\n"), { cause });
      });
    }
  };
  await write([b]);
  const relays = [a, b].map((node) => startOn(node, scene.folder));
  for (const relay of relays) await relay.settled();

  for (const index of [0, 1] as const) {
    const { type, vip, client: own, port } = FAMILIES[index];
    await t.step(`${type}: the reply goes past the node that took the request`, async () => {
      const [onA = "", onB = ""] = await captured(
        [a.namespace, b.namespace],
        `host ${vip} or ip proto 4 or ip6 proto 41`,
        async () => assertEquals(await ask(index), ["pod-node-b", own]),
      );
      assertMatch(onA, new RegExp(`${own}\\.\\d+ > ${vip}\\.${port}: Flags \\[S\\]`));
      assert(!onA.includes(`${vip}.${port} > `), onA);
      assertStringIncludes(onB, `${a.addresses[index]} > ${b.podAddresses[index]}: IP`);
      // What the client sends has to fit into the tunnel.
      const mss = index === 0 ? 1440 : 1400;
      assertMatch(
        onB,
        new RegExp(`${vip}\\.${port} > ${own}\\.\\d+: Flags \\[S\\.\\].*\\bmss ${mss},`),
      );
    });
  }
  await t.step("a pod of the node itself, whose replies have an address of the node", async () => {
    await write([a]);
    await answers(["pod-node-a", "pod-node-a"]);
    for (const index of [0, 1] as const) {
      assertEquals((await ask(index))[1], FAMILIES[index].client);
    }
  });
  await t.step("the pod has no other addresses of the node as its source", async () => {
    await a.pod.ip(`addr add ${a.addresses[0]}/32 dev lo`);
    const [forged = ""] = await captured([router], `udp port 7777`, async () => {
      for (const bind of [a.addresses[0], a.podAddresses[0]]) {
        const line = `echo x | socat - UDP4-SENDTO:${FAMILIES[0].client}:7777,bind=${bind}`;
        await a.pod.output("sh", ["-c", line]);
      }
    });
    await a.pod.ip(`addr del ${a.addresses[0]}/32 dev lo`);
    assertStringIncludes(forged, `${a.podAddresses[0]}.`);
    assert(!forged.includes(`${a.addresses[0]}.`), forged);
  });
  await t.step("pods of both nodes, also for the node and pods, which have no tunnel", async () => {
    await write([a, b]);
    await answers(["pod-node-a", "pod-node-b"]);
    await answers(["pod-node-a", "pod-node-b"], onNode);
  });
  await t.step("a pod that can't be set up is left out with the reason", async () => {
    const ghost = { name: a.name, podAddresses: ["10.180.1.77", "fd00:180:1::77"] } as const;
    await write([a, ghost as unknown as PodNode]);
    await answers(["pod-node-a", "pod-node-a"]);
    const text = JSON.stringify(await relays[0]!.status());
    assertStringIncludes(text, "no namespace in /run/netns has 10.180.1.77");
  });
  await t.step("a restart writes nothing", async () => {
    await write([a, b]);
    await answers(["pod-node-a", "pod-node-b"]);
    await relays[0]!.kill();
    relays[0] = startOn(a, scene.folder);
    for (const { lastSync } of (await relays[0].settled()).families) {
      assertEquals(lastSync?.operations, { reads: 1 }, relays[0].log);
    }
  });
  await t.step(
    "without the annotation, and with other ports, nothing is left in pods",
    async () => {
      await write([a, b], { annotations: {} });
      for (const [index, { pod }] of [a, b].entries()) {
        await eventually("the pod is as before", async () => await stateOf(pod) === before[index]);
      }
      await eventually(
        "the client's address is hidden",
        async () => (await ask(0))[1] !== FAMILIES[0].client,
      );
      assertEquals(await openingsOf(a), "0");
    },
  );
  await t.step("--cleanup leaves nothing in pods after kill -9", async () => {
    await write([a, b]);
    await eventually("it is set up", async () => {
      const state = await stateOf(a.pod);
      return FAMILIES.every(({ vip }) => state.includes(`${vip}/`)) &&
        state.includes("arp_ignore = 1");
    });
    assertEquals(await openingsOf(a), "1");
    await relays[0]!.kill();
    const text = await RelayProcess.run(a.namespace, {
      ...{ folder: a.folder, by: withPodsOf(a) },
      args: ["--cleanup"],
    });
    assertStringIncludes(text, "tunnel kr-dsr4 in namespace cni-pod");
    assertEquals(await stateOf(a.pod), before[0]);
    assertEquals(await openingsOf(a), "0");
    assert(!(await a.namespace.output("iptables-save", [])).includes("KUBE-DSR"));
  });
});

/** The addresses and settings of a pod, without what the kernel adds to each namespace. */
async function stateOf(pod: Namespace): Promise<string> {
  const addresses = await pod.ip("-o addr show");
  const links = (await pod.ip("-o link show")).split("\n").filter((line) => line.includes("kr-"));
  const names = ["arp_ignore", "arp_announce"].map((name) => `net.ipv4.conf.eth0.${name}`);
  return [addresses, ...links, await pod.output("sysctl", names)].join("\n");
}

/** Whether the node takes packets of its pod with addresses of its own. */
async function openingsOf({ namespace }: PodNode): Promise<string> {
  return (await namespace.output("sysctl", ["-n", "net.ipv4.conf.pod.accept_local"])).trim();
}
