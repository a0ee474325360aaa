/**
 * The source of objects: an API server or a folder of manifests. Never both, because a list of one
 * would delete the objects of the other.
 *
 * @module
 */
import type { KubeClient } from "../../kube/client.ts";
import { formatProblem } from "../../kube/manifests/manifest_problem.ts";
import { FileManifestSource } from "../../kube/manifests/manifests.ts";
import { countText } from "../../log/count_text.ts";
import type { Logger } from "../../log/logger.ts";
import type { StatusSource } from "../../engine/controller.ts";
import type { Dependencies } from "../dependencies.ts";
import { createApiObjectSource } from "./api_object_source.ts";
import type {
  ObjectSource,
  ObjectSourceOptions,
  SourceRepetitions,
  SourceRunOptions,
} from "./object_source.ts";

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
