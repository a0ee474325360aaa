import { SyncLoop } from "../../controller/sync_loop.ts";
import { retryBackoff } from "../../controller/sync_runner.ts";
import type { SyncReport } from "../../controller/data_plane.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import type { Cidr } from "../../net/cidr.ts";
import type { Clock } from "../../os/clock.ts";
import { forEachInSlices, runInSlices } from "../../os/time_slice.ts";
import type { ServiceKey } from "../../proxy/service_port_name.ts";
import type { BgpPlan } from "../../routing/bgp_plan.ts";
import { BgpPlanner, type BgpPlannerOptions } from "../../routing/bgp_planner.ts";
import type { RoutingNode } from "../../routing/routing_node.ts";
import { ChangeRecorder } from "../changes/change_recorder.ts";
import type { ControllerParts } from "../controllers.ts";
import type { AnnouncedServices } from "./announced_services.ts";
import type { BgpBackend, RoutingBackends } from "./routing_backends.ts";
import {
  noteCause,
  ROUTING_WORDS,
  type RoutingChange,
  type RoutingRecorder,
} from "./routing_words.ts";

/** Time between two syncs: a withdrawal has to be sent within a second. */
const MIN_SYNC_PERIOD_MS = 300;
/** Time in which routers learn of a withdrawal, also those behind other routers. */
const ROUTERS_LEARN_MS = 1_000;
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

/** The dependencies of the part. */
interface BgpPartDependencies extends ControllerParts {
  readonly services: AnnouncedServices;
  readonly routing: RoutingBackends;
}

/** Its settings. */
export type BgpPartSettings = Omit<BgpPlannerOptions, "nodeName">;

/** A plan; absent until the own Node is known. */
interface PlannedBgp {
  readonly bgp: BgpPlan | undefined;
}

/**
 * Announces prefixes by BGP. It has a loop of its own, because one daemon serves both families, and
 * because a daemon that does not answer must not delay addresses of layer 2.
 */
export class BgpPart {
  readonly backend: BgpBackend;
  readonly loop: SyncLoop<PlannedBgp, object, string, SyncReport<string>>;
  readonly #clock: Clock;
  readonly #nodeName: string;
  readonly #services: AnnouncedServices;
  readonly #planner: BgpPlanner;
  readonly #recorder: RoutingRecorder;
  /** Changes that wait: a plan must not change while it is made. */
  readonly #dirty = new Set<ServiceKey>();
  readonly #nodes = new Map<string, RoutingNode | undefined>();
  #settings: BgpPartSettings | undefined;
  #networks: readonly Cidr[] | undefined;
  #areRangesChanged = true;
  #isDraining = false;
  #isPending = true;
  #isAdopted = false;

