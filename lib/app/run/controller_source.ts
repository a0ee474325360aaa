/**
 * The API server of a controller besides that of Services. It is separate from the source of Services,
 * because missing permissions must not delay Services, and because another kubeconfig may name another
 * identity: that of kube-proxy suffices for Services only.
 *
 * @module
 */
import type { LoadedConfiguration } from "../../config/load.ts";
import type { StatusSource } from "../../engine/controller.ts";
import {
  clusterRoleYaml,
  describeAccess,
  type ResourceAccess,
  reviewAccess,
} from "../../kube/access_review.ts";
import { ApiError } from "../../kube/api_error.ts";
import type { KubeClient } from "../../kube/client.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import { KubeAuthError } from "../../kube/kube_auth.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { Backoff } from "../../os/backoff.ts";
import type { Dependencies } from "../dependencies.ts";
import { createApiObjectSource, loadConfiguredAuth, type ObjectSource } from "./object_source.ts";

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

/** Asks which permissions are missing; `undefined` if none is. Throws as {@linkcode reviewAccess}. */
export async function findMissingAccess(
  client: Pick<KubeClient, "create">,
  { accesses, clusterRole, cure }: Pick<NeededAccess, "accesses" | "clusterRole" | "cure">,
  signal: AbortSignal,
): Promise<
  | { readonly missing: readonly string[]; readonly clusterRole: string; readonly cure: string }
  | undefined
> {
  const missing = await reviewAccess(client, accesses, signal);
  if (missing.length === 0) return undefined;
  const role = clusterRoleYaml(clusterRole, missing);
  return { missing: missing.map(describeAccess), clusterRole: role, cure };
}

/** A kubeconfig may be written later, a role be bound at any time, and six small requests are cheap. */
const RETRY = { initialMs: 5_000, maxMs: 60_000, resetAfterMs: Infinity };

/**
 * Fills informers once there is a usable kubeconfig and the API server permits everything. Until then it
 * reports in log and status what does not work, and asks again. Not used with `--manifests`.
 */
export class ControllerSource {
  readonly #dependencies: Dependencies & { readonly logger: Logger };
  readonly #configuration: LoadedConfiguration;
  readonly #kubeconfig: string;
  readonly #informers: InformerSet;
  readonly #needed: NeededAccess;
  #source: ObjectSource | undefined;
  #state: StatusSource["state"] = "not asked yet";
  #problems: readonly string[] = [];

  /** `kubeconfig`: empty = that of Services. */
  constructor(
    dependencies: Dependencies & { readonly logger: Logger },
    configuration: LoadedConfiguration,
    kubeconfig: string,
    informers: InformerSet,
    needed: NeededAccess,
  ) {
    this.#dependencies = dependencies;
    this.#configuration = configuration;
    this.#kubeconfig = kubeconfig;
    this.#informers = informers;
    this.#needed = needed;
  }

  /**
   * Runs until the signal is aborted, and resolves then. Waits for anything that is missing.
   * `onGranted` is called once the API server permits everything.
   */
  async run(
    signal: AbortSignal,
    { onGranted, ...options }: {
      readonly keepOpen?: Promise<void>;
      readonly onGranted?: (client: KubeClient) => void;
    } = {},
  ): Promise<void> {
    const { clock, random } = this.#dependencies;
    for (const ready of [() => this.#open(), () => this.#mayRead(signal)]) {
      const backoff = new Backoff(random, RETRY);
      while (!signal.aborted && !await ready()) {
        await clock.sleep(backoff.next(clock.now()), signal).catch(() => {});
      }
    }
    if (!signal.aborted) onGranted?.(this.#source!.client!);
    // Closes the connection, also after an abort.
    await this.#source?.run(signal, options);
  }

  /** Returns the lines of `status`: the permissions first, then the watches. */
  status(): readonly StatusSource[] {
    const own = { name: this.#needed.name, state: this.#state, problems: this.#problems };
    return [own, ...this.#source?.status() ?? []];
  }

  /** Returns whether there is a usable kubeconfig. */
  async #open(): Promise<boolean> {
    const [configuration, informers] = [this.#configuration, this.#informers];
    try {
      const auth = await loadConfiguredAuth(this.#dependencies, configuration, this.#kubeconfig);
      const options = { configuration, informers };
      this.#source = createApiObjectSource(this.#dependencies, auth, options);
      this.#set("not asked yet");
      return true;
    } catch (error) {
      if (!(error instanceof KubeAuthError)) throw error;
      const { effect, texts } = this.#needed;
      if (this.#set(`unusable kubeconfig; ${effect}`, [error.message])) {
        this.#dependencies.logger.error(texts.unusableKubeconfig, { error });
      }
      return false;
    }
  }

  /**
   * Returns whether everything may be read; also if the API server does not support access reviews,
   * because the watches then report missing permissions.
   */
  async #mayRead(signal: AbortSignal): Promise<boolean> {
    const { logger } = this.#dependencies;
    const { effect, texts } = this.#needed;
    try {
      const found = await findMissingAccess(this.#source!.client!, this.#needed, signal);
      if (found === undefined) {
        if (this.#problems.length > 0) logger.info(texts.granted);
        else logger.verbose(2, texts.granted);
        this.#set("granted");
        return true;
      }
      const { clusterRole, cure } = found;
      const missing = found.missing.join(", ");
      const problems = [`no right to ${missing}`, `missing rule: ${clusterRole}`, cure];
      if (this.#set(`missing; ${effect}`, problems)) {
        logger.error(texts.refused, { missing, clusterRole, cure });
      }
    } catch (error) {
      if (signal.aborted) return false;
      if (error instanceof ApiError && hasNoReviews(error)) {
        logger.info(texts.unanswerable, { error });
        this.#set("unknown");
        return true;
      }
      // The source of Services logs an unreachable API server.
      logger.verbose(2, texts.unanswered, { error });
      this.#state = `not answered: ${messageOf(error)}`;
    }
    return false;
  }

  /** Returns whether the problem is news. */
  #set(state: string, problems: readonly string[] = []): boolean {
    const isNews = this.#problems[0] !== problems[0];
    this.#state = state;
    this.#problems = problems;
    return isNews;
  }
}

/** Whether the server does not support access reviews. */
function hasNoReviews(error: ApiError): boolean {
  return !error.isServerError() && !error.isTooManyRequests() && !error.isUnauthorized();
}
