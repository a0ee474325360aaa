import type { SyncReport } from "../../controller/data_plane.ts";
import { SyncLoop } from "../../controller/sync_loop.ts";
import { retryBackoff } from "../../controller/sync_runner.ts";
import { messageOf } from "../../log/message_of.ts";
import type { Cidr } from "../../net/cidr.ts";
import { planPodNetwork } from "../../routing/plan_pod_network.ts";
import type { PodNetworkPlan, PodRoute } from "../../routing/pod_network_plan.ts";
import type { RoutingNode } from "../../routing/routing_node.ts";
import type { PodNetworkSettings } from "../../routing/routing_settings.ts";
import { ChangeRecorder } from "../changes/change_recorder.ts";
import type { ControllerParts } from "../controllers.ts";
import type { PodNetworkBackend, RoutingBackends } from "./routing_backends.ts";
import {
  noteCause,
  ROUTING_WORDS,
  type RoutingChange,
  type RoutingRecorder,
} from "./routing_words.ts";

/** Time between two syncs: many Nodes may appear at the same time. */
const MIN_SYNC_PERIOD_MS = 300;
/** The kernel drops the routes of an interface that goes down. Each sync reads the machine. */
const MAX_SYNC_PERIOD_MS = 60_000;

/** The log messages of syncs. */
const TEXTS = {
  synced: "Synced the network of pods",
  failed: "Cannot sync the network of pods; the last applied state stays and is tried again",
  quarantined: "Part of the network of pods is in quarantine; it is tried again, the rest works",
  released: "Part of the network of pods is out of quarantine",
  item: "item",
};

/** The dependencies of the part. */
interface PodNetworkDependencies extends ControllerParts {
  readonly routing: RoutingBackends;
}

/** Its settings. */
interface PodNetworkPartOptions {
  readonly podNetwork: PodNetworkSettings;
  readonly clusterCidrs: readonly Cidr[];
}

/** A plan; absent until the own Node and the networks of the machine are known. */
interface PlannedPodNetwork {
  readonly pods: PodNetworkPlan | undefined;
}

/**
 * Routes between pods of nodes, on clusters whose network plugin does not. Routes come from Nodes
 * alone, so they need no BGP daemon. The part waits for no Service.
 */
export class PodNetworkPart {
  readonly backend: PodNetworkBackend;
  readonly loop: SyncLoop<PlannedPodNetwork, object, string, SyncReport<string>>;
  readonly #nodeName: string;
  readonly #options: PodNetworkPartOptions;
  readonly #recorder: RoutingRecorder;
  readonly #nodes = new Map<string, RoutingNode>();
  #networks: readonly Cidr[] = [];
  #plan: PodNetworkPlan | undefined;
  #isPending = true;

