/**
 * The parts of routing that carry out one plan: BGP and the network of pods, each in a loop of its own.
 *
 * @module
 */
import type { ObjectProblem } from "../../api/problem.ts";
import type { LoopListener, NamedItem, ObjectChange } from "../change_listener.ts";
import type { ControllerParts } from "../controllers.ts";
import type { AnnouncedServices } from "./announced_services.ts";
import type { BgpBackend, PodNetworkBackend, RoutingBackends } from "./routing_backends.ts";
import type { SyncReport } from "../../engine/data_plane.ts";
import type { LoopId } from "../../engine/loop_id.ts";
import type { LoopTexts } from "../../engine/sync_event.ts";
import { retryBackoff, SyncLoop } from "../../engine/sync_loop.ts";
import { messageOf } from "../../log/message_of.ts";
import type { Cidr } from "../../net/cidr.ts";
import type { Clock } from "../../os/clock.ts";
import { forEachInSlices, runInSlices } from "../../os/time_slice.ts";
import type { ServiceKey } from "../../proxy/service_port_name.ts";
import { bgpHostOf, type BgpPlan, type ReadSecret } from "../../routing/bgp_plan.ts";
import { BgpPlanner, type BgpPlannerOptions } from "../../routing/bgp_planner.ts";
import {
  planPodNetwork,
  type PodNetworkPlan,
  type PodRoute,
} from "../../routing/pod_network_plan.ts";
import type { RoutingNode } from "../../routing/routing_node.ts";
import type { PodNetworkSettings } from "../../routing/routing_settings.ts";

/** What each part of routing is made from. */
export interface RoutingPartDependencies extends ControllerParts {
  readonly services: AnnouncedServices;
  readonly routing: RoutingBackends;
  readonly readSecret: ReadSecret;
}

interface PartLoopOptions<Key extends string> {
  readonly id: LoopId;
  readonly texts: LoopTexts;
  /** Shortest and longest time between two syncs. */
  readonly periodMs: readonly [min: number, max: number];
  /** Brings the plan up to date, and records its effects. */
  readonly collect: () => Promise<readonly ObjectProblem[]>;
  /** Carries the plan out. */
  readonly sync: () => Promise<SyncReport<Key>>;
}

/** The loop of a part of routing, whose backend compares the whole plan. */
export class PartLoop<Key extends string> {
  readonly loop: SyncLoop<undefined, object, Key, SyncReport<Key>>;
  readonly #recorder: LoopListener<NamedItem>;
  readonly #source: { pending: boolean };

  constructor(
    parts: Pick<ControllerParts, "changes" | "clock" | "listeners" | "logger" | "random">,
    { id, texts, periodMs: [minPeriodMs, maxPeriodMs], collect, sync }: PartLoopOptions<Key>,
  ) {
    const recorder = this.#recorder = parts.changes.follow(id, minPeriodMs);
    const source = {
      plan: undefined,
      pending: true,
      async collectChanges() {
        source.pending = false;
        recorder.drained();
        return { changes: {}, problems: await collect() };
      },
      failed() {
        source.pending = true;
      },
    };
    this.#source = source;
    this.loop = new SyncLoop(parts, {
      ...{ id, texts, source, listeners: [recorder] },
      dataPlane: { start: () => Promise.resolve(), sync },
      periods: { minPeriodMs, maxPeriodMs, retryMs: retryBackoff(parts.random) },
    });
  }

  /** Notes a cause, for the change log. */
  seen(cause: ObjectChange): void {
    this.#recorder.seen(cause);
  }

  /** Requests a sync. */
  request(cause?: ObjectChange): void {
    if (cause) this.seen(cause);
    this.#source.pending = true;
    this.loop.request();
  }

  /** Records an effect of the plan. */
  planned(previous: NamedItem | undefined, next: NamedItem | undefined): void {
    this.#recorder.planned(previous, next);
  }
}

/**
 * Has a plan carried out, if there is one. What cannot be applied is in quarantine under `key`: it is no
 * failure of kube-relay, whose Services work.
 */
async function syncPart<Plan>(
  backend: { sync(plan: Plan): Promise<SyncReport<string>> },
  plan: Plan | undefined,
  key: string,
  missingNode: string | undefined,
): Promise<SyncReport<string>> {
  if (plan === undefined) {
    const reason = `Node ${missingNode} is not known yet: its addresses are needed`;
    const quarantined = missingNode === undefined ? [] : [{ key, reason }];
    return { full: false, operations: {}, quarantined };
  }
  try {
    return await backend.sync(plan);
  } catch (error) {
    return { full: true, operations: {}, quarantined: [{ key, reason: messageOf(error) }] };
  }
}

/** Time in which routers learn of a withdrawal, also those behind other routers. */
const ROUTERS_LEARN_MS = 1_000;
/** Times between two syncs: a withdrawal has to be sent within a second. */
const BGP_PERIOD_MS = [300, 3_600_000] as const;

/** The log messages of syncs of BGP. */
const BGP_TEXTS = {
  synced: "Synced BGP",
  failed: "Cannot sync BGP; the last applied state stays and the changes are tried again",
  quarantined: "Part of BGP is in quarantine; it is tried again, everything else works",
  released: "Part of BGP is out of quarantine",
  item: "item",
};

