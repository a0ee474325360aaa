/**
 * What a reflector does about a failure.
 *
 * @module
 */
import { ApiError } from "./api_error.ts";
import { TransportError } from "./http_transport.ts";
import { KubeAuthError } from "./kube_identity.ts";
import { WatchStreamError } from "./watch_stream.ts";

/** What to do next. */
export type FailureVerdict =
  /** Wait, then watch on from the last version; before a first list, list. */
  | "rewatch"
  /** Wait, then list anew and compare. */
  | "relist"
  /** This server has no streaming lists: list in pages, at once. */
  | "list in pages"
  /** This server doesn't know the field selector: ask without it, at once. */
  | "drop field selector"
  /** Go on without these objects, and ask again much later. */
  | "unavailable";

/** When and with what it failed. */
export interface FailureContext {
  readonly phase: "streaming list" | "paged list" | "watch";
  /** Whether the field selector in use may be unknown to the server. */
  readonly fieldSelectorMayBeUnknown: boolean;
  readonly optionalOn: readonly number[];
  /** Failures since the last event or list, this one included. */
  readonly failuresInARow: number;
}

/** A streaming list that was accepted and then never came to its end. */
export class StalledListError extends Error {
  override name = "StalledListError";
}

/** A watch that ends as soon as it began, again and again, would be a busy loop. */
export class ShortWatchError extends Error {
  override name = "ShortWatchError";
}

/** After so many failures in a row from one version, that version is no longer trusted. */
const LONGEST_ROW = 3;

/** Judges a failure. `error` is what the client threw. */
export function judgeFailure(error: unknown, context: FailureContext): FailureVerdict {
  if (error instanceof ApiError) return judgeAnswer(error, context);
  if (error instanceof StalledListError) return "list in pages";
  const isBroken = error instanceof TransportError || error instanceof ShortWatchError ||
    error instanceof WatchStreamError || error instanceof KubeAuthError;
  if (!isBroken) return "relist";
  // An unreachable server says nothing about the version; garbage at one place might.
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

/** Whether the answer is about load or rights: what was asked for is all right. */
function isPassing(error: ApiError): boolean {
  return error.isTooManyRequests() || error.isUnauthorized() || error.isForbidden() ||
    error.isNotFound() || error.status === 503 || error.status === 504;
}
