/**
 * A node in namespaces whose pods have policies, with one data plane of NetworkPolicy for each family.
 *
 * Pods `x/web` and `x/db` reach each other across the bridge of the node, `x/client` is routed even to
 * these; `y/remote` is on another node, and a client is outside of the cluster.
 */
import type { RulePlaneEdges } from "../../../backends/netfilter/rule_plane.ts";
import type { PolicyPlane, PolicyPlaneOptions } from "../../../backends/policy/policy_plane.ts";
import type { SyncReport } from "../../../lib/engine/data_plane.ts";
import type { NetworkPolicySpec } from "../../../lib/api/kinds/network_policy.ts";
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../../../lib/os/command_runner.ts";
import { PolicyPlanner } from "../../../lib/policy/policy_planner.ts";
import type { DeniedPackets, PolicyKey } from "../../../lib/policy/policy_plan.ts";
import { PolicyState } from "../../../lib/policy/policy_state.ts";
import { ADDRESSES } from "../builders/address_plan.ts";
import { IPV4_PLAN, setPod, setPolicy } from "../builders/policy_objects.ts";
import { ANSWER_MS, ProbeClient, startEchoServer } from "../drivers/echo_network.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import { type ClusterTopology, createClusterTopology } from "./cluster_topology.ts";

/** Makes the data plane under test for one family. */
export type PolicyDataPlaneFactory = (
  dependencies: RulePlaneEdges,
  options: PolicyPlaneOptions,
) => PolicyPlane;

/** The ends of connections. */
export type SceneEnd = "web" | "db" | "client" | "remote" | "outside" | "node";

/** The addresses of each pod in the address plan. */
const PODS = {
  web: {
    key: "x/web",
    nodeName: "n1",
    address: (family: IpFamily) => ADDRESSES[family].localPods[0],
  },
  db: {
    key: "x/db",
    nodeName: "n1",
    address: (family: IpFamily) => ADDRESSES[family].localPods[1],
  },
  client: {
    key: "x/client",
    nodeName: "n1",
    address: (family: IpFamily) => ADDRESSES[family].localPodClient,
  },
  remote: {
    key: "y/remote",
    nodeName: "n2",
    address: (family: IpFamily) => ADDRESSES[family].remotePods[0],
  },
} as const;

/** Every server listens on these, with TCP and UDP. */
const PORTS = [8080, 8081];
/** Less than the usual silence: a denied datagram is only silent. The kernel refuses at once. */
const SILENCE_MS = 800;
/** For a probe that a pod has to answer, which a busy machine delays. */
export const ANSWERED = { silenceMs: ANSWER_MS };