/** Its settings. */
export type BgpPartSettings = Omit<BgpPlannerOptions, "nodeName">;

/**
 * Announces prefixes by BGP. It has a loop of its own, because one daemon serves both families, and
 * because a daemon that does not answer must not delay addresses of layer 2.
 */
export class BgpPart extends PartLoop<string> {
  readonly backend: BgpBackend;
  readonly #clock: Clock;
  readonly #services: AnnouncedServices;
  readonly #planner: BgpPlanner;
  readonly #dirty = new Set<ServiceKey>();
  /** Whether the addresses of all Services are withdrawn. */
  isDraining = false;
  readonly #controllerOfServices: ControllerParts["controllerOfServices"];
  #peers: BgpPlan["peers"] = [];

  constructor(dependencies: RoutingPartDependencies, settings: BgpPartSettings) {
    const { clock, nodeName, readSecret, routing, services } = dependencies;
    const { configFile, controlSocket } = settings.settings;
    super(dependencies, {
      id: { controller: "bgp", family: dependencies.configuration.families[0] ?? "IPv4" },
      texts: BGP_TEXTS,
      periodMs: BGP_PERIOD_MS,
      collect: () => this.#collect(),
      sync: () => syncPart(this.backend, this.plan, "BGP", nodeName),
    });
    this.#clock = clock;
    this.#services = services;
    this.#controllerOfServices = dependencies.controllerOfServices;
    this.#planner = new BgpPlanner({ ...settings, nodeName });
    this.backend = routing.bgp(dependencies, { configFile, controlSocket, readSecret });
    services.follow((keys) => {
      for (const name of keys) {
        this.#dirty.add(name);
        this.seen({ kind: "Service", name });
      }
      this.request();
    }, () => {
      this.#planner.setServiceRanges(services.serviceRanges);
      this.request({ kind: "addresses", words: ["ranges of cluster IPs"] });
    });
  }

  /** The plan of the last sync; absent until the own Node is known. */
  get plan(): BgpPlan | undefined {
    return this.#planner.plan;
  }

  /** Takes a Node, or that it is gone. */
  onNode(name: string, node: RoutingNode | undefined): void {
    this.#planner.setNode(name, node);
    const words = [node ? node.exclusion ?? "is known" : "is gone"];
    this.request({ kind: "Node", name, words });
  }

  /** Takes other settings. */
  setSettings(settings: BgpPartSettings): void {
    this.#planner.setSettings(settings);
    for (const key of this.#services.keys) this.#dirty.add(key);
    this.request({ kind: "configuration" });
  }

  /** Takes the networks of the node's interfaces. */
  onNetworks(networks: readonly Cidr[]): void {
    this.#planner.setNetworks(networks);
    this.request({ kind: "addresses", words: ["networks of interfaces"] });
  }

  /** Follows the daemon: another program may restart or change it. */
  watch(signal: AbortSignal): Promise<void> {
    return this.backend.watch(() => this.request(), signal);
  }

  /**
   * Withdraws the addresses of all Services at once, and waits until routers have learned of it:
   * the requests that they send until then are served. Rejects if the withdrawal fails.
   */
  async withdraw(): Promise<void> {
    await this.loop.stop();
    this.isDraining = true;
    this.#planner.setDraining(true);
    const withdrawn = await this.#plan();
    const { plan } = this.#planner;
    if (!plan) return;
    await this.backend.sync(plan);
    if (withdrawn.size > 0) await this.#clock.sleep(ROUTERS_LEARN_MS);
  }

  async #collect() {
    for (const prefix of await this.#plan()) {
      const isAnnounced = this.#planner.announces(prefix);
      const item = { key: prefix, words: [isAnnounced ? "announced" : "withdrawn"] };
      this.planned(isAnnounced ? undefined : item, isAnnounced ? item : undefined);
    }
    return this.#planner.problems;
  }

  /** Brings the plan up to date. Returns the prefixes that changed. */
  async #plan(): Promise<ReadonlySet<Cidr>> {
    await forEachInSlices(this.#clock, this.#dirty, (key) => {
      this.#dirty.delete(key);
      this.#planner.setService(key, this.#services.of(key));
    });
    const prefixes = await runInSlices(this.#clock, this.#planner.updateInSteps());
    const { plan } = this.#planner;
    if (plan && plan.peers !== this.#peers) {
      this.#peers = plan.peers;
      const hosts = new Map(plan.peers.map((peer) => [peer.address, bgpHostOf(peer)]));
      this.#controllerOfServices.setHosts("BGP peers", hosts);
    }
    return prefixes;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.backend[Symbol.asyncDispose]();
  }
}

/** Times between two syncs. Each reads the machine, so it also repairs what another program changed. */
const POD_PERIOD_MS = [300, 60_000] as const;

/** Waits after a failed removal of a former network of pods. */
const [FIRST_RETRY_MS, LONGEST_RETRY_MS] = [10_000, 3_600_000];

/** The log messages of syncs of the network of pods. */
const POD_TEXTS = {
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
      texts: POD_TEXTS,
      periodMs: POD_PERIOD_MS,
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
