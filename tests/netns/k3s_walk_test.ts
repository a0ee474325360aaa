/**
 * Walks through `docs/k3s.md` on a cluster of stand-ins: two servers and an agent, each with a pod, a
 * kube-proxy that writes rules, and an API server on loopback, as k3s has it on every node. Pods call
 * a Service all the time, and no call may fail.
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { rawEndpointSlice } from "../support/builders/raw_objects.ts";
import { readDeployFile } from "../support/docs/deploy_files.ts";
import { ApiProcess } from "../support/drivers/api_process.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import type { LineProcess } from "../support/drivers/line_process.ts";
import { eventually } from "../support/eventually.ts";
import { testNeeding } from "../support/requirement.ts";
import {
  iptablesRequirements,
  restoreRules,
  savedRules,
} from "../support/stages/iptables_tools.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { createPodScene, ECHO_PORT, type PodNode } from "../support/stages/pod_scene.ts";
import { RelayProcess } from "../support/stages/relay_process.ts";

const test = testNeeding("the way of docs/k3s.md", [
  ...netnsRequirements(),
  ...iptablesRequirements("nft"),
]);

const VIP = { protocol: "TCP", address: "10.43.0.80", port: 80 } as const;

const SERVICE = {
  apiVersion: "v1",
  kind: "Service",
  metadata: { namespace: "default", name: "web" },
  spec: {
    ...{ type: "ClusterIP", clusterIP: VIP.address, clusterIPs: [VIP.address] },
    ...{ ipFamilies: ["IPv4"], ipFamilyPolicy: "SingleStack" },
    ports: [{ port: VIP.port, protocol: "TCP", targetPort: ECHO_PORT }],
  },
};

function sliceOf(nodes: readonly PodNode[]) {
  return rawEndpointSlice("web", {
    endpoints: nodes.map(({ name, podAddresses: [address] }) => ({ address, nodeName: name })),
    ports: [{ name: "", protocol: "TCP", port: ECHO_PORT }],
  });
}

/** Names of one length, as kube-proxy's. */
function chainOf(kind: "SEP" | "SVC", index: number): string {
  return `KUBE-${kind}-${"ABCD"[index]!.repeat(16)}`;
}

/**
 * What a kube-proxy writes for endpoints. The jumps are there once. The last rule is as that of flannel:
 * it keeps connection tracking on.
 */
function kubeProxyRules(nodes: readonly PodNode[], { first = false } = {}): string {
  const service = chainOf("SVC", 0);
  const endpoints = nodes.map(({ podAddresses: [address] }, index) => ({
    chain: chainOf("SEP", index),
    address,
    choice: index === nodes.length - 1
      ? ""
      : `-m statistic --mode random --probability ${1 / (nodes.length - index)} `,
  }));
  const chains = [
    ...["KUBE-SERVICES", "KUBE-MARK-MASQ", "KUBE-POSTROUTING", service],
    ...endpoints.map(({ chain }) => chain),
  ];
  return [
    "*nat",
    ...chains.map((chain) => `:${chain} - [0:0]`),
    "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000",
    "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
    "-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000",
    "-A KUBE-POSTROUTING -j MASQUERADE",
    `-A KUBE-SERVICES -d ${VIP.address}/32 -p tcp --dport ${VIP.port} -j ${service}`,
    ...endpoints.flatMap(({ chain, address, choice }) => [
      `-A ${service} ${choice}-j ${chain}`,
      `-A ${chain} -s ${address}/32 -j KUBE-MARK-MASQ`,
      `-A ${chain} -p tcp -j DNAT --to-destination ${address}:${ECHO_PORT}`,
    ]),
    ...first
      ? [
        "-A PREROUTING -j KUBE-SERVICES",
        "-A OUTPUT -j KUBE-SERVICES",
        "-A POSTROUTING -j KUBE-POSTROUTING",
        "-A POSTROUTING -s 198.51.100.0/24 -j MASQUERADE",
      ]
      : [],
    "COMMIT\n",
  ].join("\n");
}

/** A node of the cluster. */
class K3sNode {
  readonly pod: PodNode;
  readonly #api: ApiProcess;
  readonly #flags: readonly string[];
  readonly #load: ProbeClient;
  /** Asks besides the load. */
  readonly client: ProbeClient;
  #kubeProxy: LineProcess | undefined;
  #relay: RelayProcess | undefined;

  private constructor(pod: PodNode, api: ApiProcess, flags: readonly string[]) {
    this.pod = pod;
    this.#api = api;
    this.#flags = flags;
    this.#load = ProbeClient.start(pod.pod);
    this.client = ProbeClient.start(pod.pod);
  }

  static async create(pod: PodNode, nodes: readonly PodNode[]): Promise<K3sNode> {
    const api = await ApiProcess.start(pod.namespace, `${pod.folder}/kubeconfig`);
    // As by flannel.
    for (const { addresses: [gateway], podCidrs: [range] } of nodes.filter((one) => one !== pod)) {
      await pod.namespace.ip(`route add ${range} via ${gateway}`);
    }
    const [, flags = ""] = /^Environment="KUBE_RELAY_K3S_ARGS=(.*)"$/m
      .exec(await readDeployFile("k3s.conf"))!;
    const here = flags.replace("%H", pod.name)
      .replace("/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig", api.kubeconfig);
    return new K3sNode(pod, api, here.split(" "));
  }

