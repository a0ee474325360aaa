/**
 * Tests the image in containerd, as the DaemonSets run it, with real packets. Run
 * deploy/release/image.sh first.
 */
import { assert, assertEquals, assertNotEquals, assertStringIncludes } from "@std/assert";
import { fileURLToPath } from "node:url";
import { VERSION } from "../../lib/config/version.ts";
import { TOOLS } from "../../lib/os/tools.ts";
import { ADDRESSES, THIS_NODE } from "../support/builders/address_plan.ts";
import { testNode } from "../support/builders/builders.ts";
import { rawObjects } from "../support/builders/raw_objects.ts";
import { VIP, VIP_6, VIP_UDP, webObjects } from "../support/builders/web_service.ts";
import { readManifest } from "../support/docs/deploy_files.ts";
import { ApiProcess } from "../support/drivers/api_process.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { runTool } from "../support/drivers/run_tool.ts";
import { eventually } from "../support/eventually.ts";
import { file, isMissing, program } from "../support/requirement.ts";
import { namesIn } from "../support/with_folder.ts";
import { WIRING } from "../support/stages/cluster_topology.ts";
import { frrOfScene } from "../support/stages/bgp_routers.ts";
import { BgpScene, sceneNode, sceneService, sceneSlice } from "../support/stages/bgp_scene.ts";
import { bgpRequirements } from "../support/stages/bgp_stage.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { CHART_REQUIREMENTS, configOf, podOf, render } from "./chart.ts";
import { Containerd, CONTAINERD_REQUIREMENTS, type Pod } from "./containerd.ts";

const ARCHIVE = fileURLToPath(
  new URL(`../../dist/kube-relay_${VERSION}_amd64.oci.tar`, import.meta.url),
);

const ignore = isMissing("the image", [
  program("socat"),
  ...bgpRequirements(),
  ...CONTAINERD_REQUIREMENTS,
  ...CHART_REQUIREMENTS,
  file(ARCHIVE, "deploy/release/image.sh dist"),
]);

