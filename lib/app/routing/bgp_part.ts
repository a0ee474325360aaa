import type { Cidr } from "../../net/cidr.ts";
import type { Clock } from "../../os/clock.ts";
import { forEachInSlices, runInSlices } from "../../os/time_slice.ts";
import type { ServiceKey } from "../../proxy/service_port_name.ts";
import { bgpHostOf, type BgpPlan } from "../../routing/bgp_plan.ts";
import { BgpPlanner, type BgpPlannerOptions } from "../../routing/bgp_planner.ts";
import type { RoutingNode } from "../../routing/routing_node.ts";
import type { ControllerParts } from "../controllers.ts";
import type { AnnouncedServices } from "./announced_services.ts";
import { PartLoop, syncPart } from "./part_loop.ts";
import type { RoutingPartDependencies } from "./layer2_part.ts";
import type { BgpBackend } from "./routing_backends.ts";

/** Time in which routers learn of a withdrawal, also those behind other routers. */
const ROUTERS_LEARN_MS = 1_000;
/** Time between two syncs: a withdrawal has to be sent within a second. */
const MIN_SYNC_PERIOD_MS = 300;
/** Longest time from one sync to the next. */
const MAX_SYNC_PERIOD_MS = 3_600_000;

/** The log messages of syncs. */
const TEXTS = {
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
    const { clock, nodeName, routing, services } = dependencies;
    const { configFile, controlSocket } = settings.settings;
    super(dependencies, {
      id: { controller: "bgp", family: dependencies.configuration.families[0] ?? "IPv4" },
      texts: TEXTS,
      periodMs: [MIN_SYNC_PERIOD_MS, MAX_SYNC_PERIOD_MS],
      collect: () => this.#collect(),
      sync: () => syncPart(this.backend, this.plan, "BGP", nodeName),
    });
    this.#clock = clock;
    this.#services = services;
    this.#controllerOfServices = dependencies.controllerOfServices;
    this.#planner = new BgpPlanner({ ...settings, nodeName });
    this.backend = routing.bgp(dependencies, { configFile, controlSocket });
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
