/** A client under test: an {@linkcode ApiSource} whose informers record all events. */
import {
  ApiSource,
  type ApiSourceStatus,
  type FollowedResource,
} from "../../lib/kube/api_source.ts";
import type { TransportTiming } from "../../lib/kube/api_transport.ts";
import type { KubeAuth } from "../../lib/kube/kube_auth.ts";
import type { ReflectorTiming } from "../../lib/kube/reflector.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { eventually } from "../support/eventually.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { RecordingInformers } from "../support/fakes/recording_informers.ts";

/** The options of a {@linkcode Follower}. */
export interface FollowerOptions {
  readonly auth: KubeAuth;
  readonly nodeName?: string;
  /** Whether to try streaming lists first. @default {true} */
  readonly streamingLists?: boolean;
  /** Whether Endpoints are followed besides EndpointSlices. @default {false} */
  readonly endpointsFallback?: boolean;
  /** Whether objects may come in protobuf. @default {true} */
  readonly protobuf?: boolean;
  readonly timing?: TransportTiming & ReflectorTiming;
}

/** Short enough for tests, long enough for a machine that is busy. */
const TIMING: TransportTiming & ReflectorTiming = {
  backoff: { initialMs: 50, maxMs: 500 },
  pingAfterMs: 500,
  pingTimeoutMs: 500,
};

/** Follows a server from its making until it is disposed of. */
export class Follower implements AsyncDisposable {
  readonly logger = new MemoryLogger();
  readonly informers: RecordingInformers;
  readonly #abort = new AbortController();
  readonly #source;
  readonly #running: Promise<void>;

  constructor(
    { auth, nodeName, streamingLists, protobuf, endpointsFallback = false, timing }:
      FollowerOptions,
  ) {
    this.informers = new RecordingInformers({
      nodeName: nodeName ?? "no-node",
      endpointsFallback,
      words: { add: "add ", update: "update ", delete: "delete " },
    });
    this.#source = new ApiSource(
      { clock: systemClock, logger: this.logger, auth, random: Math.random },
      {
        informers: this.informers.set,
        timing: { ...TIMING, ...timing },
        ...(streamingLists !== undefined && { streamingLists }),
        ...(protobuf !== undefined && { protobuf }),
      },
    );
    this.#running = this.#source.run(this.#abort.signal);
  }

  /** `add Service default/web` and the like, in order. */
  get events(): string[] {
    return this.informers.events;
  }

  get status(): ApiSourceStatus {
    return this.#source.status();
  }

  /** Returns the status of a followed kind. */
  following(kind: string): FollowedResource | undefined {
    return this.status.resources.find((resource) => resource.kind === kind);
  }

  /** Waits until every kind has been listed once. */
  async synced(options?: { readonly deadlineMs?: number }): Promise<this> {
    await eventually(
      "every kind has been listed",
      () => this.informers.set.synced(),
      options,
    );
    return this;
  }

  /** Waits until the Service of this name has the address; `undefined`: until it is deleted. */
  async sees(
    name: string,
    clusterIp: string | undefined,
    options?: { readonly deadlineMs?: number },
  ): Promise<void> {
    await eventually(
      `Service '${name}' has the address ${clusterIp}`,
      () => this.informers.services.get(`default/${name}`)?.spec.clusterIP === clusterIp,
      options,
    );
  }

  /** Waits until some log line has this message. */
  async logs(message: string): Promise<void> {
    await eventually(
      `the log says '${message}'`,
      () => this.logger.lines.some((line) => line.message === message),
    );
  }

  /**
   * Waits until following Services has failed with a message in which this stands. The log is asked
   * too: the next failure, which may say something else, can come before anybody looks.
   */
  async fails(part: string): Promise<void> {
    await eventually(
      `following Services fails with '…${part}…'`,
      () =>
        this.following("Service")?.lastError?.includes(part) ||
        this.logger.lines.some(({ fields }) => String(fields.error ?? "").includes(part)),
    );
  }

  /** Waits until the server has refused these kinds. */
  async refused(...kinds: readonly string[]): Promise<void> {
    await eventually(
      `${kinds} are refused`,
      () => kinds.every((kind) => this.following(kind)?.lastError?.includes("403")),
    );
  }

  /** Waits until these kinds are watched. */
  async watches(...kinds: readonly string[]): Promise<void> {
    await eventually(
      `${kinds} are watched`,
      () => kinds.every((kind) => this.following(kind)?.phase === "watching"),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#abort.abort();
    await this.#running;
  }
}
