/**
 * A cluster that announces Services by BGP: nodes with a kube-relay, a BIRD and a pod each, routers,
 * clients behind routers, and an API server.
 */
import type { RawObject } from "../../conformance/server.ts";
import { rawEndpointSlice, rawLoadBalancerService } from "../builders/raw_objects.ts";
import { ApiProcess } from "../drivers/api_process.ts";
import { startEchoServer } from "../drivers/echo_network.ts";
import type { LineProcess } from "../drivers/line_process.ts";
import { type NodeSettings, SceneNode } from "./bgp_scene_node.ts";
import { BgpStage } from "./bgp_stage.ts";
import { Namespace } from "./netns.ts";
import { NetworkScript } from "./network_script.ts";
import { rawNode } from "./routing_relay.ts";

/** The address of the API server, on the bridge of the nodes. */
const API_ADDRESS = "192.0.2.254";
/** The port of the pods. */
const POD_PORT = 8080;

/** The cluster. */
export class BgpScene implements AsyncDisposable {
  readonly stage: BgpStage;
  readonly nodes: readonly SceneNode[];
  readonly #more: Namespace[] = [];
  #api: ApiProcess | undefined;

  private constructor(stage: BgpStage, nodes: (scene: BgpScene) => readonly SceneNode[]) {
    this.stage = stage;
    this.nodes = nodes(this);
  }

  /** Makes nodes with their pods and further machines, and starts the API server. */
  static async create(
    { nodes, others = 0 }: { readonly nodes: number; readonly others?: number },
  ): Promise<BgpScene> {
    const stage = await BgpStage.create(nodes + others);
    const pods = await Namespace.createAll(
      Array.from({ length: nodes }, (_, index) => `pod${index + 1}`),
    );
    const scene = new BgpScene(
      stage,
      (made) =>
        pods.map((pod, index) =>
          new SceneNode(index + 1, {
            ...{ pod, bird: stage.node(index + 1), folder: `${stage.folder}/node${index + 1}` },
            kubeconfig: () => made.api.kubeconfig,
          })
        ),
    );
    scene.#more.push(...pods);
    try {
      await scene.#connect();
      scene.#api = await ApiProcess.start(stage.hub, `${stage.folder}/kubeconfig`);
      await scene.#connectToApi();
    } catch (error) {
      await scene[Symbol.asyncDispose]();
      throw error;
    }
    return scene;
  }

  get api(): ApiProcess {
    if (this.#api === undefined) throw new Error("The API server was not started");
    return this.#api;
  }

  /** Joins pods to nodes, and lets all machines route. */
  async #connect(): Promise<void> {
    const script = new NetworkScript();
    const { stage, nodes } = this;
    script.ip(stage.hub, `addr add ${API_ADDRESS}/24 dev br0`);
    for (const machine of stage.machines) {
      const settings = ["ip_forward=1", "fib_multipath_hash_policy=1", "conf.all.send_redirects=0"];
      script.sysctl(
        machine,
        ...settings.map((each) => `net.ipv4.${each}`),
        "net.ipv4.conf.eth0.send_redirects=0",
      );
    }
    for (const { namespace, pod, number, podAddress } of nodes) {
      const gateway = `10.244.${number}.1`;
      script.link(
        { namespace: pod, device: "eth0", addresses: [`${podAddress}/24`] },
        { namespace, device: "pod0", addresses: [`${gateway}/24`] },
      );
      script.ip(pod, `route add default via ${gateway}`);
    }
    await script.run();
  }

