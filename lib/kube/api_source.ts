/**
 * The API server as a source of objects: one connection, one reflector for each subscription.
 *
 * @module
 */
import type { KubeObject } from "../api/kind.ts";
import { SERVICE, type Service } from "../api/kinds/service.ts";
import type { ObjectProblem } from "../api/problem.ts";
import type { Logger } from "../log/logger.ts";
import { RecentTexts } from "../log/recent_texts.ts";
import { formatHostPort } from "../net/port.ts";
import type { Clock } from "../os/clock.ts";
import { whenAborted } from "../os/when_aborted.ts";
import { type ApiAnswer, KubeClient } from "./client.ts";
import { openTransport, type TransportTiming } from "./api_transport.ts";
import type { HttpTransport } from "./transport.ts";
import type { InformerSet, Subscription } from "./informer_set.ts";
import type { KubeAuth, KubeAuthDescription } from "./kube_auth.ts";
import { LinkedAbort } from "./linked_abort.ts";
import {
  Reflector,
  type ReflectorOptions,
  type ReflectorStatus,
  type ReflectorTiming,
} from "./reflector.ts";
import { slimObject } from "./slim.ts";
import { StringTable } from "./string_table.ts";

const CURE = "kube-relay provides that address and cannot depend on it: give the API server's " +
  "own address with --master, or in a kubeconfig";

/** Settings of {@linkcode ApiSource}. */
export interface ApiSourceOptions {
  readonly informers: InformerSet;
  /** Called for each answered or unanswered request. */
  readonly onAnswer?: (answer: ApiAnswer) => void;
  /** Called with the server's address of each new connection with TLS. @default {nothing} */
  readonly onPeer?: (address: string) => void;
  /** Whether to try streaming lists first. @default {true} */
  readonly streamingLists?: boolean;
  /** Whether objects may come in protobuf. @default {true} */
  readonly protobuf?: boolean;
  readonly timing?: TransportTiming & ReflectorTiming;
}

/** State of the source, for `status` and the metrics. */
export interface ApiSourceStatus {
  readonly auth: KubeAuthDescription;
  readonly connected: boolean;
  /** The time of the server's last message, by `Clock.now()`. */
  readonly lastSignOfLifeMs: number | undefined;
  /** The resources that are followed now. */
  readonly resources: readonly FollowedResource[];
  /** The likely reason why the server is unreachable, and the remedy. */
  readonly hint: string | undefined;
}

/** The state of one followed kind. */
export interface FollowedResource extends ReflectorStatus {
  readonly kind: string;
  /** Name of the resource, e.g. `endpointslices`. */
  readonly plural: string;
}

/** Follows one API server. */
export class ApiSource {
  readonly #transport: HttpTransport;
  /** The client for other requests, such as creating Events. */
  readonly client: KubeClient;
  readonly #strings = new StringTable();
  readonly #reflectors = new Map<Subscription, Reflector<KubeObject>>();
  /** Subscriptions that replace another kind, and how to end them. */
  readonly #standIns = new Map<Subscription, LinkedAbort>();
  readonly #standInsDone: Promise<void>[] = [];
  #hintLogged: string | undefined;

