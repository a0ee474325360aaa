/**
 * The source of objects: an API server or a folder of manifests. Never both, because a list of one
 * would delete the objects of the other.
 *
 * @module
 */
import type { LoadedConfiguration } from "../../config/load.ts";
import type { KubeAuth } from "../../kube/kube_auth.ts";
import type { ApiAnswer, KubeClient } from "../../kube/client.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import { formatProblem } from "../../kube/manifests/manifest_problem.ts";
import { FileManifestSource } from "../../kube/manifests/manifests.ts";
import type { Logger } from "../../log/logger.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { KnownHost } from "../../proxy/known_hosts.ts";
import type { Dependencies } from "../dependencies.ts";
import { countText } from "../../tools/status/number_texts.ts";
import type { StatusSource } from "../../tools/status/status_report.ts";
import { createApiObjectSource } from "./api_object_source.ts";

/** A source of objects. */
export interface ObjectSource {
  /** Feeds the informers until the signal is aborted. Rejects only if a restart could help. */
  run(signal: AbortSignal, options?: SourceRunOptions): Promise<void>;
  /** The client of the API server, for events; absent if there is none. */
  readonly client?: KubeClient | undefined;
  /** The state of the source. */
  status(): readonly StatusSource[];
  /** Seconds since a sign of life, by resource; empty for manifests. */
  ages(): ReadonlyMap<string, number>;
  /** Repetitions since the start, by resource; empty for manifests. */
  repetitions(): ReadonlyMap<string, SourceRepetitions>;
}

/** Settings of a run. */
export interface SourceRunOptions {
  /** The client stays connected until this resolves, also after the signal. Must not reject. */
  readonly keepOpen?: Promise<void>;
}

/** Repetitions for one resource. */
interface SourceRepetitions {
  /** Watches that failed. */
  readonly watchFailures: number;
  /** Repeated lists. */
  readonly relists: number;
}

/** Options of a source. */
export interface ObjectSourceOptions {
  readonly configuration: LoadedConfiguration;
  readonly informers: InformerSet;
  /** Another kubeconfig; empty = the service account. @default {that of the configuration} */
  readonly kubeconfig?: string;
  /** The content of the kubeconfig, if it was read before. @default {it is read} */
  readonly auth?: KubeAuth | undefined;
  /** Counts each answer of an API server, and each that did not come. */
  readonly metrics?: { apiAnswered(answer: ApiAnswer): void };
  /** Called with all known addresses of the API server. @default {they are not looked up} */
  readonly onServer?: ((addresses: ReadonlyMap<IpAddress, KnownHost>) => void) | undefined;
}

/** The source that the configuration names. Before it is opened, all answers are empty. */
export class RunSource implements ObjectSource {
  readonly #dependencies: Dependencies & { readonly logger: Logger };
  readonly #options: ObjectSourceOptions;
  readonly #others: Pick<ObjectSource, "status">[] = [];
  #onServer: ObjectSourceOptions["onServer"];
  #opened: ObjectSource | undefined;

  constructor(
    dependencies: Dependencies & { readonly logger: Logger },
    options: ObjectSourceOptions,
  ) {
    this.#dependencies = dependencies;
    this.#options = options;
  }

  /** Opens it. Throws what reading a kubeconfig throws. */
  async open(): Promise<void> {
    const { configuration: { relay } } = this.#options;
    this.#opened = relay.manifests.length > 0
      ? createManifestObjectSource(this.#dependencies, this.#options)
      : await createApiObjectSource(this.#dependencies, {
        ...this.#options,
        ...(this.#onServer && { onServer: this.#onServer }),
      });
  }

  /** Reports the addresses of the API server from now on. Called before it is opened. */
  reportServerTo(onServer: NonNullable<ObjectSourceOptions["onServer"]>): void {
    this.#onServer = onServer;
  }

  get client(): KubeClient | undefined {
    return this.#opened?.client;
  }

  async run(signal: AbortSignal, options?: SourceRunOptions): Promise<void> {
    await this.#opened?.run(signal, options);
  }

  status(): readonly StatusSource[] {
    return [...this.#opened?.status() ?? [], ...this.#others.flatMap((other) => other.status())];
  }

  /** Reports a source of a single controller along with this one. */
  reportWith(other: Pick<ObjectSource, "status">): void {
    this.#others.push(other);
  }

  ages(): ReadonlyMap<string, number> {
    return this.#opened?.ages() ?? new Map();
  }

  repetitions(): ReadonlyMap<string, SourceRepetitions> {
    return this.#opened?.repetitions() ?? new Map();
  }
}

/** Creates the source of manifests. */
function createManifestObjectSource(
  { clock, logger }: Dependencies & { readonly logger: Logger },
  { configuration, informers }: ObjectSourceOptions,
): ObjectSource {
  const paths = configuration.relay.manifests;
  const source = new FileManifestSource({ clock, logger }, { paths, informers });
  return {
    run: (signal) => source.run(signal),
    status() {
      const shown = source.status().map(({ path, objects, problems, stale, unserved }) => ({
        name: path,
        state: `${countText(objects, "object")}${stale ? ", last good state" : ""}` +
          (unserved === undefined ? "" : `; not served: ${unserved}`),
        problems: problems.map(formatProblem),
      }));
      const more = source.filesNotShown;
      if (more === 0) return shown;
      const state = "not shown here; files with problems come first";
      return [...shown, { name: `${more} more files`, state, problems: [] }];
    },
    ages: () => new Map(),
    repetitions: () => new Map(),
  };
}
