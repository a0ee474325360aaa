/**
 * The pools and peers of LoadBalancerPools and BgpPeers, and the status of these objects.
 *
 * @module
 */
import { collectionPath, type KindSpec } from "../../api/kind.ts";
import {
  BGP_PEER,
  type BgpPeerObject,
  LOAD_BALANCER_POOL,
  type LoadBalancerPool,
} from "../../api/kinds/routing_objects.ts";
import type { RoutedService } from "../../api/kinds/routed_service.ts";
import type { RoutingConfiguration } from "../../config/routing.ts";
import {
  ACCEPTED,
  isAccepted,
  type JoinedRouting,
  joinRoutingObjects,
  type ObjectVerdict,
  peerNameOf,
  type RoutingObject,
} from "../../config/routing_objects.ts";
import { ApiError } from "../../kube/api_error.ts";
import type { KubeClient } from "../../kube/client.ts";
import { type InformerSet, WITHOUT_DEFINITIONS } from "../../kube/informer_set.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import { Backoff } from "../../os/backoff.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import { forEachInSlices } from "../../os/time_slice.ts";
import { WakeUp } from "../../os/wake_up.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { type AddressPool, poolOf, poolUse, spaceOf } from "../../routing/address_pool.ts";
import type { BgpPart } from "./routing_parts.ts";
import { addressesInUse } from "./routing_status.ts";

/** Events that arrive within this time are taken together: a list has many. */
const GATHER_MS = 100;
/** The status of an object is written at most once within this time. */
const STATUS_MS = 5_000;
/** Time between two looks at the sessions of the node. */
const SESSIONS_MS = 10_000;
/** A session that comes and goes is written this often at most: every node watches the object. */
const SESSION_REST_MS = 60_000;
/** Nodes and overlaps that a status names. The definitions have the same limits. */
const [MOST_SESSIONS, MOST_CONFLICTS] = [64, 8];
const RETRY = { initialMs: STATUS_MS, maxMs: 300_000 };

interface ObjectSettingsOptions {
  readonly informers: InformerSet;
  readonly nodeName: string;
  /** Called when the objects may ask for something else. */
  readonly onChange: () => void;
  /** Whether the cluster has a Node. */
  readonly isNode: (name: string) => boolean;
  /** Why addresses of pools are not assigned. */
  readonly poolProblems: () => readonly string[];
}