  /** The certificate of the API server is for 127.0.0.1, so every node reaches it there. */
  async #connectToApi(): Promise<void> {
    const [, port] = /127\.0\.0\.1:(\d+)/.exec(await Deno.readTextFile(this.api.kubeconfig))!;
    const pass = (from: Namespace, bind: string, to: string) =>
      from.start("socat", [`TCP-LISTEN:${port},bind=${bind},fork,reuseaddr`, `TCP:${to}:${port}`]);
    pass(this.stage.hub, API_ADDRESS, "127.0.0.1");
    for (const { namespace } of this.nodes) pass(namespace, "127.0.0.1", API_ADDRESS);
  }

  /** Routes the ranges of pods by hand, as most clusters do without BGP. */
  async routePods(): Promise<void> {
    for (const node of this.nodes) {
      const others = this.nodes.filter((other) => other !== node);
      await node.namespace.ipBatch(
        others.map(({ podCidr, address }) => `route add ${podCidr} via ${address}`),
      );
    }
  }

  /** Starts a server in the pod of each node, which answers with the name of the node. */
  async startServers(): Promise<readonly LineProcess[]> {
    return await Promise.all(
      this.nodes.map(({ pod, name, podAddress: address }) =>
        startEchoServer(pod, { name, listen: [{ address, port: POD_PORT }] })
      ),
    );
  }

  /** Makes a network behind a router, whose client is 198.51.N.10 for machine N. */
  async attachClient(router: number): Promise<Namespace> {
    const [client] = await Namespace.createAll([`client${router}`]);
    this.#more.push(client!);
    const script = new NetworkScript();
    const network = `198.51.${router}`;
    script.link(
      { namespace: client!, device: "eth0", addresses: [`${network}.10/24`] },
      {
        namespace: this.stage.machine(router),
        device: "clients",
        addresses: [`${network}.1/24`],
      },
    );
    script.ip(client!, `route add default via ${network}.1`);
    for (const { namespace } of this.nodes) {
      script.ip(namespace, `route add ${network}.0/24 via 192.0.2.${router}`);
    }
    await script.run();
    return client!;
  }

  /** Starts kube-relay and BIRD on each node. */
  async startNodes(settingsOf: (node: SceneNode) => NodeSettings): Promise<void> {
    for (const node of this.nodes) await node.startRelay(settingsOf(node));
    await Promise.all(this.nodes.map((node) => node.startBird()));
  }

  /** The nodes to which a router sends packets for an address, by its kernel. */
  async nodesAt(router: Namespace, address: string): Promise<readonly string[]> {
    const routes = await router.ip(`route show ${address}`);
    const hops = new Set([...routes.matchAll(/via (\S+)/g)].map(([, hop]) => hop));
    return this.nodes.filter((node) => hops.has(node.address)).map(({ name }) => name);
  }

  /** The log of each kube-relay, for errors. */
  get logs(): string {
    return this.nodes.map(({ name, relay }) => `---- ${name}\n${relay.log}`).join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Namespace.removeAll(this.#more);
    await this.stage[Symbol.asyncDispose]();
  }
}

/** A Node as the API has it. `metadata`: further fields. */
export function sceneNode({ name, address, podCidr }: SceneNode, metadata: object = {}): RawObject {
  return rawNode(name, address, {
    metadata: { name, labels: { "kubernetes.io/hostname": name }, ...metadata },
    spec: { podCIDR: podCidr, podCIDRs: [podCidr] },
  });
}

/** A Service of type LoadBalancer, with TCP and UDP at port 80. */
export function sceneService(
  name: string,
  { clusterIP, ...spec }: { readonly clusterIP: string; readonly [field: string]: unknown },
): RawObject {
  return rawLoadBalancerService(name, {
    clusterIP,
    ports: ["TCP", "UDP"].map((protocol) => ({
      ...{ name: protocol.toLowerCase(), protocol, port: 80, targetPort: POD_PORT },
    })),
    ...spec,
  });
}

/** The slice of a Service, with the pods of some nodes, and those that terminate. */
export function sceneSlice(
  service: string,
  nodes: readonly SceneNode[],
  terminating: readonly SceneNode[] = [],
): RawObject {
  return rawEndpointSlice(service, {
    endpoints: [...nodes, ...terminating].map((node) => ({
      ...{ address: node.podAddress, nodeName: node.name },
      isTerminating: terminating.includes(node),
    })),
    ports: ["TCP", "UDP"].map((protocol) => ({
      ...{ name: protocol.toLowerCase(), protocol, port: POD_PORT },
    })),
  });
}
