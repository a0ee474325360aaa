/**
 * Reads pods, namespaces and NetworkPolicies from an API server. It is separate from the source of
 * Services, because missing permissions must not delay Services, and because `--policy-kubeconfig`
 * may name another identity.
 *
 * @module
 */
import { Backoff } from "../../kube/backoff.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import { KubeAuthError } from "../../kube/kube_identity.ts";
import type { Logger } from "../../log/logger.ts";
import type { Dependencies } from "../dependencies.ts";
import type { StatusSource } from "../status/status_report.ts";
import { createApiObjectSource } from "./api_object_source.ts";
import type { ObjectSource, ObjectSourceOptions } from "./object_source.ts";
import { PolicyAccess, policyKubeconfigOf, RETRY } from "./policy_access.ts";

/** The dependencies of {@linkcode PolicySource}. */
type PolicySourceDependencies = Dependencies & { readonly logger: Logger };

/** Options of {@linkcode PolicySource}. */
type PolicySourceOptions = Omit<ObjectSourceOptions, "kubeconfig"> & {
  /** The informers of policies only. */
  readonly informers: InformerSet;
};

/** Fills informers once the API server permits it. Not used with `--manifests`. */
export class PolicySource {
  readonly #dependencies: PolicySourceDependencies;
  readonly #options: PolicySourceOptions;
  readonly #access: PolicyAccess;
  #source: ObjectSource | undefined;
  /** The reason why the kubeconfig cannot be used. */
  #problem: string | undefined;

  constructor(dependencies: PolicySourceDependencies, options: PolicySourceOptions) {
    this.#dependencies = dependencies;
    this.#options = options;
    this.#access = new PolicyAccess(dependencies);
  }

  /** Runs until the signal is aborted, and resolves then. Waits for anything that is missing. */
  async run(signal: AbortSignal): Promise<void> {
    const source = this.#source = await this.#open(signal).catch(unlessAborted(signal));
    if (!source) return;
    await this.#access.granted(source.client!, signal).catch(unlessAborted(signal));
    // Closes the connection, also after an abort.
    await source.run(signal);
  }

  /** Returns the lines of `status`: the permissions first, then the watches. */
  status(): readonly StatusSource[] {
    const problem = this.#problem;
    if (problem === undefined) return [this.#access.status, ...this.#source?.status() ?? []];
    const state = "unusable kubeconfig; no NetworkPolicy is enforced";
    return [{ ...this.#access.status, state, problems: [problem] }];
  }

  /** A kubeconfig may be written later than kube-relay starts. */
  async #open(signal: AbortSignal): Promise<ObjectSource> {
    const { clock, random, logger } = this.#dependencies;
    const kubeconfig = policyKubeconfigOf(this.#options.configuration.proxy);
    const backoff = new Backoff(random, RETRY);
    for (;;) {
      try {
        const source = await createApiObjectSource(this.#dependencies, {
          ...this.#options,
          kubeconfig,
        });
        this.#problem = undefined;
        return source;
      } catch (error) {
        if (!(error instanceof KubeAuthError)) throw error;
        if (this.#problem !== error.message) {
          logger.error(
            "NetworkPolicies are NOT enforced: the kubeconfig for them cannot be used; Services " +
              "work, and it is read again",
            { error },
          );
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
