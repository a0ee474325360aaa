/**
 * Checks whether the API server permits kube-relay what a controller besides that of Services needs.
 * The identity of kube-proxy suffices for Services only.
 *
 * @module
 */
import {
  clusterRoleYaml,
  describeAccess,
  type ResourceAccess,
  reviewAccess,
} from "../../kube/access_review.ts";
import { ApiError } from "../../kube/api_error.ts";
import { Backoff } from "../../os/backoff.ts";
import type { KubeClient } from "../../kube/client.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import type { Clock } from "../../os/clock.ts";
import type { StatusSource } from "../../engine/controller.ts";

/** The permissions that a controller needs, and the words about them. */
export interface NeededAccess {
  /** Name of the line in `status`. */
  readonly name: string;
  readonly accesses: readonly ResourceAccess[];
  /** Name of the ClusterRole that grants them. */
  readonly clusterRole: string;
  readonly cure: string;
  /** The effect of a missing permission, for `status`. */
  readonly effect: string;
  /** Log messages. */
  readonly texts: {
    readonly granted: string;
    /** The server has no access reviews. */
    readonly unanswerable: string;
    readonly unanswered: string;
    readonly refused: string;
    readonly unusableKubeconfig: string;
  };
}

/** The missing permissions of an identity, and the remedy. */
interface MissingAccess {
  /** The text of {@linkcode describeAccess}. */
  readonly missing: readonly string[];
  /** The ClusterRole that grants it. */
  readonly clusterRole: string;
  readonly cure: string;
}

/** Asks the API server; `undefined` if nothing is missing. Throws as {@linkcode reviewAccess}. */
export async function findMissingAccess(
  client: Pick<KubeClient, "create">,
  { accesses, clusterRole, cure }: Pick<NeededAccess, "accesses" | "clusterRole" | "cure">,
  signal: AbortSignal,
): Promise<MissingAccess | undefined> {
  const missing = await reviewAccess(client, accesses, signal);
  if (missing.length === 0) return undefined;
  return {
    missing: missing.map(describeAccess),
    clusterRole: clusterRoleYaml(clusterRole, missing),
    cure,
  };
}

/** A role may be bound at any time, and six small requests are cheap. */
export const RETRY = { initialMs: 5_000, maxMs: 60_000, resetAfterMs: Infinity };

/** Whether the server does not support access reviews. */
function isFinal(error: ApiError): boolean {
  return !error.isServerError() && !error.isTooManyRequests() && !error.isUnauthorized();
}

/** The dependencies of {@linkcode ControllerAccess}. */
interface ControllerAccessDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
}

/**
 * Waits for access. Services do not depend on it: without access, a run serves them, reports in log
 * and status what does not work, and asks again.
 */
export class ControllerAccess {
  readonly #dependencies: ControllerAccessDependencies;
  readonly #needed: NeededAccess;
  #state: StatusSource["state"] = "not asked yet";
  #problems: readonly string[] = [];

  constructor(dependencies: ControllerAccessDependencies, needed: NeededAccess) {
    this.#dependencies = dependencies;
    this.#needed = needed;
  }

  /** A line of `status`; `doctor` reports it if it has a problem. */
  get status(): StatusSource {
    return { name: this.#needed.name, state: this.#state, problems: this.#problems };
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
    const { texts } = this.#needed;
    try {
      const missing = await findMissingAccess(client, this.#needed, signal);
      if (missing) this.#refuse(missing);
      else {
        if (this.#problems.length > 0) logger.info(texts.granted);
        else logger.verbose(2, texts.granted);
        [this.#state, this.#problems] = ["granted", []];
      }
      return missing === undefined;
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof ApiError && isFinal(error)) {
        logger.info(texts.unanswerable, { error });
        [this.#state, this.#problems] = ["unknown", []];
        return true;
      }
      // The source of Services logs an unreachable API server.
      logger.verbose(2, texts.unanswered, { error });
      this.#state = `not answered: ${messageOf(error)}`;
      return false;
    }
  }

  #refuse({ missing, clusterRole, cure }: MissingAccess): void {
    const problem = `no right to ${missing.join(", ")}`;
    const { effect, texts } = this.#needed;
    this.#state = `missing; ${effect}`;
    if (this.#problems[0] === problem) return;
    this.#problems = [problem, `missing rule: ${clusterRole}`, cure];
    this.#dependencies.logger.error(texts.refused, {
      missing: missing.join(", "),
      clusterRole,
      cure,
    });
  }
}
