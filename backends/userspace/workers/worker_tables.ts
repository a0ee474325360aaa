/**
 * The forwarders and sockets that workers have, as the main thread knows them: a worker that starts
 * in place of another one gets them again.
 *
 * @module
 */
import type { EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../../lib/proxy/packet_explanation.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type { FamilyTraffic, ServiceTraffic } from "../../../lib/proxy/service_traffic.ts";
import { createAffinityMemory } from "../affinity_table.ts";
import { EndpointPicker, type SharedServicePlan } from "../endpoint_picker.ts";
import type { ServiceForwarder, ServiceSocket, SocketUse } from "../forwarders.ts";
import { type SocketKey, socketKey } from "../listeners.ts";
import type { Command, ForwarderFigures, Place } from "./worker_protocol.ts";

const COUNTED = [
  ...["bytesFromClients", "bytesToClients", "packetsFromClients", "packetsToClients"] as const,
  ...["opened", "open"] as const,
];

/** What forwarders in workers need of them. */
interface ForwarderContext {
  readonly clock: Pick<Clock, "now">;
  readonly traffic: FamilyTraffic | undefined;
  /** Ends the connections or flows of a forwarder. */
  end(forwarder: WorkerForwarder): void;
  /** Has the workers adopt the unhealthy endpoints of a forwarder, now. */
  skip(forwarder: WorkerForwarder): void;
  /** Queues the plan of a forwarder for the next {@linkcode Forwarders.settle}. */
  touch(forwarder: WorkerForwarder): void;
}

/** The forwarder of one ServicePort, which each worker has for TCP, and one of them for UDP. */
export class WorkerForwarder implements ServiceForwarder {
  /** The only worker that has it; `undefined` for TCP, and while no worker runs. */
  worker: number | undefined = undefined;
  unhealthy: ReadonlySet<EndpointKey> = new Set();
  plan: SharedServicePlan;
  /** What each worker has counted, as of its last report. */
  readonly #figures = new Map<number, ForwarderFigures>();
  readonly #context: ForwarderContext;
  /** Kept, so that it never changes between a row of its own and that of others. */
  #row: ServiceTraffic | undefined;
  #affinityMemory: SharedArrayBuffer | undefined;
  /** Picks nothing: it knows the slow starts and the clients with affinity, if there are any. */
  #picker: EndpointPicker | undefined;

  constructor(context: ForwarderContext, plan: ServicePlan) {
    this.#context = context;
    this.plan = this.#adopt(plan);
  }

  get key(): ServicePortKey {
    return this.plan.key;
  }

  get isTcp(): boolean {
    return this.plan.protocol === "TCP";
  }

  get connections(): number {
    return this.#figures.values().reduce((sum, { connections }) => sum + connections, 0);
  }

  /** Takes what a worker has counted; `undefined` = it has ended, or the ServicePort was removed. */
  count(worker: number, figures: ForwarderFigures | undefined): void {
    const before = this.#figures.get(worker)?.traffic;
    if (figures) this.#figures.set(worker, figures);
    else this.#figures.delete(worker);
    const now = figures ? figures.traffic : before && { ...before, open: 0 };
    const row = now && (this.#row ??= this.#context.traffic?.enter(this.plan.name));
    for (const name of row ? COUNTED : []) row![name] += now![name] - (before?.[name] ?? 0);
  }

  update(plan: ServicePlan): void {
    this.plan = this.#adopt(plan);
    this.#context.touch(this);
  }

  skip(unhealthy: ReadonlySet<EndpointKey>): void {
    this.unhealthy = unhealthy;
    this.#picker?.skip(unhealthy, this.#now);
    this.#context.skip(this);
  }

  remembered(client: string): AffinityEntry | undefined {
    return this.#picker?.remembered(client, this.#now);
  }

  close(): void {
    this.#context.end(this);
  }

  get #now(): number {
    return this.#context.clock.now();
  }

  /** The commands by which a worker that knows nothing gets the forwarder. */
  *commands(): Generator<Command> {
    const { key, plan, unhealthy } = this;
    // Forwarders read only the lists of the verdicts.
    const relayed = { ...plan, reachable: [], endpoints: [] };
    yield { op: "forward", plan: relayed, ages: this.#picker?.agesAt(this.#now) };
    if (unhealthy.size > 0) yield { op: "skip", key, unhealthy };
  }

  #adopt(planned: ServicePlan): SharedServicePlan {
    const hasAffinity = planned.affinityTimeoutSeconds !== undefined;
    if (hasAffinity) this.#affinityMemory ??= createAffinityMemory();
    else this.#affinityMemory = undefined;
    const affinityMemory = this.#affinityMemory;
    const plan = { ...planned, ...(affinityMemory && { affinityMemory }) };
    if (!hasAffinity && planned.edge?.slowStartMs === undefined) this.#picker = undefined;
    else if (this.#picker) this.#picker.update(plan, this.#now);
    else {
      this.#picker = new EndpointPicker(plan);
      this.#picker.skip(this.unhealthy, this.#now);
    }
    return plan;
  }
}

/** A listening socket, which each worker opens for TCP. */
export class WorkerSocket implements ServiceSocket {
  /** The key of the place. */
  readonly key: SocketKey;
  readonly place: Place;
  use: SocketUse & { readonly forwarder: WorkerForwarder };
  /** The worker that has it, for UDP. */
  worker: number | undefined;
  /** When another worker got it, since the former one had ended. */
  movedAt: number | undefined;
  readonly #onClose: (socket: WorkerSocket) => void;

  constructor(
    place: Place,
    use: SocketUse & { readonly forwarder: WorkerForwarder },
    onClose: (socket: WorkerSocket) => void,
  ) {
    this.key = socketKey(place.address, place.port, use.forwarder.plan.protocol);
    this.place = place;
    this.use = use;
    this.worker = use.forwarder.worker;
    this.#onClose = onClose;
  }

  close(): void {
    this.#onClose(this);
  }

  /** The command by which a worker opens it, or gives it to its forwarder. */
  get command(): Command {
    const { key: socket, place, use: { at, forwarder: { key } } } = this;
    return { op: "open", socket, place, key, at };
  }
}
