/**
 * The API server as a source of objects: one connection, one reflector for each kind.
 *
 * @module
 */
import type { KubeKinds } from "../api/objects.ts";
import type { Logger } from "../log/logger.ts";
import { RecentTexts } from "../log/recent_texts.ts";
import type { Clock } from "../os/clock.ts";
import type { ObjectProblem } from "../proxy/problem.ts";
import { apiAddressHint } from "./api_address_hint.ts";
import { type ApiAnswer, KubeClient } from "./client.ts";
import { Http1Transport } from "./http1_transport.ts";
import { Http2Transport } from "./http2_transport.ts";
import type { HttpTransport, TransportTiming } from "./http_transport.ts";
import type { Informers } from "./informer.ts";
import type { KubeAuth, KubeAuthDescription } from "./kube_auth.ts";
import { LinkedAbort } from "./linked_abort.ts";
import { Reflector, type ReflectorOptions } from "./reflector.ts";
import type { ReflectorStatus } from "./reflector_progress.ts";
import type { ReflectorTiming } from "./reflector_timing.ts";
import {
  ENDPOINT_SLICES,
  ENDPOINTS,
  type KubeResource,
  nodeResource,
  SERVICE_CIDRS,
  SERVICES,
} from "./resources.ts";
import { slimObject } from "./slim.ts";
import { StringTable } from "./string_table.ts";

/** What {@linkcode ApiSource} stands on. */
interface ApiSourceDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly auth: KubeAuth;
  /** Gives numbers from 0 to just below 1. */
  readonly random: () => number;
}

/** Settings of {@linkcode ApiSource}. */
export interface ApiSourceOptions {
  readonly informers: Informers;
  /** Called for each answer of the server, and for each that did not come. */
  readonly onAnswer?: (answer: ApiAnswer) => void;
  /** Name of the own Node; without it no Node is read. */
  readonly nodeName: string | undefined;
  /** Whether to try streaming lists first. @default {true} */
  readonly streamingLists?: boolean;
  /**
   * Whether Endpoints are followed beside EndpointSlices, for Services that have no slice. A server
   * without EndpointSlices is served by its Endpoints in any case. @default {false}
   */
  readonly endpointsFallback?: boolean;
  readonly timing?: TransportTiming & ReflectorTiming;
}

/** State of the source, for `status` and the metrics. */
export interface ApiSourceStatus {
  readonly auth: KubeAuthDescription;
  readonly connected: boolean;
  /** When the server last sent anything, in the time of `Clock.now()`. */
  readonly lastSignOfLifeMs: number | undefined;
  /** By kind; Endpoints only while they stand in for EndpointSlices. */
  readonly resources: Readonly<Partial<Record<keyof KubeKinds, ReflectorStatus>>>;
  /** What is wrong with the way to the server, and the cure. */
  readonly hint: string | undefined;
}

/** Creates the source; nothing is connected before `run()`. */
export function createApiSource(
  dependencies: ApiSourceDependencies,
  options: ApiSourceOptions,
): ApiSource {
  return new ApiSource(dependencies, options);
}

/** Follows one API server. */
export class ApiSource {
  readonly #dependencies: ApiSourceDependencies;
  readonly #options: ApiSourceOptions;
  readonly #transport: HttpTransport;
  readonly #client: KubeClient;
  readonly #strings = new StringTable();
  readonly #reflectors = new Map<keyof KubeKinds, { readonly status: ReflectorStatus }>();
  #fallback: LinkedAbort | undefined;
  #fallbackDone: Promise<void> | undefined;
  #hintLogged: string | undefined;

