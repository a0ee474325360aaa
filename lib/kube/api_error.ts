/** The fields of the API's `Status` that kube-relay reads. */
interface Status {
  readonly code?: unknown;
  readonly reason?: unknown;
  readonly message?: unknown;
  readonly details?: {
    readonly retryAfterSeconds?: unknown;
    readonly causes?: readonly { readonly reason?: unknown }[] | null;
  } | null;
}

/** Maximum length of a text, which goes into the log and the status. */
const LONGEST_TEXT = 1000;

/** An unsuccessful answer of the API server. Use the predicates; do not match the text. */
export class ApiError extends Error {
  override name = "ApiError";
  /** HTTP status, or `code` of the `Status`. */
  readonly status: number;
  /** `reason` of the `Status`, such as `Expired`. */
  readonly reason: string | undefined;
  /** The time that the client should wait before the next request. */
  readonly retryAfterMs: number | undefined;

  /** `causes` are the reasons of each cause in the `Status`. */
  constructor(
    message: string,
    { status, reason, retryAfterMs }: {
      readonly status: number;
      readonly reason?: string | undefined;
      readonly retryAfterMs?: number | undefined;
    },
    private readonly causes: readonly string[] = [],
  ) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.retryAfterMs = retryAfterMs;
  }

  /** 400: the server does not understand the request, e.g. an unknown field selector. */
  isBadRequest(): boolean {
    return this.status === 400;
  }

  /** 401: the credentials were not accepted. */
  isUnauthorized(): boolean {
    return this.status === 401;
  }

  /** 403: the request is not permitted. */
  isForbidden(): boolean {
    return this.status === 403;
  }

  /** 404: the object or the resource does not exist. */
  isNotFound(): boolean {
    return this.status === 404;
  }

  /** 406 or 415: the server does not answer in the requested media type. */
  isMediaTypeRefused(): boolean {
    return this.status === 406 || this.status === 415;
  }

  /** 410: the requested version is too old; a new list is needed. */
  isGone(): boolean {
    return this.status === 410 || this.reason === "Expired" || this.reason === "Gone";
  }

  /** 429: too many requests. */
  isTooManyRequests(): boolean {
    return this.status === 429;
  }

  /** 500 to 599: the server failed. */
  isServerError(): boolean {
    return this.status >= 500;
  }

  /**
   * The requested version lies in the server's future, as after a restore of etcd from a backup.
   */
  isResourceVersionTooLarge(): boolean {
    // Servers before 1.17 send only the text, no cause.
    return this.causes.includes("ResourceVersionTooLarge") ||
      this.message.includes("Too large resource version");
  }
}

/**
 * Creates an {@linkcode ApiError} from a `Status`, or from any other body that a proxy may have
 * sent. `action` begins the message, e.g. `list services`.
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
  }, (Array.isArray(causes) ? causes : []).map((cause) => cause?.reason));
}
