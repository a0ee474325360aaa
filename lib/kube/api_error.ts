/**
 * What an API server answers instead of what was asked for.
 *
 * @module
 */

/** A `Status` object of the API, as far as it is read. */
interface Status {
  readonly code?: unknown;
  readonly reason?: unknown;
  readonly message?: unknown;
  readonly details?: {
    readonly retryAfterSeconds?: unknown;
    readonly causes?: readonly { readonly reason?: unknown }[] | null;
  } | null;
}

/** What {@linkcode ApiError} keeps of an answer. */
interface ApiErrorDetails {
  /** HTTP status, or `code` of the `Status`. */
  readonly status: number;
  /** `reason` of the `Status`, such as `Expired`. */
  readonly reason?: string | undefined;
  /** How long the server asks to be left alone. */
  readonly retryAfterMs?: number | undefined;
  /** `reason` of each cause in the `Status`. */
  readonly causes?: readonly string[] | undefined;
}

/** Most characters of a text that are kept: it goes into the log and the status. */
const LONGEST_TEXT = 1000;

/** An answer of the API server that is no success. Ask the predicates; don't match its text. */
export class ApiError extends Error {
  override name = "ApiError";
  readonly status: number;
  readonly reason: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly #causes: readonly string[];

  constructor(message: string, details: ApiErrorDetails) {
    super(message);
    this.status = details.status;
    this.reason = details.reason;
    this.retryAfterMs = details.retryAfterMs;
    this.#causes = details.causes ?? [];
  }

  /** 400: the server doesn't understand the request, e.g. a field selector that it doesn't know. */
  isBadRequest(): boolean {
    return this.status === 400;
  }

  /** 401: who we are was not accepted. */
  isUnauthorized(): boolean {
    return this.status === 401;
  }

  /** 403: we may not do this. */
  isForbidden(): boolean {
    return this.status === 403;
  }

  /** 404: there is no such object, or no such resource. */
  isNotFound(): boolean {
    return this.status === 404;
  }

  /** 409 of a create: it is there already. */
  isAlreadyExists(): boolean {
    return this.status === 409 && this.reason === "AlreadyExists";
  }

  /** 410: the version asked for is no longer known; only a new list helps. */
  isGone(): boolean {
    return this.status === 410 || this.reason === "Expired" || this.reason === "Gone";
  }

  /** 422: the request is understood and not allowed, e.g. a streaming list on an older server. */
  isInvalid(): boolean {
    return this.status === 422;
  }

  /** 429: too many requests. */
  isTooManyRequests(): boolean {
    return this.status === 429;
  }

  /** 500 to 599: the server has trouble of its own. */
  isServerError(): boolean {
    return this.status >= 500;
  }

  /** The version asked for lies in the server's future, as after etcd was restored from a backup. */
  isResourceVersionTooLarge(): boolean {
    // Servers before 1.17 send no cause, only the text.
    return this.#causes.includes("ResourceVersionTooLarge") ||
      this.message.includes("Too large resource version");
  }
}

/**
 * Makes an {@linkcode ApiError} of a `Status`, or of anything else that a proxy in between may have sent.
 * `action` begins the message, e.g. `list services`.
 */
export function apiErrorFromStatus(
  raw: unknown,
  { action, httpStatus, retryAfterMs }: {
    readonly action: string;
    /** @default {500} */
    readonly httpStatus?: number;
    readonly retryAfterMs?: number | undefined;
  },
): ApiError {
  const status: Status = typeof raw === "object" && raw !== null ? raw : {};
  const code = typeof status.code === "number" ? status.code : httpStatus ?? 500;
  const reason = typeof status.reason === "string"
    ? status.reason.slice(0, LONGEST_TEXT)
    : undefined;
  const text = typeof status.message === "string" && status.message !== ""
    ? status.message.slice(0, LONGEST_TEXT)
    : typeof raw === "string" && raw.trim() !== ""
    ? raw.trim().slice(0, 200)
    : "no reason given";
  const seconds = status.details?.retryAfterSeconds;
  const causes = status.details?.causes ?? [];
  return new ApiError(`Cannot ${action}: ${code} ${reason ?? ""}: ${text}`.replace(" :", ":"), {
    status: code,
    reason,
    retryAfterMs: retryAfterMs ??
      (typeof seconds === "number" && seconds > 0 ? seconds * 1000 : undefined),
    causes: Array.isArray(causes)
      ? causes.map((cause) => cause?.reason).filter((reason) => typeof reason === "string")
      : [],
  });
}
