/** Tests that a real API server accepts the events of the recorder. */
import { assertEquals, assertMatch } from "@std/assert";
import { KubeClient } from "../../lib/kube/client.ts";
import { type KubeEvent, nodeRegarding } from "../../lib/kube/event.ts";
import { EventRecorder } from "../../lib/kube/event_recorder.ts";
import { openTransport } from "../../lib/kube/api_transport.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { eventually } from "../support/eventually.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { tokenAuth } from "./machinery_auth.ts";
import type { ConformanceServer, StartConformanceServer } from "./server.ts";

const EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events";
const STARTING: KubeEvent = {
  type: "Normal",
  reason: "Starting",
  action: "StartKubeProxy",
  note: "Starting",
  regarding: nodeRegarding("node-a"),
};

/** Defines the tests for one kind of server. */
export function defineEventTests(name: string, start: StartConformanceServer): void {
  Deno.test(`EventRecorder posts an event, and its repetition as a series (${name})`, async () => {
    await using server = await start();
    await using stage = new Stage(server);
    stage.recorder.record(STARTING);
    const [event] = await stage.events(([first]) => first !== undefined);
    assertEquals([event?.reason, event?.type, event?.action], ["Starting", "Normal", ACTION]);
    assertEquals([event?.reportingController, event?.reportingInstance], [
      "kube-proxy",
      "kube-proxy-host-a",
    ]);
    assertEquals(event?.regarding, { apiVersion: "v1", kind: "Node", name: "node-a" });
    assertMatch(String(event?.eventTime), /^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{6}Z$/);
    assertEquals(event?.series ?? undefined, undefined);
    stage.recorder.record(STARTING);
    const [again, ...others] = await stage.events(([first]) => first?.series?.count === 2);
    assertEquals([again?.metadata.name, others], [event?.metadata.name, []]);
    assertEquals(stage.logger.lines, []);
  });
}

const ACTION = STARTING.action;

/** An Event as it is read back, as far as it is compared. */
interface StoredEvent {
  readonly metadata: { readonly name: string };
  readonly reason?: string;
  readonly type?: string;
  readonly action?: string;
  readonly reportingController?: string;
  readonly reportingInstance?: string;
  readonly regarding?: unknown;
  readonly eventTime?: string;
  readonly series?: { readonly count: number } | null;
}

/** A recorder that sends to the server until it is disposed of. */
class Stage implements AsyncDisposable {
  readonly logger = new MemoryLogger();
  readonly recorder;
  readonly #transport;
  readonly #client;
  readonly #abort = new AbortController();
  readonly #running: Promise<void>;

  constructor(server: ConformanceServer) {
    const auth = tokenAuth(server);
    this.#transport = openTransport(systemClock, auth);
    this.#client = new KubeClient({ clock: systemClock, auth, transport: this.#transport });
    this.recorder = new EventRecorder(systemClock, this.logger, Math.random, {
      controller: "kube-proxy",
      instance: "kube-proxy-host-a",
    });
    this.#running = this.recorder.run(this.#client, this.#abort.signal);
  }

  /** The events that are stored, once they are so. */
  async events(
    areSo: (events: readonly StoredEvent[]) => boolean,
  ): Promise<readonly StoredEvent[]> {
    return await eventually("the events are as expected", async () => {
      const { items } = await this.#client.get(EVENTS, this.#abort.signal) as {
        readonly items: readonly StoredEvent[];
      };
      return areSo(items) && items;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#abort.abort();
    await this.#running;
    await this.#transport[Symbol.asyncDispose]();
  }
}