  constructor(dependencies: PodNetworkDependencies, options: PodNetworkPartOptions) {
    const { clock, changes, configuration: { families }, nodeName, routing } = dependencies;
    this.#nodeName = nodeName;
    this.#options = options;
    const { cniConfig } = options.podNetwork;
    this.backend = routing.podNetwork(dependencies, {
      cniFiles: cniConfig === undefined ? [] : [cniConfig],
    });
    const id = { controller: "pod-network", family: families[0] ?? "IPv4" } as const;
    this.#recorder = new ChangeRecorder({ clock, log: changes }, {
      ...ROUTING_WORDS,
      loop: id,
      waitMs: MIN_SYNC_PERIOD_MS,
    });
    const plan = () => this.#plan;
    const isPending = () => this.#isPending;
    this.loop = new SyncLoop(dependencies, {
      id,
      dataPlane: {
        start: () => this.backend.start(),
        sync: ({ pods }) => this.#sync(pods),
      },
      planner: {
        get plan() {
          return { pods: plan() };
        },
        get pending() {
          return isPending();
        },
        collectChanges: () => this.#collectChanges(),
      },
      recorder: this.#recorder,
      follower: { synced: ({ report }) => report.quarantined },
      texts: TEXTS,
      runner: {
        minPeriodMs: MIN_SYNC_PERIOD_MS,
        maxPeriodMs: MAX_SYNC_PERIOD_MS,
        retryMs: retryBackoff(dependencies.random),
      },
    });
  }

  /** The plan of the last sync. */
  get plan(): PodNetworkPlan | undefined {
    return this.#plan;
  }

  /** Takes a Node, or that it is gone. */
  onNode(name: string, node: RoutingNode | undefined): void {
    if (node) this.#nodes.set(name, node);
    else if (name !== this.#nodeName) this.#nodes.delete(name);
    this.#request({ kind: "Node", name, words: [node ? "is known" : "is gone"] });
  }

  /** Takes the networks of the node's interfaces. */
  onNetworks(networks: readonly Cidr[]): void {
    this.#networks = networks;
    this.#request({ kind: "addresses", name: "", words: ["networks of interfaces"] });
  }

  #request(cause: RoutingChange): void {
    noteCause(this.#recorder, cause);
    this.#isPending = true;
    this.loop.request();
  }

  #collectChanges() {
    this.#isPending = false;
    this.#recorder.drained();
    const before = new Map(this.#plan?.routes.map((route) => [route.destination, route]));
    const own = this.#nodes.get(this.#nodeName);
    const { podNetwork: settings, clusterCidrs } = this.#options;
    if (own && this.#networks.length > 0) {
      const nodes = this.#nodes.values();
      const networks = this.#networks;
      this.#plan = planPodNetwork({ settings, own, nodes, networks, clusterCidrs });
    }
    const after = new Map(this.#plan?.routes.map((route) => [route.destination, route]));
    for (const destination of new Set([...before.keys(), ...after.keys()])) {
      const [previous, next] = [before.get(destination), after.get(destination)];
      if (JSON.stringify(previous) === JSON.stringify(next)) continue;
      this.#recorder.planned(effectOf(previous), effectOf(next));
    }
    return Promise.resolve({ changes: {}, problems: [] });
  }

  /** A machine that cannot route is no failure of kube-relay, whose Services work. */
  async #sync(plan: PodNetworkPlan | undefined): Promise<SyncReport<string>> {
    if (!plan) {
      const reason = `Node ${this.#nodeName} is not known yet: its addresses are needed`;
      // The networks of interfaces follow within a moment.
      const isMissing = !this.#nodes.has(this.#nodeName);
      const quarantined = isMissing ? [{ key: "pod network", reason }] : [];
      return { full: false, operations: {}, quarantined };
    }
    try {
      return await this.backend.sync(plan, {});
    } catch (error) {
      const quarantined = [{ key: "pod network", reason: messageOf(error) }];
      return { full: true, operations: {}, quarantined };
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.backend[Symbol.asyncDispose]();
  }
}

/** Removes what a run with other settings added. Never rejects. */
export async function removePodNetwork(
  dependencies: Pick<PodNetworkDependencies, "clock" | "commands" | "logger" | "random">,
  routing: RoutingBackends,
): Promise<void> {
  const { logger } = dependencies;
  // A CNI configuration stays until `--cleanup`, because pods without one cannot start.
  await using backend = routing.podNetwork(dependencies, { cniFiles: [] });
  try {
    const { removed, failed } = await backend.cleanup();
    if (removed.length > 0) {
      logger.info("Removed the network of pods, which is off now", { removed });
    }
    if (failed.length > 0) logger.warn("Cannot remove the former network of pods", { failed });
  } catch (error) {
    logger.info("Cannot look for a former network of pods", { error });
  }
}

function effectOf(route: PodRoute | undefined) {
  if (!route) return undefined;
  const { destination: name, node, gateway, tunnel } = route;
  return { name, words: [`to ${node}`, gateway ? `via ${gateway}` : `through ${tunnel}`] };
}
