import { ApiError } from "./api_error.ts";
import { TransportError } from "./transport.ts";
import { KubeAuthError } from "./kube_identity.ts";
import { WatchStreamError } from "./watch_stream.ts";

/** The reaction to a failure. */
type FailureVerdict =
  /** Wait, then watch from the last version; before a first list, list. */
  | "rewatch"
  /** Wait, then list again and compare. */
  | "relist"
  /** This server has no streaming lists: list in pages, at once. */
  | "list in pages"
  /** This server does not know the field selector: retry without it, at once. */
  | "drop field selector"
  /** Continue without these objects, and retry much later. */
  | "unavailable";

/** The circumstances of a failure. */
export interface FailureContext {
  readonly phase: "streaming list" | "paged list" | "watch";
  /** Whether the server may not know the field selector in use. */
  readonly fieldSelectorMayBeUnknown: boolean;
  readonly optionalOn: readonly number[];
  /** Failures since the last event or list, including this one. */
  readonly failuresInARow: number;
}

/** A streaming list that was accepted and not completed. */
export class StalledListError extends Error {
  override name = "StalledListError";
}

/** Lists and watches that ended at once. Repeated immediately, they would be a busy loop. */
export class ShortWatchError extends Error {
  override name = "ShortWatchError";
}

/** After this many successive failures with one version, a new list is made. */
const LONGEST_ROW = 3;

/** Chooses the reaction to a failure. `error` comes from the client. */
export function judgeFailure(error: unknown, context: FailureContext): FailureVerdict {
  if (error instanceof ApiError) return judgeAnswer(error, context);
  if (error instanceof StalledListError) return "list in pages";
  const isBroken = error instanceof TransportError || error instanceof ShortWatchError ||
    error instanceof WatchStreamError || error instanceof KubeAuthError;
  if (!isBroken) return "relist";
  // An unreachable server is unrelated to the version; invalid data at one point may be related.
  const isDoubtful = error instanceof WatchStreamError && context.failuresInARow >= LONGEST_ROW;
  return isDoubtful ? "relist" : "rewatch";
}

function judgeAnswer(error: ApiError, context: FailureContext): FailureVerdict {
  if (context.optionalOn.includes(error.status)) return "unavailable";
  if (error.isBadRequest() && context.fieldSelectorMayBeUnknown) return "drop field selector";
  if (context.phase === "streaming list" && !isPassing(error)) return "list in pages";
  if (error.isGone() || error.isResourceVersionTooLarge()) return "relist";
  if (isPassing(error)) return "rewatch";
  const isDoubtful = !error.isServerError() || context.failuresInARow >= LONGEST_ROW;
  return isDoubtful ? "relist" : "rewatch";
}

/** Whether the answer concerns load or rights, and not the request itself. */
function isPassing(error: ApiError): boolean {
  return error.isTooManyRequests() || error.isUnauthorized() || error.isForbidden() ||
    error.isNotFound() || error.status === 503 || error.status === 504;
}
