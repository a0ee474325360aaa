/**
 * The API server of a controller besides that of Services. It is separate from the source of Services,
 * because missing permissions must not delay Services, and because another kubeconfig may name another
 * identity.
 *
 * @module
 */
import { Backoff } from "../../os/backoff.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import type { KubeClient } from "../../kube/client.ts";
import { KubeAuthError } from "../../kube/kube_identity.ts";
import type { Logger } from "../../log/logger.ts";
import type { Dependencies } from "../dependencies.ts";
import type { StatusSource } from "../../engine/controller.ts";
import { createApiObjectSource } from "./api_object_source.ts";
import type { ObjectSource, ObjectSourceOptions, SourceRunOptions } from "./object_source.ts";
import { ControllerAccess, type NeededAccess, RETRY } from "./controller_access.ts";

/** The dependencies of {@linkcode ControllerSource}. */
type ControllerSourceDependencies = Dependencies & { readonly logger: Logger };

/** Options of {@linkcode ControllerSource}. */
type ControllerSourceOptions = Omit<ObjectSourceOptions, "kubeconfig"> & {
  /** The informers of the controller only. */
  readonly informers: InformerSet;
  /** Empty = the pod's service account. */
  readonly kubeconfig: string;
  readonly needed: NeededAccess;
};

/** Options of {@linkcode ControllerSource.run}. */
interface ControllerSourceRunOptions extends SourceRunOptions {
  /** Called once the API server permits everything. */
  readonly onGranted?: (client: KubeClient) => void;
}

/** Fills informers once the API server permits it. Not used with `--manifests`. */
export class ControllerSource {
  readonly #dependencies: ControllerSourceDependencies;
  readonly #options: ControllerSourceOptions;
  readonly #access: ControllerAccess;
  #source: ObjectSource | undefined;
  /** The reason why the kubeconfig cannot be used. */
  #problem: string | undefined;

  constructor(dependencies: ControllerSourceDependencies, options: ControllerSourceOptions) {
    this.#dependencies = dependencies;
    this.#options = options;
    this.#access = new ControllerAccess(dependencies, options.needed);
  }

  /** Runs until the signal is aborted, and resolves then. Waits for anything that is missing. */
  async run(
    signal: AbortSignal,
    { onGranted, ...options }: ControllerSourceRunOptions = {},
  ): Promise<void> {
    const source = this.#source = await this.#open(signal).catch(unlessAborted(signal));
    if (!source) return;
    await this.#access.granted(source.client!, signal).catch(unlessAborted(signal));
    if (!signal.aborted) onGranted?.(source.client!);
    // Closes the connection, also after an abort.
    await source.run(signal, options);
  }

  /** Returns the lines of `status`: the permissions first, then the watches. */
  status(): readonly StatusSource[] {
    const problem = this.#problem;
    if (problem === undefined) return [this.#access.status, ...this.#source?.status() ?? []];
    const state = `unusable kubeconfig; ${this.#options.needed.effect}`;
    return [{ ...this.#access.status, state, problems: [problem] }];
  }

  /** A kubeconfig may be written later than kube-relay starts. */
  async #open(signal: AbortSignal): Promise<ObjectSource> {
    const { clock, random, logger } = this.#dependencies;
    const backoff = new Backoff(random, RETRY);
    for (;;) {
      try {
        const source = await createApiObjectSource(this.#dependencies, this.#options);
        this.#problem = undefined;
        return source;
      } catch (error) {
        if (!(error instanceof KubeAuthError)) throw error;
        if (this.#problem !== error.message) {
          logger.error(this.#options.needed.texts.unusableKubeconfig, { error });
        }
        this.#problem = error.message;
      }
      await clock.sleep(backoff.next(clock.now()), signal);
    }
  }
}

function unlessAborted(signal: AbortSignal): (error: unknown) => undefined {
  return (error) => {
    if (!signal.aborted) throw error;
  };
}
