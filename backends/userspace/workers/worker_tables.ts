/**
 * The forwarders and sockets that workers have, as the main thread knows them: a worker that starts
 * in place of another one gets them again.
 *
 * @module
 */
import type { EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../../lib/proxy/packet_explanation.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { decidesInCommon } from "../common_decisions.ts";
import { EndpointPicker } from "../endpoint_picker.ts";
import type { ServiceForwarder, ServiceSocket, SocketUse } from "../forwarders.ts";
import { Decider, type DeciderContext } from "./decider.ts";
import type { Command, Place } from "./worker_protocol.ts";

/** What a forwarder in workers needs of them. */
export interface ForwarderContext extends DeciderContext {
  /** Ends the connections or flows of a forwarder. */
  end(forwarder: WorkerForwarder): void;
  /** Has the workers adopt the unhealthy endpoints of a forwarder, now. */
  skip(forwarder: WorkerForwarder): void;
  /** Queues the plan of a forwarder for the next {@linkcode Forwarders.settle}. */
  touch(forwarder: WorkerForwarder): void;
  /** Asks the worker that has the forwarder. */
  remembered(forwarder: WorkerForwarder, client: string): Promise<AffinityEntry | undefined>;
}

/** The forwarder of one ServicePort, which each worker has for TCP, and one of them for UDP. */
export class WorkerForwarder implements ServiceForwarder {
  readonly number: number;
  /** The only worker that has it; `undefined` for TCP, and while no worker runs. */
  worker: number | undefined = undefined;
  unhealthy: ReadonlySet<EndpointKey> = new Set();
  plan: ServicePlan;
  /** Open connections or flows in each worker, as of its last report. */
  readonly counts = new Map<number, number>();
  readonly #context: ForwarderContext;
  /** Knows the slow starts, if the Service has them. */
  #starts: EndpointPicker | undefined;
  #decider: Decider | undefined;

  constructor(context: ForwarderContext, { number, plan }: {
    readonly number: number;
    readonly plan: ServicePlan;
  }) {
    this.#context = context;
    this.number = number;
    this.plan = plan;
    this.#updatePickers();
  }

  get key(): ServicePortKey {
    return this.plan.key;
  }

  get isTcp(): boolean {
    return this.plan.protocol === "TCP";
  }

  get connections(): number {
    return this.counts.values().reduce((sum, count) => sum + count, 0);
  }

  /** Decides for all workers; `undefined` = each of them decides itself. */
  get decider(): Decider | undefined {
    return this.#decider;
  }

  update(plan: ServicePlan): void {
    this.plan = plan;
    this.#updatePickers();
    this.#context.touch(this);
  }

  skip(unhealthy: ReadonlySet<EndpointKey>): void {
    this.unhealthy = unhealthy;
    this.#decider?.skip(unhealthy);
    this.#starts?.skip(unhealthy, this.#now);
    this.#context.skip(this);
  }

  remembered(client: string): AffinityEntry | undefined | Promise<AffinityEntry | undefined> {
    return this.isTcp ? this.#decider?.remembered(client) : this.#context.remembered(this, client);
  }

  close(): void {
    this.#context.end(this);
  }

  /** A worker has ended. */
  forget(worker: number): void {
    this.counts.delete(worker);
    this.#decider?.forget(worker);
  }

  get #now(): number {
    return this.#context.forwarding.clock.now();
  }

  /** The commands by which a worker that knows nothing gets the forwarder. */
  *commands(): Generator<Command> {
    const { number: forwarder, plan, unhealthy } = this;
    // Forwarders read only the lists of the verdicts.
    yield { op: "forward", forwarder, plan: { ...plan, reachable: [], endpoints: [] } };
    if (unhealthy.size > 0) yield { op: "skip", forwarder, unhealthy };
    const ages = this.#starts?.agesAt(this.#now);
    if (ages?.size) yield { op: "restore", forwarder, ages };
  }

  #updatePickers(): void {
    if (this.plan.edge?.slowStartMs === undefined) this.#starts = undefined;
    else if (this.#starts) this.#starts.update(this.plan, this.#now);
    else {
      this.#starts = new EndpointPicker(this.plan);
      this.#starts.skip(this.unhealthy, this.#now);
    }
    // Once made it stays: it knows which connections are open.
    if (this.#decider) this.#decider.update(this.plan);
    else if (decidesInCommon(this.plan)) {
      this.#decider = new Decider(this.#context, this.plan);
      if (this.unhealthy.size > 0) this.#decider.skip(this.unhealthy);
    }
  }
}

/** A listening socket, which each worker opens for TCP. */
export class WorkerSocket implements ServiceSocket {
  readonly number: number;
  readonly place: Place;
  use: SocketUse & { readonly forwarder: WorkerForwarder };
  /** The worker that has it, for UDP. */
  worker: number | undefined;
  /** When another worker got it, since the former one had ended. */
  movedAt: number | undefined;
  readonly #onClose: (socket: WorkerSocket) => void;

  constructor({ number, place, use, onClose }: {
    readonly number: number;
    readonly place: Place;
    readonly use: SocketUse & { readonly forwarder: WorkerForwarder };
    readonly onClose: (socket: WorkerSocket) => void;
  }) {
    this.number = number;
    this.place = place;
    this.use = use;
    this.worker = use.forwarder.worker;
    this.#onClose = onClose;
  }

  close(): void {
    this.#onClose(this);
  }

  command(op: "open" | "assign"): Command {
    const { number: socket, place, use: { at, forwarder: { number: forwarder } } } = this;
    return op === "open" ? { op, socket, place, forwarder, at } : { op, socket, forwarder, at };
  }
}