/** Follows the objects for one run. */
export class ObjectSettings {
  readonly #edges: {
    readonly clock: Clock;
    readonly logger: Logger;
    readonly random: () => number;
  };
  readonly #logger: Logger;
  readonly #options: ObjectSettingsOptions;
  #joined: Pick<JoinedRouting, "pools" | "peers"> = { pools: new Map(), peers: new Map() };
  #pools: readonly AddressPool[] = [];
  #gathering: Timer | undefined;
  /** The last problem of each object. */
  readonly #reported = new Map<string, string>();
  /** Objects whose status may have to be written. */
  readonly #dirty = new Set<string>();
  readonly #wakeUp = new WakeUp();
  #isLeader = false;
  /** The number of Services with an address, and what the address is counted in. */
  readonly #uses = new Map<IpAddress, { services: number; space?: string | undefined }>();
  /** Addresses in use, by pool and family. */
  readonly #counts = new Map<string, number>();
  #isUncounted = true;
  /** When this node wrote its session last, by peer. */
  readonly #wroteAt = new Map<string, number>();

  constructor(
    edges: { readonly clock: Clock; readonly logger: Logger; readonly random: () => number },
    options: ObjectSettingsOptions,
  ) {
    this.#edges = edges;
    this.#logger = edges.logger.with({ component: "routing_objects" });
    this.#options = options;
    const changed = (previous: RoutingObject | undefined, current: RoutingObject | undefined) => {
      // Nodes write their sessions into the status.
      if (current) this.#touch(keyOf(current));
      const text = (object: RoutingObject | undefined) =>
        object && JSON.stringify([object.spec, isAccepted(object)]);
      if (text(previous) !== text(current)) this.#gather();
    };
    const handler = {
      onAdd: (object: RoutingObject) => changed(undefined, object),
      onUpdate: changed,
      onDelete: (object: RoutingObject) => changed(object, undefined),
      onSynced: () => this.#gather(),
    };
    const { informers } = options;
    informers.subscribe<LoadBalancerPool>(LOAD_BALANCER_POOL, WITHOUT_DEFINITIONS, handler);
    informers.subscribe<BgpPeerObject>(BGP_PEER, WITHOUT_DEFINITIONS, handler);
  }

  /** Whether all objects that existed at the start are known, and no change waits to be taken. */
  get synced(): boolean {
    return this.#gathering === undefined &&
      this.#options.informers.synced([LOAD_BALANCER_POOL, BGP_PEER]);
  }

  /** The versions of objects that are used. */
  get used(): {
    readonly pools: readonly LoadBalancerPool[];
    readonly peers: readonly BgpPeerObject[];
  } {
    const { pools, peers } = this.#joined;
    return {
      pools: [...pools.values()].flatMap(({ used }) => used ?? []),
      peers: [...peers.values()].flatMap(({ used }) => used ?? []),
    };
  }

  /** What is wrong with objects, by kind and name. */
  get problems(): ReadonlyMap<string, string> {
    return this.#reported;
  }

  /** Adds what the objects ask for to a configuration. */
  join(routing: RoutingConfiguration): RoutingConfiguration {
    const { informers } = this.#options;
    const joined = joinRoutingObjects(routing, {
      pools: informers.of(LOAD_BALANCER_POOL).values(),
      peers: informers.of(BGP_PEER).values(),
    }, this.#joined);
    this.#joined = joined;
    const known = new Set<string>();
    for (const verdict of [...joined.pools.values(), ...joined.peers.values()]) {
      const key = keyOf(verdict.object);
      known.add(key);
      this.#touch(key);
      const text = problemOf(verdict);
      if (this.#reported.get(key) === text) continue;
      if (text === undefined) {
        this.#reported.delete(key);
        this.#logger.info("An object is used again", { object: key });
      } else {
        this.#reported.set(key, text);
        this.#logger.warn("Cannot use an object as it is", { object: key, problem: text });
      }
    }
    for (const key of this.#reported.keys()) if (!known.has(key)) this.#reported.delete(key);
    return joined.routing;
  }

  /** Takes the pools of the settings in effect, or that ranges are left out of them. */
  setPools(pools: readonly AddressPool[]): void {
    this.#pools = pools;
    this.#isUncounted = true;
    for (const { object } of this.#joined.pools.values()) this.#touch(keyOf(object));
  }

  /** Takes a Service that changed or is gone. */
  onService(previous: RoutedService | undefined, current: RoutedService | undefined): void {
    const [had, has] = [previous, current].map((each) => addressesInUse(each ? [each] : []));
    for (const address of has!.difference(had!)) this.#count(address, 1);
    for (const address of had!.difference(has!)) this.#count(address, -1);
  }

  #count(address: IpAddress, by: 1 | -1): void {
    const use = this.#uses.get(address) ?? { services: 0 };
    use.services += by;
    if (use.services === 0) {
      this.#uses.delete(address);
      this.#add(use.space, -1);
      return;
    }
    this.#uses.set(address, use);
    // All are counted before the first write.
    if (use.services === 1 && by === 1 && !this.#isUncounted) this.#place(address);
  }

  #place(address: IpAddress): void {
    const [use, pool] = [this.#uses.get(address), poolOf(this.#pools, address)];
    if (!use || !pool || use.space !== undefined) return;
    use.space = spaceOf(pool, ipFamilyOf(address));
    this.#add(use.space, 1);
  }

  #add(space: string | undefined, by: number): void {
    if (space === undefined) return;
    this.#counts.set(space, (this.#counts.get(space) ?? 0) + by);
    this.#touch(`${LOAD_BALANCER_POOL.kind} ${space.split(" ")[0]}`);
  }

  #touch(key: string): void {
    if (!this.#isLeader) return;
    this.#dirty.add(key);
    this.#wakeUp.call();
  }

  #gather(): void {
    this.#gathering ??= this.#edges.clock.setTimer(GATHER_MS, () => {
      this.#gathering = undefined;
      this.#options.onChange();
    });
  }

  /** Forgets changes that were not taken yet. */
  stop(): void {
    this.#gathering?.cancel();
  }

  /** Writes the status of all objects until the signal is aborted, while this process leads. Never rejects. */
  async lead(client: Pick<KubeClient, "patch">, signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#edges;
    const backoff = new Backoff(random, RETRY);
    this.#isLeader = this.#isUncounted = true;
    for (const { object } of this.#verdicts()) this.#touch(keyOf(object));
    while (!signal.aborted) {
      await this.#wakeUp.wait(signal);
      if (signal.aborted) break;
      if (this.#isUncounted) await this.#countAll(signal);
      const hasFailed = await this.#write(client, signal);
      const waitMs = hasFailed ? backoff.next(clock.now()) : STATUS_MS;
      await clock.sleep(waitMs, signal).catch(() => {});
    }
    this.#isLeader = false;
    this.#dirty.clear();
  }

  async #countAll(signal: AbortSignal): Promise<void> {
    this.#isUncounted = false;
    this.#counts.clear();
    for (const use of this.#uses.values()) use.space = undefined;
    const addresses = new Set(this.#uses.keys());
    await forEachInSlices(this.#edges.clock, addresses, (each) => this.#place(each), signal)
      .catch(() => {});
  }

  /** Returns whether a write has failed. */
  async #write(client: Pick<KubeClient, "patch">, signal: AbortSignal): Promise<boolean> {
    let failed: unknown;
    const verdicts = new Map(this.#verdicts().map((each) => [keyOf(each.object), each]));
    for (const key of [...this.#dirty]) {
      this.#dirty.delete(key);
      const verdict = verdicts.get(key);
      if (!verdict || signal.aborted) continue;
      const status = this.#statusOf(verdict);
      const current = verdict.object.status as Readonly<Record<string, unknown>> | undefined;
      const news = Object.entries(status)
        .filter(([name, value]) => !deepEqual(value ?? undefined, current?.[name]));
      if (news.length === 0) continue;
      try {
        await client.patch(pathOf(verdict.object), { status: Object.fromEntries(news) }, signal);
      } catch (error) {
        // It was deleted, or this process ends.
        if (signal.aborted || error instanceof ApiError && error.isNotFound()) continue;
        this.#touch(key);
        failed ??= error;
      }
    }
    if (failed !== undefined) {
      const reason = messageOf(failed);
      this.#logger.warn("Cannot write the status of an object; trying again", { reason });
    }
    return failed !== undefined;
  }

  /** The objects as they are now, with what became of them. */
  #verdicts(): readonly ObjectVerdict[] {
    const { informers } = this.#options;
    const { pools, peers } = this.#joined;
    const now = (spec: KindSpec<RoutingObject>, verdicts: ReadonlyMap<string, ObjectVerdict>) =>
      [...verdicts].flatMap(([name, verdict]) => {
        const object = informers.of(spec).get(name);
        const { generation, uid } = verdict.object.metadata;
        // Of a newer version, or another object of the name, there is no verdict yet.
        const isJudged = object?.metadata.generation === generation && object?.metadata.uid === uid;
        return object && isJudged ? [{ ...verdict, object }] : [];
      });
    return [...now(LOAD_BALANCER_POOL, pools), ...now(BGP_PEER, peers)];
  }

  /** The fields of the status that the leader writes; `null` = none. */
  #statusOf(verdict: ObjectVerdict): Readonly<Record<string, unknown>> {
    const { object } = verdict;
    // Those of others stay: a list of a patch replaces the whole list.
    const others = object.status?.conditions?.filter(({ type }) => type !== ACCEPTED) ?? [];
    const conditions = [...others, this.#conditionOf(verdict)];
    const { name } = object.metadata;
    if (!("address" in object.spec)) {
      const pool = verdict.used && this.#pools.find((each) => each.name === name);
      const uses = pool ? poolUse([pool], new Set()) : [];
      const use = (family: IpFamily) => {
        const size = uses.find((each) => each.family === family)?.size;
        const used = this.#counts.get(`${name} ${family}`) ?? 0;
        return size === undefined ? null : { used, total: `${size}` };
      };
      const conflicts = this.#options.poolProblems()
        .filter((text) => text.startsWith(`Pool '${name}' `)).slice(0, MOST_CONFLICTS);
      return {
        ...{ ipv4: use("IPv4"), ipv6: use("IPv6"), conditions },
        conflicts: conflicts.length === 0 ? null : conflicts,
      };
    }
    const sessions = Object.entries(sessionsOf(object));
    const known = sessions.filter(([node]) => this.#options.isNode(node));
    const up = known.filter(([, state]) => state === UP).length;
    const gone = sessions.filter(([node]) => !this.#options.isNode(node));
    return {
      ...{ conditions, established: `${up} of ${known.length}` },
      // Only these entries are removed: nodes write the others.
      ...(gone.length > 0 && { sessions: Object.fromEntries(gone.map(([node]) => [node, null])) }),
    };
  }

  #conditionOf(verdict: ObjectVerdict) {
    const { object: { metadata: { generation }, status }, used } = verdict;
    const problem = problemOf(verdict);
    const before = status?.conditions?.find(({ type }) => type === ACCEPTED);
    const value = problem === undefined ? "True" : "False";
    const now = new Date(this.#edges.clock.wallNow()).toISOString().replace(/\.\d+/, "");
    return {
      ...{ type: ACCEPTED, status: value },
      reason: problem === undefined ? "Used" : used ? "LastGoodVersionUsed" : "NotUsed",
      message: problem ?? "The object is used",
      ...(generation !== undefined && { observedGeneration: generation }),
      lastTransitionTime: before?.status === value ? before.lastTransitionTime ?? now : now,
    };
  }

  /**
   * Writes the sessions of this node into the status of their BgpPeers until the signal is aborted, and
   * removes those of a former run. `bgp`: absent without BGP. Never rejects.
   */
  async report(
    client: Pick<KubeClient, "patch">,
    bgp: Pick<BgpPart, "plan" | "backend"> | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { clock } = this.#edges;
    const { informers, nodeName } = this.#options;
    while (!signal.aborted) {
      await clock.sleep(SESSIONS_MS, signal).catch(() => {});
      const plan = bgp?.plan;
      const objects = [...informers.of(BGP_PEER).values()];
      if (signal.aborted || bgp && !plan || objects.length === 0) continue;
      // What BIRD does not answer is not known.
      const sessions = bgp && plan ? await bgp.backend.sessions(plan).catch(() => undefined) : [];
      for (const object of sessions ? objects : []) {
        const { name } = object.metadata;
        const peer = peerNameOf(object);
        const isUsed = this.#joined.peers.get(name)?.used !== undefined &&
          plan?.peers.some((each) => each.name === peer) === true;
        const isUp = sessions!.some((each) => each.peer === peer && each.state === "Established");
        const state = isUsed ? isUp ? UP : "Down" : undefined;
        const known = sessionsOf(object);
        if (known[nodeName] === state) continue;
        if (known[nodeName] === undefined && Object.keys(known).length >= MOST_SESSIONS) continue;
        if (clock.now() - (this.#wroteAt.get(name) ?? -Infinity) < SESSION_REST_MS) continue;
        this.#wroteAt.set(name, clock.now());
        const status = { sessions: { [nodeName]: state ?? null } };
        await client.patch(pathOf(object), { status }, signal).catch((error) => {
          this.#logger.verbose(1, "Cannot write a session into the status of its object", {
            ...{ peer: name, error },
          });
        });
      }
    }
  }
}

/** The state of a session that is up. */
const UP = "Established";

function sessionsOf({ status }: RoutingObject): Readonly<Record<string, string>> {
  return status && "sessions" in status ? status.sessions ?? {} : {};
}

function specOf({ spec }: RoutingObject): KindSpec {
  return "address" in spec ? BGP_PEER : LOAD_BALANCER_POOL;
}

function keyOf(object: RoutingObject): string {
  return `${specOf(object).kind} ${object.metadata.name}`;
}

function pathOf(object: RoutingObject): string {
  return `${collectionPath(specOf(object))}/${object.metadata.name}/status`;
}

function problemOf({ problem, used }: ObjectVerdict): string | undefined {
  if (!problem) return undefined;
  const former = used ? "; its last good version is used" : "";
  return `${problem.path}: ${problem.message}${former}`;
}
