import type { KubeClient } from "../../kube/client.ts";
import { ApiError } from "../../kube/api_error.ts";
import { answeredInTime } from "../../kube/linked_abort.ts";
import type { Clock } from "../../os/clock.ts";
import { type SecretKey, SecretUnknownError } from "../../routing/bgp_plan.ts";

/** Thousands of nodes may read the same Secret. */
const REREAD_MS = 60_000;
const ANSWER_MS = 5_000;
const NEVER = new AbortController().signal;

/** The data of a Secret, or why there is none. */
interface Answer {
  readonly data?: unknown;
  readonly refusal?: string;
}

/** Reads keys of Secrets of one namespace. Keeps them in memory, and nowhere else. */
export class SecretReader {
  /** Absent until the API server permits what routing needs. */
  client: Pick<KubeClient, "get"> | undefined;
  readonly #clock: Clock;
  readonly #namespace: string;
  readonly #known = new Map<string, Answer & { readonly readAt: number }>();

  constructor(clock: Clock, namespace: string) {
    this.#clock = clock;
    this.#namespace = namespace;
  }

  /**
   * Returns the bytes of a key, at most a minute old, or older while the API server does not answer.
   * Rejects with a {@linkcode SecretUnknownError}, or with an Error if the key is missing or not permitted.
   */
  async read({ name, key }: SecretKey): Promise<Uint8Array> {
    const place = `Secret ${this.#namespace}/${name}`;
    const known = this.#known.get(name);
    let answer: Answer | undefined = known;
    if (!known || this.#clock.now() - known.readAt >= REREAD_MS) {
      try {
        answer = { data: await this.#get(name) };
      } catch (error) {
        const isRefused = error instanceof ApiError && (error.isNotFound() || error.isForbidden());
        if (isRefused) answer = { refusal: error.message };
        else if (!known) throw new SecretUnknownError(`Cannot read ${place} yet`, { cause: error });
      }
      // No answer, or a refusal, is waited for once, not by each peer and each sync.
      this.#known.set(name, { ...answer, readAt: this.#clock.now() });
    }
    const { data, refusal }: Answer = answer ?? {};
    if (refusal !== undefined) throw new Error(`${place}: ${refusal}`);
    const value = typeof data === "object" && data !== null && Object.hasOwn(data, key)
      ? Reflect.get(data, key)
      : undefined;
    if (typeof value !== "string") throw new Error(`${place} has no key '${key}'`);
    return Uint8Array.fromBase64(value);
  }

  async #get(name: string): Promise<unknown> {
    const { client } = this;
    if (!client) throw new Error("there is no connection yet");
    const path = `/api/v1/namespaces/${this.#namespace}/secrets/${name}`;
    const options = { clock: this.#clock, ms: ANSWER_MS, signal: NEVER };
    const secret = await answeredInTime(options, (signal) => client.get(path, signal));
    return (secret as { readonly data?: unknown } | null)?.data;
  }
}