  constructor(dependencies: BgpPartDependencies, settings: BgpPartSettings) {
    const { clock, changes, configuration: { families }, nodeName, routing, services } =
      dependencies;
    const { configFile, controlSocket } = settings.settings;
    this.#clock = clock;
    this.#nodeName = nodeName;
    this.#services = services;
    this.#planner = new BgpPlanner({ ...settings, nodeName });
    this.backend = routing.bgp(dependencies, { configFile, controlSocket });
    const loop = { controller: "bgp", family: families[0] ?? "IPv4" } as const;
    this.#recorder = new ChangeRecorder({ clock, log: changes }, {
      ...ROUTING_WORDS,
      loop,
      waitMs: MIN_SYNC_PERIOD_MS,
    });
    this.loop = this.#createLoop(dependencies, loop);
    services.follow((keys) => {
      for (const name of keys) {
        this.#dirty.add(name);
        noteCause(this.#recorder, { kind: "Service", name, words: [] });
      }
      this.#request();
    }, () => {
      this.#areRangesChanged = true;
      this.#request({ kind: "addresses", name: "", words: ["ranges of cluster IPs"] });
    });
  }

  /** The plan of the last sync; absent until the own Node is known. */
  get plan(): BgpPlan | undefined {
    return this.#planner.plan;
  }

  /** Whether the addresses of all Services are withdrawn. */
  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** Takes a Node, or that it is gone. */
  onNode(name: string, node: RoutingNode | undefined): void {
    this.#nodes.set(name, node);
    const words = [node ? node.exclusion ?? "is known" : "is gone"];
    this.#request({ kind: "Node", name, words });
  }

  /** Takes other settings. */
  setSettings(settings: BgpPartSettings): void {
    this.#settings = settings;
    this.#request({ kind: "configuration", name: "", words: [] });
  }

  /** Takes the networks of the node's interfaces. */
  onNetworks(networks: readonly Cidr[]): void {
    this.#networks = networks;
    this.#request({ kind: "addresses", name: "", words: ["networks of interfaces"] });
  }

  /**
   * Withdraws the addresses of all Services at once, and waits until routers have learned of it:
   * the requests that they send until then are served. Rejects if the withdrawal fails.
   */
  async withdraw(): Promise<void> {
    await this.loop.stop();
    this.#isDraining = true;
    const withdrawn = await this.#plan();
    const { plan } = this.#planner;
    if (!plan) return;
    await this.backend.sync(plan, {});
    if (withdrawn.size > 0) await this.#clock.sleep(ROUTERS_LEARN_MS);
  }

  #createLoop(
    dependencies: ControllerParts & { readonly logger: Logger },
    id: { readonly controller: "bgp"; readonly family: "IPv4" | "IPv6" },
  ) {
    const planner = this.#planner;
    const isPending = () => this.#isPending;
    return new SyncLoop<PlannedBgp, object, string, SyncReport<string>>(dependencies, {
      id,
      dataPlane: {
        start: () => this.#adopt(dependencies.logger),
        sync: ({ bgp }) => this.#sync(bgp),
      },
      planner: {
        get plan() {
          return { bgp: planner.plan };
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

  #request(cause?: RoutingChange): void {
    if (cause) noteCause(this.#recorder, cause);
    this.#isPending = true;
    this.loop.request();
  }

  async #collectChanges() {
    this.#isPending = false;
    this.#recorder.drained();
    const prefixes = await this.#plan();
    const announced = new Set(this.#planner.plan?.announced.map(({ prefix }) => prefix));
    for (const prefix of prefixes) {
      const isAnnounced = announced.has(prefix);
      const item = { name: prefix, words: [isAnnounced ? "announced" : "withdrawn"] };
      this.#recorder.planned(isAnnounced ? undefined : item, isAnnounced ? item : undefined);
    }
    return { changes: {}, problems: this.#planner.problems };
  }

  /** Brings the plan up to date. Returns the prefixes that changed. */
  async #plan(): Promise<ReadonlySet<Cidr>> {
    const planner = this.#planner;
    if (this.#settings) planner.setSettings(this.#settings);
    if (this.#areRangesChanged) planner.setServiceRanges(this.#services.serviceRanges);
    if (this.#settings || this.#areRangesChanged) {
      for (const key of this.#services.keys) this.#dirty.add(key);
    }
    this.#settings = undefined;
    for (const [name, node] of this.#nodes) planner.setNode(name, node);
    this.#nodes.clear();
    if (this.#networks) planner.setNetworks(this.#networks);
    this.#networks = undefined;
    this.#areRangesChanged = false;
    await forEachInSlices(this.#clock, this.#dirty, (key) => {
      this.#dirty.delete(key);
      planner.setService(key, this.#services.of(key));
    });
    planner.setDraining(this.#isDraining);
    const { prefixes } = await runInSlices(this.#clock, planner.updateInSteps());
    return prefixes;
  }

  /** A host that is not ready for BGP must not keep Services from starting. */
  async #adopt(logger: Logger): Promise<void> {
    try {
      await this.backend.start();
      this.#isAdopted = true;
    } catch (error) {
      logger.warn("Cannot take over the configuration of BIRD; the first sync tries again", {
        error,
      });
    }
  }

  /** A daemon that fails is no failure of kube-relay, whose Services work. */
  async #sync(plan: BgpPlan | undefined): Promise<SyncReport<string>> {
    if (!plan) {
      const reason = `Node ${this.#nodeName} is not known yet: its addresses are needed`;
      return { full: false, operations: {}, quarantined: [{ key: "BGP", reason }] };
    }
    try {
      if (!this.#isAdopted) await this.backend.start();
      this.#isAdopted = true;
      return await this.backend.sync(plan, {});
    } catch (error) {
      const quarantined = [{ key: "BGP", reason: messageOf(error) }];
      return { full: true, operations: {}, quarantined };
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.backend[Symbol.asyncDispose]();
  }
}
