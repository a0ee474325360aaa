/**
 * Two nodes that answer for load balancer addresses of both families, a client behind a router that
 * learns only by announcements, and an API server in the router's namespace.
 *
 * @module
 */
import { ApiProcess } from "../drivers/api_process.ts";
import { ProbeClient, startEchoServer } from "../drivers/echo_network.ts";
import { LinkCapture, type LinkFrame } from "../drivers/link_capture.ts";
import { eventually } from "../eventually.ts";
import {
  chooseFailoverAddresses,
  FAILOVER_BACKEND,
  FAILOVER_NODES,
  FAILOVER_PODS,
  type FailoverAddresses,
  failoverObjects,
  type FailoverService,
  localSlices,
} from "./failover_objects.ts";
import { createLayer2Scene, type Layer2Scene } from "./layer2_scene.ts";
import { Namespace } from "./netns.ts";
import { RelayProcess } from "./relay_process.ts";

const POOLS = "192.168.9.48-192.168.9.90,fd09::48-fd09::90";
const SEND_EVERY_MS = 20;
/** Time between two questions of the watcher, in seconds. */
const ASK_EVERY = "0.1";

/** One node of the cluster. */
export interface FailoverNode {
  readonly name: string;
  readonly namespace: Namespace;
  /** Its link layer address on the bridge. */
  readonly link: string;
  /** The port of the bridge that leads to it. */
  readonly port: string;
}

/** A running cluster. */
export class FailoverCluster implements AsyncDisposable {
  readonly nodes: readonly [FailoverNode, FailoverNode];
  readonly addresses: FailoverAddresses;
  readonly #stack: AsyncDisposableStack;
  readonly #parts: ClusterParts;
  readonly #relays = new Map<FailoverNode, RelayProcess>();

  private constructor(stack: AsyncDisposableStack, parts: ClusterParts) {
    const { scene, links } = parts;
    this.#stack = stack;
    this.#parts = parts;
    this.nodes = [
      { name: FAILOVER_NODES[0], namespace: scene.first, link: links[0]!, port: "node0" },
      { name: FAILOVER_NODES[1], namespace: scene.second, link: links[1]!, port: "node1" },
    ];
    this.addresses = parts.addresses;
  }

  /** Starts everything; the first node answers for all addresses when this resolves. */
  static async start(): Promise<FailoverCluster> {
    await using stack = new globalThis.AsyncDisposableStack();
    const folder = await Deno.makeTempDir();
    stack.defer(() => Deno.remove(folder, { recursive: true }));
    const scene = stack.use(await createLayer2Scene());
    const [client, watcher] = await Namespace.createAll(["client", "watcher"]);
    stack.defer(() => Namespace.removeAll([client!, watcher!]));
    await connectClients(scene.router, { client: client!, watcher: watcher! });
    const kubeconfig = `${folder}/kubeconfig`;
    const api = await ApiProcess.start(scene.router, kubeconfig);
    const apiPort = await connectToApi(scene, kubeconfig);
    const links: string[] = [];
    for (const [index, node] of [scene.first, scene.second].entries()) {
      await node.sysctl(...FORWARDING);
      await node.ipBatch(
        Object.values(FAILOVER_PODS[index]!).map((each) => `addr add ${each} dev lo`),
      );
      links.push(/link\/ether (\S+)/.exec(await node.ip("link show eth0"))![1]!);
      const listen = Object.values(FAILOVER_PODS[index]!).map((address) => ({
        address,
        port: 8080,
      }));
      await startEchoServer(node, { name: FAILOVER_NODES[index]!, listen });
    }
    const listen = Object.values(FAILOVER_BACKEND).map((address) => ({ address, port: 8080 }));
    await startEchoServer(scene.router, { name: "backend", listen });
    const addresses = chooseFailoverAddresses();
    await api.write(failoverObjects(addresses));
    const capture = stack.use(await LinkCapture.start(scene.router, "br0"));
    const parts = { folder, scene, api, apiPort, kubeconfig, links, addresses, capture };
    const cluster = new FailoverCluster(stack.move(), {
      ...parts,
      client: client!,
      watcher: watcher!,
    });
    try {
      for (const node of cluster.nodes) await cluster.startRelay(node);
      await cluster.#sendAndAsk();
      for (const service of ["web", "local"] as const) {
        await cluster.servedBy(cluster.nodes[0], service);
      }
    } catch (cause) {
      const log = cluster.nodes.map((node) => cluster.relay(node).log).join("\n----\n");
      await cluster[Symbol.asyncDispose]();
      throw new Error(log, { cause });
    }
    return cluster;
  }

  get api(): ApiProcess {
    return this.#parts.api;
  }

  /** The kube-relay of a node, as it was started last. */
  relay(node: FailoverNode): RelayProcess {
    return this.#relays.get(node)!;
  }

  async startRelay(node: FailoverNode): Promise<void> {
    const { folder: parent, kubeconfig } = this.#parts;
    const folder = await Deno.makeTempDir({ dir: parent });
    const args = [
      ...["--routing", `--load-balancer-pools=${POOLS}`, `--kubeconfig=${kubeconfig}`],
      ...[
        "--cluster-cidr=10.180.0.0/16,fd00:10:180::/48",
        "--mode=nftables",
        `--hostname-override=${node.name}`,
        "--conntrack-max-per-core=0",
      ],
      ...["--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249"],
    ];
    this.#relays.set(node, RelayProcess.start(node.namespace, { folder, args }));
  }