  constructor(
    private readonly edges: {
      readonly clock: Clock;
      readonly logger: Logger;
      readonly auth: KubeAuth;
      /** Returns numbers from 0 to just below 1. */
      readonly random: () => number;
    },
    private readonly options: ApiSourceOptions,
  ) {
    const { clock, auth } = edges;
    this.#transport = openTransport(clock, auth, options.timing, (peer) => {
      if (peer !== undefined) options.onPeer?.(peer);
      this.#retryUnavailable();
    });
    this.client = new KubeClient({
      clock,
      auth,
      transport: this.#transport,
      ...(options.onAnswer && { onAnswer: options.onAnswer }),
    });
  }

  /**
   * Fills the informers until the signal is aborted; resolves when everything is closed. The
   * connection also stays until `keepOpen` has settled.
   */
  async run(
    signal: AbortSignal,
    { keepOpen }: { readonly keepOpen?: Promise<void> } = {},
  ): Promise<void> {
    await using _transport = this.#transport;
    const followed = [...this.options.informers].filter(({ options }) => !options.onlyWithout);
    await Promise.all(followed.map((subscription) => this.#follow(subscription, signal)));
    await Promise.all(this.#standInsDone);
    await keepOpen;
  }

  /** Returns the current state. */
  status(): ApiSourceStatus {
    return {
      auth: this.edges.auth.describe(),
      connected: this.#transport.connected,
      lastSignOfLifeMs: this.#transport.lastSignOfLifeMs,
      resources: [...this.#reflectors].map(([{ spec: { kind, plural } }, { status }]) => ({
        kind,
        plural,
        ...status,
      })),
      hint: this.#hint(),
    };
  }

  async #follow(subscription: Subscription, signal: AbortSignal): Promise<void> {
    const { after } = subscription.options;
    if (after) await Promise.race([after, whenAborted(signal)]);
    if (signal.aborted) return;
    const standIns = [...this.options.informers].filter(({ options }) =>
      options.onlyWithout === subscription.spec
    );
    await this.#reflect(subscription, {
      onListed: () => {
        this.#logHint();
        for (const standIn of standIns) this.#endStandIn(standIn);
      },
      onUnavailable: () => {
        if (standIns.length === 0) subscription.informer.markSynced();
        for (const standIn of standIns) this.#standIn(standIn, subscription, signal);
      },
    }, signal);
  }

  async #reflect(
    subscription: Subscription,
    handlers: Pick<ReflectorOptions<KubeObject>, "onListed" | "onUnavailable">,
    signal: AbortSignal,
  ): Promise<void> {
    const { clock, logger, random } = this.edges;
    const { timing, streamingLists, protobuf } = this.options;
    const { spec, informer } = subscription;
    const strings = this.#strings;
    const isKnown = (key: string) => informer.get(key) !== undefined;
    const logged = new RecentTexts({ clock });
    const onProblem = (problem: ObjectProblem) => {
      if (!logged.isNews(JSON.stringify(problem))) return;
      logger.warn("Cannot read an object as the API server sent it", { ...problem });
    };
    const reflector = new Reflector<KubeObject>({ clock, logger, random, client: this.client }, {
      ...handlers,
      subscription,
      slim: (raw) => slimObject(spec, raw, { strings, onProblem, isKnown }),
      onFailure: () => this.#logHint(),
      onRecovered: () => this.#retryUnavailable(),
      // Whether a kind is not answered that the server should have.
      othersFail: () =>
        [...this.#reflectors.values()].some(({ status: { phase, lastError } }) =>
          lastError !== undefined && phase !== "unavailable"
        ),
      ...(timing && { timing }),
      ...(streamingLists !== undefined && { streamingLists }),
      ...(protobuf !== undefined && { protobuf }),
    });
    this.#reflectors.set(subscription, reflector);
    await reflector.run(signal);
  }

  /** A server that answers again may be another one, or may have loaded its rights meanwhile. */
  #retryUnavailable(): void {
    for (const reflector of this.#reflectors.values()) reflector.retryUnavailable();
  }

  /** Follows another kind while the server does not have the requested one. */
  #standIn(standIn: Subscription, { informer }: Subscription, signal: AbortSignal): void {
    if (this.#standIns.has(standIn)) return;
    const abort = new LinkedAbort(signal);
    this.#standIns.set(standIn, abort);
    const ended = this.#reflect(standIn, { onListed: () => informer.markSynced() }, abort.signal);
    this.#standInsDone.push(ended.finally(() => abort[Symbol.dispose]()));
  }

  /** Forgets the objects of a stand-in once the kind itself exists. */
  #endStandIn(standIn: Subscription): void {
    const { spec, options, informer } = standIn;
    this.#standIns.get(standIn)?.abort(
      new Error(`${options.onlyWithout?.kind}s replace ${spec.kind}`),
    );
    this.#standIns.delete(standIn);
    this.#reflectors.delete(standIn);
    informer.replace().finish();
  }

  /** Returns the fault of the server's address and the remedy, or `undefined`. */
  #hint(): string | undefined {
    const { server, source } = this.edges.auth.describe();
    const { hostname, port } = new URL(server);
    const host = hostname.replace(/^\[|\]$/g, "");
    const address = formatHostPort(host, Number(port || 443));
    const services = [...this.options.informers].find(({ spec }) => spec === SERVICE);
    const own = services?.informer.get("default/kubernetes") as Service | undefined;
    if ((own?.spec.clusterIPs ?? [own?.spec.clusterIP]).includes(host)) {
      return `The API server's address ${address} is the ClusterIP of Service default/kubernetes; ${CURE}`;
    }
    // In a pod, KUBERNETES_SERVICE_HOST is that ClusterIP unless the user overrides it.
    const isUnreached = this.#transport.lastSignOfLifeMs === undefined &&
      services !== undefined && this.#reflectors.get(services)?.status.phase === "backoff";
    if (!isUnreached || source !== "in-cluster account") return undefined;
    return `The API server's address ${address} of KUBERNETES_SERVICE_HOST does not answer and ` +
      `looks like a ClusterIP; ${CURE}`;
  }

  #logHint(): void {
    const hint = this.#hint();
    if (hint === undefined || hint === this.#hintLogged) return;
    this.#hintLogged = hint;
    this.edges.logger.warn(
      "The address of the API server may be a Service that needs kube-relay",
      { hint },
    );
  }
}
