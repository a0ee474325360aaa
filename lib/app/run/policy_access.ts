/**
 * Checks whether the API server permits kube-relay to read the objects that NetworkPolicy needs.
 * The identity of kube-proxy suffices for Services, but may not read pods.
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

/** The kinds that policies are planned from. */
export const POLICY_KINDS: readonly KindSpec[] = [POD, NAMESPACE, NETWORK_POLICY];

/** The ClusterRole of `deploy/kubernetes/network-policy-rbac.yaml`. */
export const POLICY_CLUSTER_ROLE = "kube-relay-network-policy";

const NEEDED: readonly ResourceAccess[] = POLICY_KINDS.flatMap(({ group, plural }) =>
  (["list", "watch"] as const).map((verb) => ({ verb, group, plural }))
);

/** The missing permissions of an identity, and the remedy. */
interface MissingAccess {
  /** The text of {@linkcode describeAccess}. */
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

/** Asks the API server; `undefined` if nothing is missing. Throws as {@linkcode reviewAccess}. */
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

/** A role may be bound at any time, and six small requests are cheap. */
export const RETRY = { initialMs: 5_000, maxMs: 60_000, resetAfterMs: Infinity };

/** Whether the server does not support access reviews. */
function isFinal(error: ApiError): boolean {
  return !error.isServerError() && !error.isTooManyRequests() && !error.isUnauthorized();
}

/** The dependencies of {@linkcode PolicyAccess}. */
interface PolicyAccessDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
}

/**
 * Waits for access. Services do not depend on it: without access, a run serves them, reports in log
 * and status that no NetworkPolicy is enforced, and asks again.
 */
export class PolicyAccess {
  readonly #dependencies: PolicyAccessDependencies;
  #state: StatusSource["state"] = "not asked yet";
  #problems: readonly string[] = [];

  constructor(dependencies: PolicyAccessDependencies) {
    this.#dependencies = dependencies;
  }

  /** A line of `status`; `doctor` reports it if it has a problem. */
  get status(): StatusSource {
    return { name: "access for NetworkPolicies", state: this.#state, problems: this.#problems };
  }

  /**
   * Resolves when everything may be read. Resolves also if the API server does not support access
   * reviews, because the watches then report missing permissions. Throws the signal's reason when
   * aborted.
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
        const message = "The API server allows reading pods, namespaces and NetworkPolicies";
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
      // The source of Services logs an unreachable API server.
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
      "NetworkPolicies are NOT enforced: the API server does not let kube-relay read pods, " +
        "namespaces or NetworkPolicies; Services work, and the request is repeated",
      { missing: missing.join(", "), clusterRole, cure },
    );
  }
}
