import { messageOf } from "../../log/message_of.ts";
import type { Cidr } from "../../net/cidr.ts";
import {
  planPodNetwork,
  type PodNetworkPlan,
  type PodRoute,
} from "../../routing/pod_network_plan.ts";
import type { RoutingNode } from "../../routing/routing_node.ts";
import type { PodNetworkSettings } from "../../routing/routing_settings.ts";
import type { ControllerParts } from "../controllers.ts";
import type { RoutingPartDependencies } from "./layer2_part.ts";
import { PartLoop, syncPart } from "./part_loop.ts";
import type { PodNetworkBackend, RoutingBackends } from "./routing_backends.ts";

/** Time between two syncs. */
const MIN_SYNC_PERIOD_MS = 300;
/** Longest time from one sync to the next. Each sync reads the machine, so it also repairs what another program changed. */
const MAX_SYNC_PERIOD_MS = 60_000;

/** Waits after a failed removal of a former network of pods. */
const [FIRST_RETRY_MS, LONGEST_RETRY_MS] = [10_000, 3_600_000];

/** The log messages of syncs. */
const TEXTS = {
  synced: "Synced the network of pods",
  failed: "Cannot sync the network of pods; the last applied state stays and is tried again",
  quarantined: "Part of the network of pods is in quarantine; it is tried again, the rest works",
  released: "Part of the network of pods is out of quarantine",
  item: "item",
};

/**
 * Routes between pods of nodes, on clusters whose network plugin does not. Routes come from Nodes
 * alone, so they need no BGP daemon. The part waits for no Service.
 */
export class PodNetworkPart extends PartLoop<string> {
  readonly backend: PodNetworkBackend;
  readonly #nodeName: string;
  readonly #settings: PodNetworkSettings;
  /** The ranges of all pods; may be empty. */
  readonly #clusterCidrs: readonly Cidr[];
  readonly #nodes = new Map<string, RoutingNode>();
  #networks: readonly Cidr[] = [];
  #plan: PodNetworkPlan | undefined;

  constructor(
    dependencies: RoutingPartDependencies,
    settings: PodNetworkSettings,
    clusterCidrs: readonly Cidr[],
  ) {
    const { nodeName, routing } = dependencies;
    super(dependencies, {
      id: { controller: "pod-network", family: dependencies.configuration.families[0] ?? "IPv4" },
      texts: TEXTS,
      periodMs: [MIN_SYNC_PERIOD_MS, MAX_SYNC_PERIOD_MS],
      collect: () => this.#collect(),
      sync: () => {
        // The networks of interfaces follow within a moment.
        const missing = this.#nodes.has(nodeName) ? undefined : nodeName;
        return syncPart(this.backend, this.#plan, "pod network", missing);
      },
    });
    this.#nodeName = nodeName;
    this.#settings = settings;
    this.#clusterCidrs = clusterCidrs;
    const { cniConfig } = settings;
    this.backend = routing.podNetwork(dependencies, {
      cniFiles: cniConfig === undefined ? [] : [cniConfig],
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
    this.request({ kind: "Node", name, words: [node ? "is known" : "is gone"] });
  }

  /** Takes the networks of the node's interfaces. */
  onNetworks(networks: readonly Cidr[]): void {
    this.#networks = networks;
    this.request({ kind: "addresses", words: ["networks of interfaces"] });
  }

  /** Follows the links: the kernel drops the routes of an interface that goes down. */
  watch(signal: AbortSignal): Promise<void> {
    return this.backend.watch(() => this.request(), signal);
  }

  #collect() {
    const before = new Map(this.#plan?.routes.map((route) => [route.destination, route]));
    const own = this.#nodes.get(this.#nodeName);
    if (own && this.#networks.length > 0) {
      this.#plan = planPodNetwork({
        ...{ own, nodes: this.#nodes.values(), networks: this.#networks },
        ...{ settings: this.#settings, clusterCidrs: this.#clusterCidrs },
      });
    }
    const after = new Map(this.#plan?.routes.map((route) => [route.destination, route]));
    for (const destination of new Set([...before.keys(), ...after.keys()])) {
      const [previous, next] = [before.get(destination), after.get(destination)];
      if (JSON.stringify(previous) === JSON.stringify(next)) continue;
      this.planned(effectOf(previous), effectOf(next));
    }
    return Promise.resolve([]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.backend[Symbol.asyncDispose]();
  }
}

/** Removes what a run with other settings added, and tries failed removals again. Never rejects. */
export async function removePodNetwork(
  dependencies: Pick<ControllerParts, "clock" | "commands" | "logger" | "random">,
  routing: RoutingBackends,
  signal: AbortSignal,
): Promise<void> {
  const { clock, logger } = dependencies;
  // A CNI configuration stays until `--cleanup`, because pods without one cannot start.
  await using backend = routing.podNetwork(dependencies, { cniFiles: [] });
  for (let waitMs = FIRST_RETRY_MS;; waitMs = Math.min(2 * waitMs, LONGEST_RETRY_MS)) {
    const { removed, failed } = await backend.cleanup().catch((error) => ({
      removed: [],
      failed: [messageOf(error)],
    }));
    if (removed.length > 0) {
      logger.info("Removed the network of pods, which is off now", { removed });
    }
    if (failed.length === 0) return;
    logger.warn("Cannot remove the former network of pods; trying again later", {
      ...{ failed, waitMs },
    });
    await clock.sleep(waitMs, signal).catch(() => {});
    if (signal.aborted) return;
  }
}

function effectOf(route: PodRoute | undefined) {
  if (!route) return undefined;
  const { destination: key, node, gateway, tunnel } = route;
  return { key, words: [`to ${node}`, gateway ? `via ${gateway}` : `through ${tunnel}`] };
}