  constructor(dependencies: ApiSourceDependencies, options: ApiSourceOptions) {
    const { clock, auth } = dependencies;
    this.#dependencies = dependencies;
    this.#options = options;
    this.#transport = new URL(auth.server).protocol === "http:"
      ? new Http1Transport({ clock, server: auth.server }, options.timing)
      : new Http2Transport({ clock, auth }, options.timing);
    this.#client = new KubeClient({
      clock,
      auth,
      transport: this.#transport,
      ...(options.onAnswer && { onAnswer: options.onAnswer }),
    });
  }

  /** For what else is asked of the server, such as creating Events. */
  get client(): KubeClient {
    return this.#client;
  }

  /**
   * Fills the informers until the signal fires; resolves when everything is closed. The connection
   * stays until `keepOpen` has settled, too.
   */
  async run(
    signal: AbortSignal,
    { keepOpen }: { readonly keepOpen?: Promise<void> } = {},
  ): Promise<void> {
    const { services, serviceCidrs, nodes } = this.#options.informers;
    const { nodeName } = this.#options;
    await using _transport = this.#transport;
    const running = [
      this.#reflect(
        { resource: SERVICES, informer: services, onListed: () => this.#tellHint() },
        signal,
      ),
      ...this.#reflectEndpoints(signal),
      this.#reflect({
        resource: SERVICE_CIDRS,
        informer: serviceCidrs,
        onUnavailable: () => serviceCidrs.markSynced(),
      }, signal),
    ];
    if (nodeName === undefined) {
      nodes.markSynced();
    } else {
      const onUnavailable = () => nodes.markSynced();
      const resource = nodeResource(nodeName);
      running.push(this.#reflect({ resource, informer: nodes, onUnavailable }, signal));
    }
    await Promise.all(running);
    await this.#fallbackDone;
    await keepOpen;
  }

  /** What it is doing now. */
  status(): ApiSourceStatus {
    const resources: Partial<Record<keyof KubeKinds, ReflectorStatus>> = {};
    for (const [kind, { status }] of this.#reflectors) resources[kind] = status;
    return {
      auth: this.#dependencies.auth.describe(),
      connected: this.#transport.connected,
      lastSignOfLifeMs: this.#transport.lastSignOfLifeMs,
      resources,
      hint: this.#hint(),
    };
  }

  /** EndpointSlices with Endpoints beside them, or with Endpoints only while there are none. */
  #reflectEndpoints(signal: AbortSignal): readonly Promise<void>[] {
    const { informers: { endpoints, endpointSlices }, endpointsFallback } = this.#options;
    const slices = { resource: ENDPOINT_SLICES, informer: endpointSlices };
    if (!endpointsFallback) {
      const onUnavailable = () => this.#startFallback(signal);
      return [
        this.#reflect({ ...slices, onUnavailable, onListed: () => this.#stopFallback() }, signal),
      ];
    }
    // An identity that may not read Endpoints gets Services with slices, which is most of them.
    const resource = { ...ENDPOINTS, optionalOn: [403] };
    return [
      this.#reflect({ ...slices, onUnavailable: () => endpointSlices.markSynced() }, signal),
      this.#reflect({
        resource,
        informer: endpoints,
        onUnavailable: () => endpoints.markSynced(),
      }, signal),
    ];
  }

  async #reflect<K extends keyof KubeKinds>(
    { resource, ...options }:
      & Pick<ReflectorOptions<KubeKinds[K]>, "informer" | "onListed" | "onUnavailable">
      & { readonly resource: KubeResource<K> },
    signal: AbortSignal,
  ): Promise<void> {
    const { clock, logger, random } = this.#dependencies;
    const { timing, streamingLists } = this.#options;
    const strings = this.#strings;
    const told = new RecentTexts({ clock });
    const onProblem = (problem: ObjectProblem) => {
      if (!told.isNews(JSON.stringify(problem))) return;
      logger.warn("Skipped an object that cannot be parsed", { ...problem });
    };
    const reflector = new Reflector<KubeKinds[K]>({ clock, logger, random, client: this.#client }, {
      ...options,
      resource,
      slim: (raw) => slimObject(resource.kind, raw, { strings, onProblem }),
      onFailure: () => this.#tellHint(),
      ...(timing && { timing }),
      ...(streamingLists !== undefined && { streamingLists }),
    });
    this.#reflectors.set(resource.kind, reflector);
    await reflector.run(signal);
  }

  /** The server has no EndpointSlices: Endpoints stand in for them until it has. */
  #startFallback(signal: AbortSignal): void {
    if (this.#fallback) return;
    const { endpoints, endpointSlices } = this.#options.informers;
    const abort = new LinkedAbort(signal);
    const onListed = () => endpointSlices.markSynced();
    this.#fallback = abort;
    this.#fallbackDone = this.#reflect(
      { resource: ENDPOINTS, informer: endpoints, onListed },
      abort.signal,
    ).finally(() => abort[Symbol.dispose]());
  }

  /** There are EndpointSlices: whatever Endpoints gave is forgotten. */
  #stopFallback(): void {
    this.#fallback?.abort(new Error("EndpointSlices are there"));
    this.#fallback = undefined;
    this.#reflectors.delete("Endpoints");
    this.#options.informers.endpoints.replace().finish();
  }

  #hint(): string | undefined {
    const services = this.#reflectors.get("Service");
    return apiAddressHint({
      auth: this.#dependencies.auth.describe(),
      reached: this.#transport.lastSignOfLifeMs !== undefined,
      failing: services?.status.phase === "backoff",
      kubernetesService: this.#options.informers.services.get("default/kubernetes"),
    });
  }

  #tellHint(): void {
    const hint = this.#hint();
    if (hint === undefined || hint === this.#hintLogged) return;
    this.#hintLogged = hint;
    this.#dependencies.logger.warn(
      "The address of the API server may be a Service that needs kube-relay",
      {
        hint,
      },
    );
  }
}
