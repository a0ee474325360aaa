/**
 * Where objects come from: an API server, or a folder of manifests. One or the other: a list of one
 * would delete what only the other knows.
 *
 * @module
 */
import type { LoadedConfiguration } from "../../config/load.ts";
import type { ApiAnswer, KubeClient } from "../../kube/client.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import { formatProblem } from "../../kube/manifests/manifest_problem.ts";
import { createManifestSource } from "../../kube/manifests/manifests.ts";
import type { Logger } from "../../log/logger.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { Dependencies } from "../dependencies.ts";
import type { StatusSource } from "../status/status_report.ts";
import { createApiObjectSource } from "./api_object_source.ts";

/** A source of objects. */
export interface ObjectSource {
  /** Feeds the informers until the signal is aborted. Rejects only for what a restart could mend. */
  run(signal: AbortSignal, options?: SourceRunOptions): Promise<void>;
  /** The API server, for what has to be told to it; absent where there is none. */
  readonly client?: KubeClient | undefined;
  /** Whose an address is that no Service may take over: what the source itself is reached by. */
  belongsTo(address: IpAddress): string | undefined;
  /** How it is doing. */
  status(): readonly StatusSource[];
  /** Seconds since a sign of life, by resource; empty where there is nothing to be heard of. */
  ages(): ReadonlyMap<string, number>;
  /** What had to be done again since the start, by resource; empty where nothing can break off. */
  repetitions(): ReadonlyMap<string, SourceRepetitions>;
}

/** How long a source runs. */
interface SourceRunOptions {
  /** What {@linkcode ObjectSource.client} is still needed for after the signal. Must not reject. */
  readonly keepOpen?: Promise<void>;
}

/** What had to be done again for one resource. */
interface SourceRepetitions {
  /** Watches that failed. */
  readonly watchFailures: number;
  /** Lists that were read once more. */
  readonly relists: number;
}

/** What a source is made with. */
export interface ObjectSourceOptions {
  readonly configuration: LoadedConfiguration;
  readonly informers: InformerSet;
  /** Another kubeconfig; empty = the service account. @default {that of the configuration} */
  readonly kubeconfig?: string;
  /** Counts each answer of an API server, and each that did not come. */
  readonly metrics?: { apiAnswered(answer: ApiAnswer): void };
}

/** The source that the configuration names. It may be asked before it is opened, and then knows nothing. */
export class RunSource implements ObjectSource {
  readonly #dependencies: Dependencies & { readonly logger: Logger };
  readonly #options: ObjectSourceOptions;
  readonly #others: Pick<ObjectSource, "status">[] = [];
  #opened: ObjectSource | undefined;

  constructor(
    dependencies: Dependencies & { readonly logger: Logger },
    options: ObjectSourceOptions,
  ) {
    this.#dependencies = dependencies;
    this.#options = options;
  }

  /** Throws what reading a kubeconfig throws. */
  async open(): Promise<void> {
    const { configuration: { relay } } = this.#options;
    this.#opened = relay.manifests.length > 0
      ? createManifestObjectSource(this.#dependencies, this.#options)
      : await createApiObjectSource(this.#dependencies, this.#options);
  }

  get client(): KubeClient | undefined {
    return this.#opened?.client;
  }

  async run(signal: AbortSignal, options?: SourceRunOptions): Promise<void> {
    await this.#opened?.run(signal, options);
  }

  belongsTo(address: IpAddress): string | undefined {
    return this.#opened?.belongsTo(address);
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

/** The source. */
function createManifestObjectSource(
  { clock, logger }: Dependencies & { readonly logger: Logger },
  { configuration, informers }: ObjectSourceOptions,
): ObjectSource {
  const paths = configuration.relay.manifests;
  const source = createManifestSource({ clock, logger }, { paths, informers });
  return {
    run: (signal) => source.run(signal),
    status: () =>
      source.status().map(({ path, objects, problems, stale }) => ({
        name: path,
        state: `${objects} objects${stale ? ", last good state" : ""}`,
        problems: problems.map(formatProblem),
      })),
    belongsTo: () => undefined,
    ages: () => new Map(),
    repetitions: () => new Map(),
  };
}