  get relay(): RelayProcess {
    return this.#relay!;
  }

  /** A kube-proxy that runs writes its rules, and then kube-relay gets the objects: that is the worse order. */
  async write(nodes: readonly PodNode[], endpoints: readonly PodNode[]): Promise<void> {
    if (this.#kubeProxy) await this.#rewrite(endpoints, false);
    await this.#api.write([...nodes.map((node) => node.raw()), SERVICE, sliceOf(endpoints)]);
  }

  async startKubeProxy(endpoints: readonly PodNode[]): Promise<void> {
    await this.#rewrite(endpoints, true);
    const program = new URL("../support/fakes/fake_kube_proxy.ts", import.meta.url);
    this.#kubeProxy = this.pod.namespace.startDeno(program, ["iptables"]);
    await this.#kubeProxy.nextLine();
  }

  async #rewrite(endpoints: readonly PodNode[], first: boolean): Promise<void> {
    await restoreRules(this.pod.namespace, "iptables-nft", kubeProxyRules(endpoints, { first }));
  }

  async startLoad(names: readonly string[]): Promise<void> {
    const targets = [{ ...VIP, expect: names }];
    await this.#load.startLoad(targets, { perSecond: 40, timeoutMs: 25_000 });
  }

  async stopLoad(): Promise<void> {
    const report = await this.#load.stopLoad();
    assertEquals(report.failures, 0, `${this.pod.name}: ${report.examples.join("\n")}`);
    assert(report.attempts > 20, JSON.stringify(report));
  }

  /** As systemd does by the unit with the drop-in for k3s. */
  async startRelay(): Promise<void> {
    const { namespace, folder } = this.pod;
    this.#relay = RelayProcess.start(namespace, { folder, args: this.#flags });
    await this.#relay.settled();
  }

  async restartRelay(): Promise<void> {
    await this.relay.kill();
    await this.startRelay();
  }

  /** k3s starts again without its kube-proxy; no API server answers meanwhile. */
  async restartK3s(): Promise<void> {
    await this.#api.close();
    await this.#kubeProxy!.kill();
    this.#kubeProxy = undefined;
    await this.relay.logged("kube-proxy has ended");
    await this.#api.reopen();
    await eventually(
      "nothing of kube-proxy is left",
      async () => !/KUBE-SEP-/.test(await savedRules(this.pod.namespace, "nft")),
    );
  }

  /** In the order of `docs/going_back.md`. */
  async goBack(endpoints: readonly PodNode[]): Promise<void> {
    const { namespace, folder } = this.pod;
    const cleanup = () =>
      RelayProcess.run(namespace, {
        folder,
        args: ["--cleanup", `--control-socket=${folder}/control.sock`],
      });
    await assertRejects(cleanup, Error, "stop it first");
    await this.relay.kill();
    await this.reaches(endpoints[0]!);
    await cleanup();
    assertEquals(/KUBE-/.exec(await savedRules(namespace, "nft")), null);
    await this.startKubeProxy(endpoints);
    await this.reaches(endpoints[0]!);
  }

  /** Resolves once calls reach this pod. */
  async reaches({ name }: PodNode): Promise<void> {
    await eventually(`${this.pod.name} reaches ${name}`, async () => {
      return await this.client.who(VIP) === name;
    });
  }
}

test("docs/k3s.md: kube-relay on every node, then k3s without kube-proxy: no call of a Service fails; and back", async () => {
  await using scene = await createPodScene([2, 2, 2]);
  const [a, b, c] = scene.nodes as [PodNode, PodNode, PodNode];
  const nodes = await Promise.all(scene.nodes.map((each) => K3sNode.create(each, scene.nodes)));
  const write = (...endpoints: readonly PodNode[]) =>
    Promise.all(nodes.map((each) => each.write(scene.nodes, endpoints)));
  await write(a, b);
  for (const node of nodes) await node.startKubeProxy([a, b]);
  for (const node of nodes) {
    await node.reaches(a);
    await node.startLoad(scene.nodes.map(({ name }) => name));
  }

  // 1. On every node, next to kube-proxy. Changes reach nodes of both kinds.
  for (const node of nodes) {
    await node.startRelay();
    await node.relay.logged("kube-proxy still runs");
  }
  await write(a, b, c);
  for (const node of nodes) await node.reaches(c);

  // 2. The servers one after another, then the agent.
  for (const node of nodes) await node.restartK3s();
  await write(b, c);
  for (const node of nodes) {
    await node.reaches(b);
    // A start of a node that has been taken over.
    await node.restartRelay();
    const { families } = await node.relay.status();
    assertEquals(families.flatMap(({ services }) => services).length, 1);
    assertStringIncludes(await savedRules(node.pod.namespace, "nft"), "198.51.100.0/24");
  }
  await Promise.all(nodes.map((node) => node.stopLoad()));
  for (const node of nodes) await node.goBack([b, c]);
});