/** Disposing of it ends and removes all. */
export class PolicyScene implements AsyncDisposable {
  readonly state = new PolicyState();
  readonly logger = new MemoryLogger();
  readonly drift: unknown[] = [];
  readonly #make: PolicyDataPlaneFactory;
  readonly #clients: Readonly<Record<SceneEnd, ProbeClient>>;
  readonly #planners = IP_FAMILIES.map((family) =>
    new PolicyPlanner(this.state, { ...IPV4_PLAN, family, podLinks: ["cni0"] })
  );
  #dataPlanes: readonly PolicyPlane[] = [];

  private constructor(readonly cluster: ClusterTopology, make: PolicyDataPlaneFactory) {
    this.#make = make;
    const { localPods: [web, db], localPodClient, remotePods: [remote], client, node } = cluster;
    this.#clients = {
      web: ProbeClient.start(web),
      db: ProbeClient.start(db),
      client: ProbeClient.start(localPodClient),
      remote: ProbeClient.start(remote),
      outside: ProbeClient.start(client),
      node: ProbeClient.start(node),
    };
  }

  /** Makes it; the data planes have started. */
  static async create(make: PolicyDataPlaneFactory): Promise<PolicyScene> {
    const cluster = await createClusterTopology();
    try {
      await joinBridge(cluster);
      const { localPods: [web, db], remotePods: [remote], client } = cluster;
      const servers = [["web", web], ["db", db], ["remote", remote], ["outside", client]] as const;
      await Promise.all(servers.map(([name, namespace]) => {
        const listen = IP_FAMILIES.flatMap((family) =>
          PORTS.map((port) => ({ address: addressOf(name, family), port }))
        );
        return startEchoServer(namespace, { name, listen });
      }));
      const scene = new PolicyScene(cluster, make);
      for (const [app, { key, nodeName, address }] of Object.entries(PODS)) {
        const addresses = IP_FAMILIES.map(address).join();
        setPod(scene.state, key, { address: addresses, labels: { app }, nodeName });
      }
      await scene.start();
      return scene;
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Starts the data planes, as a process that knows nothing of an earlier one. */
  async start(): Promise<void> {
    this.#dataPlanes = IP_FAMILIES.map((family) =>
      this.#make({
        clock: systemClock,
        commands: this.#commands(),
        logger: this.logger,
        random: () => 0,
        onDrift: (figures) => this.drift.push(figures),
      }, { family, syncPeriodMs: 50 })
    );
    for (const dataPlane of this.#dataPlanes) await dataPlane.start();
  }

  /** Ends the data planes, as a process that is killed: nothing is removed. */
  async stop(): Promise<void> {
    for (const dataPlane of this.#dataPlanes) await dataPlane[Symbol.asyncDispose]();
    for (const planner of this.#planners) planner.setOptions({});
  }

  get dataPlanes(): readonly PolicyPlane[] {
    return this.#dataPlanes;
  }

  setPolicy(name: string, spec: NetworkPolicySpec | undefined): void {
    if (spec) setPolicy(this.state, `x/${name}`, spec);
    else this.state.setPolicy(`x/${name}` as PolicyKey, undefined);
  }

  /** Syncs the kernel with the current state. */
  async sync(): Promise<readonly SyncReport<PolicyKey>[]> {
    const reports: SyncReport<PolicyKey>[] = [];
    for (const [index, dataPlane] of this.#dataPlanes.entries()) {
      const planner = this.#planners[index]!;
      const changes = planner.update();
      reports.push(await dataPlane.sync(planner.plan, changes));
    }
    return reports;
  }

  /** Differences between the kernel and the plans. */
  async differences(): Promise<readonly unknown[]> {
    const found = [];
    for (const [index, dataPlane] of this.#dataPlanes.entries()) {
      found.push(...await dataPlane.compare(this.#planners[index]!.plan));
    }
    return found;
  }

  /** The packets that were denied in IPv4 and in IPv6. */
  async deniedPackets(): Promise<readonly DeniedPackets[]> {
    const found: DeniedPackets[] = [];
    for (const dataPlane of this.#dataPlanes) found.push(await dataPlane.deniedPackets());
    return found;
  }

  /** Probes one connection in both families: `web`, `refused` or `silent` where both say the same. */
  async probe(
    from: SceneEnd,
    to: Exclude<SceneEnd, "client" | "node"> | {
      readonly address: Readonly<Record<IpFamily, string>>;
    },
    { port = 8080, protocol = "TCP", silenceMs = SILENCE_MS }: {
      readonly port?: number;
      readonly protocol?: "TCP" | "UDP";
      readonly silenceMs?: number;
    } = {},
  ): Promise<string> {
    const words: string[] = [];
    for (const family of IP_FAMILIES) {
      const address = typeof to === "string" ? addressOf(to, family) : to.address[family];
      words.push(await this.#clients[from].who({ address, port, protocol }, silenceMs));
    }
    return words[0] === words[1] ? words[0]! : words.join(" and ");
  }

  /** The client of an end, for connections that stay open. */
  client(end: SceneEnd): ProbeClient {
    return this.#clients[end];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const dataPlane of this.#dataPlanes) await dataPlane[Symbol.asyncDispose]();
    await this.cluster[Symbol.asyncDispose]();
  }

  #commands(): CommandRunner {
    const { name } = this.cluster.node;
    return {
      run: (program, args, options) =>
        systemCommandRunner.run("ip", ["netns", "exec", name, program, ...args], options),
    };
  }
}

/** The address of an end in a family. */
export function addressOf(
  end: "web" | "db" | "client" | "remote" | "outside",
  family: IpFamily,
): string {
  return end === "outside" ? ADDRESSES[family].client : PODS[end].address(family);
}

/** Two pods know each other on their link, and the bridge hands their packets to netfilter. */
async function joinBridge({ node, localPods: [web, db] }: ClusterTopology): Promise<void> {
  await node.sysctl(
    "net.bridge.bridge-nf-call-iptables=1",
    "net.bridge.bridge-nf-call-ip6tables=1",
  );
  for (const family of IP_FAMILIES) {
    await web.ip(`route add ${addressOf("db", family)} dev eth0`);
    await db.ip(`route add ${addressOf("web", family)} dev eth0`);
  }
}
