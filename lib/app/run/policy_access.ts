/**
 * Whether the API server lets kube-relay read what NetworkPolicy needs. The identity of kube-proxy,
 * which is enough for Services, may not read pods.
 *
 * @module
 */
import type { KindSpec } from "../../api/kind.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import { POD } from "../../api/kinds/pod.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import {
  clusterRoleYaml,
  describeAccess,
  type ResourceAccess,
  reviewAccess,
} from "../../kube/access_review.ts";
import { ApiError } from "../../kube/api_error.ts";
import { Backoff } from "../../kube/backoff.ts";
import type { KubeClient } from "../../kube/client.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import type { Clock } from "../../os/clock.ts";
import type { StatusSource } from "../status/status_report.ts";

/** The kinds that NetworkPolicy is made of. */
export const POLICY_KINDS: readonly KindSpec[] = [POD, NAMESPACE, NETWORK_POLICY];

/** The ClusterRole of `deploy/kubernetes/network-policy-rbac.yaml`. */
export const POLICY_CLUSTER_ROLE = "kube-relay-network-policy";

const NEEDED: readonly ResourceAccess[] = POLICY_KINDS.flatMap(({ group, plural }) =>
  (["list", "watch"] as const).map((verb) => ({ verb, group, plural }))
);

/** What an identity may not do, and how to change that. */
export interface MissingAccess {
  /** As {@linkcode describeAccess} has it. */
  readonly missing: readonly string[];
  /** The ClusterRole that grants it. */
  readonly clusterRole: string;
  readonly cure: string;
}

/** The kubeconfig of the identity that reads policies; empty = the pod's service account. */
export function policyKubeconfigOf(
  { networkPolicy, clientConnection }: Pick<
    KubeProxyConfiguration,
    "networkPolicy" | "clientConnection"
  >,
): string {
  return networkPolicy.kubeconfig || clientConnection.kubeconfig;
}

/** Asks the API server. `undefined`: everything is allowed. Throws as {@linkcode reviewAccess}. */
export async function findMissingAccess(
  client: Pick<KubeClient, "create">,
  signal: AbortSignal,
): Promise<MissingAccess | undefined> {
  const missing = await reviewAccess(client, NEEDED, signal);
  if (missing.length === 0) return undefined;
  return {
    missing: missing.map(describeAccess),
    clusterRole: clusterRoleYaml(POLICY_CLUSTER_ROLE, missing),
    cure: "create this ClusterRole and bind it to the identity of the kubeconfig, or name a " +
      "kubeconfig that has the rights with --policy-kubeconfig",
  };
}

/** A role may be bound at any time; the API server answers six small questions. */
export const RETRY = { initialMs: 5_000, maxMs: 60_000, resetAfterMs: Infinity };

/** Whether the server does not answer such questions, now or later. */
function isFinal(error: ApiError): boolean {
  return !error.isServerError() && !error.isTooManyRequests() && !error.isUnauthorized();
}

/** What {@linkcode PolicyAccess} stands on. */
interface PolicyAccessDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
}

/**
 * Waits for access. Services do not depend on it: without it a run serves them, says in log and status
 * that no NetworkPolicy is enforced, and asks again.
 */
export class PolicyAccess {
  readonly #dependencies: PolicyAccessDependencies;
  #state: StatusSource["state"] = "not asked yet";
  #problems: readonly string[] = [];

  constructor(dependencies: PolicyAccessDependencies) {
    this.#dependencies = dependencies;
  }

  /** A line of `status`, which `doctor` reports too where it has a problem. */
  get status(): StatusSource {
    return { name: "access for NetworkPolicies", state: this.#state, problems: this.#problems };
  }

  /**
   * Resolves when everything may be read, and where the API server does not answer the question: then
   * the watches themselves report what they may not do. Throws the signal's reason when aborted.
   */
  async granted(client: Pick<KubeClient, "create">, signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#dependencies;
    const backoff = new Backoff(random, RETRY);
    while (!await this.#ask(client, signal)) {
      await clock.sleep(backoff.next(clock.now()), signal);
    }
  }

  /** Returns whether to go on. */
  async #ask(client: Pick<KubeClient, "create">, signal: AbortSignal): Promise<boolean> {
    const { logger } = this.#dependencies;
    try {
      const missing = await findMissingAccess(client, signal);
      if (missing) this.#refuse(missing);
      else {
        const message = "The API server allows reading what NetworkPolicies need";
        if (this.#problems.length > 0) logger.info(message);
        else logger.verbose(2, message);
        [this.#state, this.#problems] = ["granted", []];
      }
      return missing === undefined;
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof ApiError && isFinal(error)) {
        logger.info("Cannot ask for the rights to read NetworkPolicies; trying to read them", {
          error,
        });
        [this.#state, this.#problems] = ["unknown", []];
        return true;
      }
      // The source of Services logs that the API server is out of reach.
      logger.verbose(2, "Cannot ask for the rights to read NetworkPolicies; will ask again", {
        error,
      });
      this.#state = `not answered: ${messageOf(error)}`;
      return false;
    }
  }

  #refuse({ missing, clusterRole, cure }: MissingAccess): void {
    const problem = `no right to ${missing.join(", ")}`;
    this.#state = "missing; no NetworkPolicy is enforced";
    if (this.#problems[0] === problem) return;
    this.#problems = [problem, `missing rule: ${clusterRole}`, cure];
    this.#dependencies.logger.error(
      "NetworkPolicies are NOT enforced: the API server does not let kube-relay read what they " +
        "need; Services work, and it is asked again",
      { missing: missing.join(", "), clusterRole, cure },
    );
  }
}
