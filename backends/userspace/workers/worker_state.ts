import type { Clock } from "../../../lib/os/clock.ts";
import { type SocketKey, socketKey } from "../listeners.ts";
import type { ClientFacts, Command, Place, PublishedFrontends } from "./worker_protocol.ts";
import type { WorkerForwarder, WorkerSocket } from "./worker_tables.ts";

/** A command for one worker. */
type AddressedCommand = readonly [worker: number, command: Command];

/** What all workers together have to know, and which of them has the ServicePorts for UDP. */
export class WorkerState {
  readonly forwarders = new Map<number, WorkerForwarder>();
  readonly #sockets = new Map<number, WorkerSocket>();
  /** Where the sockets are bound. */
  readonly #places = new Set<SocketKey>();
  /** Frontends for UDP, by which a datagram of this process is recognized. */
  readonly frontends = new Map<string, PublishedFrontends>();
  facts: ClientFacts | undefined;
  readonly #clock: Pick<Clock, "now">;
  /** ServicePorts for UDP of each worker. */
  readonly #uses = new Map<number, number>();
  #lastNumber = 0;

  constructor(clock: Pick<Clock, "now">) {
    this.#clock = clock;
  }

  /** Returns a number for a forwarder or socket. */
  nextNumber(): number {
    return ++this.#lastNumber;
  }

  get sockets(): ReadonlyMap<number, WorkerSocket> {
    return this.#sockets;
  }

  /** Throws as the network does if another socket has the place. */
  checkPlace(place: Place, forwarder: WorkerForwarder): void {
    if (!this.#places.has(keyOf(place, forwarder))) return;
    throw Object.assign(new Error("another Service has the place"), { code: "EADDRINUSE" });
  }

  add(socket: WorkerSocket): void {
    this.#sockets.set(socket.number, socket);
    this.#places.add(keyOf(socket.place, socket.use.forwarder));
  }

  delete(socket: WorkerSocket): void {
    this.#sockets.delete(socket.number);
    this.#places.delete(keyOf(socket.place, socket.use.forwarder));
  }

  /** Gives a ServicePort for UDP to the worker that has the fewest, or to none if there is none. */
  place(forwarder: WorkerForwarder, workers: readonly number[]): void {
    const { worker: before } = forwarder;
    if (before !== undefined) this.#uses.set(before, this.#usesOf(before) - 1);
    const [least] = workers.toSorted((left, right) => this.#usesOf(left) - this.#usesOf(right));
    if (least !== undefined) this.#uses.set(least, this.#usesOf(least) + 1);
    forwarder.worker = least;
  }

  /** What a worker has to know that knows nothing. ServicePorts without a worker become its own. */
  *commandsFor(worker: number): Generator<Command> {
    if (this.facts) yield { op: "share", shared: this.facts };
    for (const published of this.frontends.values()) yield { op: "frontends", ...published };
    for (const forwarder of this.forwarders.values()) {
      if (!forwarder.isTcp && forwarder.worker === undefined) this.place(forwarder, [worker]);
      if (forwarder.isTcp || forwarder.worker === worker) yield* forwarder.commands();
    }
    for (const socket of this.sockets.values()) {
      this.#move(socket);
      if (socket.use.forwarder.isTcp || socket.worker === worker) yield socket.command("open");
    }
  }

  /** Gives the ServicePorts of a worker that has ended to the others. */
  *moveFrom(ended: number, workers: readonly number[]): Generator<AddressedCommand> {
    for (const forwarder of this.forwarders.values()) {
      if (forwarder.worker !== ended) continue;
      this.place(forwarder, workers);
      const { worker } = forwarder;
      if (worker === undefined) continue;
      for (const command of forwarder.commands()) yield [worker, command];
    }
    for (const socket of this.sockets.values()) {
      if (socket.worker !== ended) continue;
      this.#move(socket);
      if (socket.worker !== undefined) yield [socket.worker, socket.command("open")];
    }
  }

  #usesOf(worker: number): number {
    return this.#uses.get(worker) ?? 0;
  }

  /** The socket of a worker that has ended is closed a moment later. */
  #move(socket: WorkerSocket): void {
    socket.worker = socket.use.forwarder.worker;
    socket.movedAt = this.#clock.now();
  }
}

function keyOf({ address, port }: Place, { plan: { protocol } }: WorkerForwarder): SocketKey {
  return socketKey(address, port, protocol);
}