/** kubeadm's ConfigMap, shortened. */
const CONFIGURATION = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: 0.0.0.0
clientConnection: { kubeconfig: /var/lib/kube-proxy/kubeconfig.conf }
clusterCIDR: "${ADDRESSES.IPv4.podCidr},${ADDRESSES.IPv6.podCidr}"
mode: ""
`;

/** The Node, whose range of pods tells kube-relay on k3s which traffic is local. */
const NODE = rawObjects(
  "Node",
  testNode({ spec: { podCIDRs: Object.values(WIRING).map(({ pods }) => pods.local) } }),
);

async function podIn(path: string): Promise<Pod> {
  const objects = await readManifest(`kubernetes/${path}`);
  return podOf(objects, objects[0]?.metadata.name);
}

/** A member of the archive, parsed. */
async function member(path: string): Promise<unknown> {
  return JSON.parse(await runTool("tar", ["-xOf", ARCHIVE, `./${path}`]));
}

interface Descriptor {
  readonly digest: string;
  readonly annotations: Readonly<Record<string, string>>;
}

function blob({ digest }: Descriptor): Promise<unknown> {
  return member(`blobs/${digest.replace(":", "/")}`);
}

Deno.test({
  name: "the image has labels, and its times are that of the commit",
  ignore,
  async fn() {
    const { manifests } = await member("index.json") as { readonly manifests: Descriptor[] };
    assertEquals(manifests.length, 1);
    assertEquals(
      manifests[0]?.annotations["io.containerd.image.name"],
      `registry.example/kube-relay:${VERSION}`,
      "the name in the manifests",
    );
    const { config } = await blob(manifests[0]!) as { readonly config: Descriptor };
    const image = await blob(config) as {
      readonly created: string;
      readonly history: readonly { readonly created: string }[];
      readonly config: { readonly Labels: Readonly<Record<string, string>> };
    };
    const label = (name: string) => image.config.Labels[`org.opencontainers.image.${name}`];
    assertEquals([label("version"), label("licenses")], [VERSION, "Apache-2.0"]);
    assert(/^[0-9a-f]{40}$/.test(label("revision") ?? ""), label("revision"));
    assertEquals(
      new Set(image.history.map(({ created }) => created)),
      new Set([image.created]),
    );
    assertEquals(label("created"), image.created);
  },
});

Deno.test({
  name: "the image in containerd",
  ignore,
  async fn(t) {
    await using containerd = await Containerd.start();
    await containerd.ctr("images", "import", ARCHIVE);
    for (const path of ["kubeadm.yaml", "kubeadm-userspace.yaml", "k3s.yaml"]) {
      await t.step(`Services work on a node that runs ${path}`, () => serve(containerd, path));
    }
    await t.step("BIRD of the same image announces what kube-relay serves", () => {
      return announce(containerd);
    });
  },
});

async function serve(containerd: Containerd, path: string): Promise<void> {
  const pod = await podIn(path);
  await using scene = await RelayScene.create();
  const { cluster, folder } = scene;
  const root = `${folder}/root`;
  const [configMap, k3s] = [`${root}/kube-proxy`, `${root}/var/lib/rancher/k3s/agent`];
  for (const place of [configMap, k3s]) await Deno.mkdir(place!, { recursive: true });
  const api = await ApiProcess.start(cluster.node, `${configMap}/kubeconfig.conf`);
  await Deno.copyFile(api.kubeconfig, `${k3s}/kubeproxy.kubeconfig`);
  await Deno.writeTextFile(`${configMap}/config.conf`, CONFIGURATION);
  await api.write([...webObjects("a1"), ...NODE]);

  const node = { network: cluster.node, root, env: { NODE_NAME: THIS_NODE } };
  const relay = await containerd.run(pod, pod.containers[0]!, node);
  const client = ProbeClient.start(cluster.client);
  for (const target of [VIP, VIP_6, VIP_UDP]) {
    await eventually(`an answer from ${target.protocol} ${target.address}`, async () => {
      if (relay.process.hasEnded) throw new Error(`it has ended: ${relay.process.errors}`);
      return await client.who(target) === "pod-a1";
    });
  }
  await api.write(webObjects("b1"));
  await eventually("the other pod answers", async () => await client.who(VIP) === "pod-b1");

  const status = await relay.exec("kube-relay", "status");
  assertStringIncludes(status, path.includes("userspace") ? "userspace" : "iptables");
  // Every tool that it may start is where Deno looks for it.
  const tools = TOOLS.filter(({ kind }) => kind === "system").map(({ name }) => name);
  await relay.exec("sh", "-c", 'for tool; do command -v "$tool" || exit; done', "sh", ...tools);
  // Else each start compares the executable with its checksum.
  const kept = await namesIn(`${root}/run/kube-relay`);
  assert(kept.some((name) => name.startsWith("verified-")), kept.join(" "));
  assertEquals(await relay.stop(), 0, relay.process.errors);
  if (path.includes("userspace")) return;
  assertEquals(await client.who(VIP), "pod-b1", "the rules stay");
  const cleanup = await podIn("cleanup.yaml");
  const { process } = await containerd.run(cleanup, cleanup.initContainers![0]!, node);
  assertEquals((await process.status()).code, 0, process.errors);
  assertNotEquals(await client.who(VIP), "pod-b1", "the rules are removed");
}

/** The address of a Service, which a router learns from the BIRD of the chart. */
const ANNOUNCED = "203.0.113.10";

async function announce(containerd: Containerd): Promise<void> {
  await using scene = await BgpScene.create({ nodes: 1, others: 1 });
  const [first] = scene.nodes;
  const frr = scene.stage.frr(2);
  const session = " neighbor 192.0.2.1 remote-as 64512";
  const password = " neighbor 192.0.2.1 password correct-horse";
  await frr.start(frrOfScene(1).flatMap((line) => line === session ? [line, password] : [line]));
  await scene.startServers();
  await scene.api.write([
    sceneNode(first!),
    sceneService("web", { clusterIP: "10.96.0.10" }),
    sceneSlice("web", [first!]),
  ]);
  const objects = await render({
    routing: { enabled: true },
    bgp: { enabled: true, passwordSecret: "passwords" },
    config: {
      mode: "nftables",
      conntrack: { maxPerCore: 0 },
      routing: {
        announce: "bgp",
        pools: [`${ANNOUNCED}-${ANNOUNCED}`],
        bgp: {
          localAs: 64_512,
          peers: [{
            ...{ name: "frr", address: "192.0.2.2", as: 64_513 },
            passwordFile: "/etc/kube-relay-bgp/frr",
          }],
        },
      },
    },
  });
  const root = `${scene.stage.folder}/root`;
  for (const folder of ["kube-proxy", "config", "bgp-passwords"]) {
    await Deno.mkdir(`${root}/${folder}`, { recursive: true });
  }
  await Deno.copyFile(scene.api.kubeconfig, `${root}/kube-proxy/kubeconfig.conf`);
  await Deno.writeTextFile(`${root}/config/config.conf`, configOf(objects)!);
  await Deno.writeTextFile(`${root}/bgp-passwords/frr`, "correct-horse", { mode: 0o400 });
  const node = { network: first!.namespace, root, env: { NODE_NAME: first!.name } };
  const [birdPod, relayPod] = [podOf(objects, "kube-relay-bird"), podOf(objects)];
  // As the kubelet may do it: BIRD first. It waits for its configuration.
  const bird = await containerd.run(birdPod, birdPod.containers[0]!, node);
  const relay = await containerd.run(relayPod, relayPod.containers[0]!, node);
  const client = ProbeClient.start(await scene.attachClient(2));
  const target = { protocol: "TCP", address: ANNOUNCED, port: 80 } as const;
  await eventually("a client behind the router has an answer", async () => {
    for (const { process } of [bird, relay]) {
      if (process.hasEnded) throw new Error(`it has ended: ${process.errors}`);
    }
    return await client.who(target) === first!.name;
  });
  assertEquals((await frr.paths(`${ANNOUNCED}/32`)).length, 1);
  assertEquals([await relay.stop(), await bird.stop()], [0, 0], bird.process.errors);
}