  /** Takes a node off the bridge, or puts it on again. */
  async setConnected(node: FailoverNode, isConnected: boolean): Promise<void> {
    const { router } = this.#parts.scene;
    await router.ip(`link set ${node.port} ${isConnected ? "up" : "down"}`);
  }

  /** Drops packets of a node to the API server and back, and no other ones; or no longer. */
  async setReachesApi(node: FailoverNode, isReaching: boolean): Promise<void> {
    const { scene: { router }, apiPort } = this.#parts;
    const table = `cut-${node.port}`;
    if (isReaching) return void await router.output("nft", ["delete", "table", "ip", table]);
    const address = node === this.nodes[0] ? "192.168.9.2" : "192.168.9.3";
    const rules = ["input saddr dport", "output daddr sport"].map((text) => {
      const [hook, host, port] = text.split(" ");
      return `chain ${hook} { type filter hook ${hook} priority 0; ` +
        `ip ${host} ${address} tcp ${port} ${apiPort} drop; }`;
    });
    await router.output("nft", [
      `table ip ${table} { ${rules.map((each) => `${each}; `).join("")} }`,
    ]);
  }

  /** Gives Service `local` its endpoint on a node. */
  async moveEndpoint(node: FailoverNode): Promise<void> {
    await this.api.write(localSlices(this.nodes.indexOf(node)));
  }

  /** Frames for an address of a Service since a time. */
  frames(address: string, since: number): readonly LinkFrame[] {
    return this.#parts.capture.of(address, since);
  }

  /** Waits until only this node has served a Service for a while. Returns when it began, by family. */
  async servedBy(
    node: FailoverNode,
    service: FailoverService,
    { calmMs = 500, deadlineMs = 60_000 }: {
      readonly calmMs?: number;
      readonly deadlineMs?: number;
    } = {},
  ): Promise<void> {
    for (const [family, address] of Object.entries(this.addresses[service])) {
      await eventually(`${node.name} serves ${service} (${family})`, () => {
        const frames = this.frames(address, Date.now() - calmMs);
        const data = frames.filter(({ kind }) => kind === "data");
        const isAlone = frames.every(({ from }) => from === node.link);
        return isAlone && data.length > calmMs / SEND_EVERY_MS / 4;
      }, { deadlineMs });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }

  /** The client sends without end, and the watcher asks all the time which node has an address. */
  async #sendAndAsk(): Promise<void> {
    const { client, watcher } = this.#parts;
    const probes = ProbeClient.start(client);
    for (const { IPv4, IPv6 } of Object.values(this.addresses)) {
      for (const address of [IPv4, IPv6]) {
        const target = { protocol: "UDP", address, port: 80 } as const;
        await probes.open(target, { everyMs: SEND_EVERY_MS });
      }
      const ask = [
        `arping -q -b -f -c 1 -w 1 -I eth0 ${IPv4}`,
        `ndisc6 -q -1 -r 1 -w 500 ${IPv6} eth0`,
      ];
      for (const command of ask) {
        watcher.start("sh", ["-c", `while sleep ${ASK_EVERY}; do ${command} >&2 & done`]);
      }
    }
  }
}

interface ClusterParts {
  readonly folder: string;
  readonly scene: Layer2Scene;
  readonly client: Namespace;
  readonly watcher: Namespace;
  readonly api: ApiProcess;
  readonly apiPort: string;
  readonly kubeconfig: string;
  readonly links: readonly string[];
  readonly addresses: FailoverAddresses;
  readonly capture: LinkCapture;
}

const FORWARDING = ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"];

/** Puts the client behind the router, and the watcher on the bridge. */
async function connectClients(
  router: Namespace,
  { client, watcher }: { readonly client: Namespace; readonly watcher: Namespace },
): Promise<void> {
  await router.sysctl(...FORWARDING);
  await router.ip(`link add client type veth peer name eth0 netns ${client.name}`);
  await router.ip(`link add watcher type veth peer name eth0 netns ${watcher.name}`);
  await router.ipBatch([
    "addr add 198.51.100.1/24 dev client",
    "addr add fd51::1/64 dev client",
    "link set client up",
    "link set watcher master br0 up",
  ]);
  await client.ipBatch([
    "addr add 198.51.100.2/24 dev eth0",
    "addr add fd51::2/64 dev eth0",
    "link set eth0 up",
    "route add default via 198.51.100.1",
    "route add default via fd51::1 dev eth0",
  ]);
  await watcher.ipBatch([
    "addr add 192.168.9.99/24 dev eth0",
    "addr add fd09::99/64 dev eth0",
    "link set eth0 up",
  ]);
}

/** Lets nodes reach the API server of the router at the address that its certificate has. */
async function connectToApi(scene: Layer2Scene, kubeconfig: string): Promise<string> {
  const address = "192.168.9.1";
  const [, port = ""] = /127\.0\.0\.1:(\d+)/.exec(await Deno.readTextFile(kubeconfig))!;
  const pass = (from: Namespace, bind: string, to: string) =>
    from.start("socat", [`TCP-LISTEN:${port},bind=${bind},fork,reuseaddr`, `TCP:${to}:${port}`]);
  pass(scene.router, address, "127.0.0.1");
  for (const node of [scene.first, scene.second]) pass(node, "127.0.0.1", address);
  return port;
}
