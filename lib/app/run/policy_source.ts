/**
 * Pods, namespaces and NetworkPolicies from an API server. A source of its own: what it may not read
 * must not delay Services, and `--policy-kubeconfig` may give it another identity.
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

/** What {@linkcode PolicySource} needs. */
type PolicySourceDependencies = Dependencies & { readonly logger: Logger };

/** What it reads, and where. */
type PolicySourceOptions = Omit<ObjectSourceOptions, "kubeconfig"> & {
  /** Those of policies alone. */
  readonly informers: InformerSet;
};

/** Fills informers once the API server allows it. With `--manifests` the common source does. */
export class PolicySource {
  readonly #dependencies: PolicySourceDependencies;
  readonly #options: PolicySourceOptions;
  readonly #access: PolicyAccess;
  #source: ObjectSource | undefined;
  /** Why the kubeconfig cannot be used. */
  #problem: string | undefined;

  constructor(dependencies: PolicySourceDependencies, options: PolicySourceOptions) {
    this.#dependencies = dependencies;
    this.#options = options;
    this.#access = new PolicyAccess(dependencies);
  }

  /** Until the signal is aborted; resolves then. Nothing that is missing ends it. */
  async run(signal: AbortSignal): Promise<void> {
    const source = this.#source = await this.#open(signal).catch(unlessAborted(signal));
    if (!source) return;
    await this.#access.granted(source.client!, signal).catch(unlessAborted(signal));
    // After an abort too: this closes the connection.
    await source.run(signal);
  }

  /** For `status`: the rights first, then what is followed. */
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
