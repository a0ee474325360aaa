/**
 * Answers a `SelfSubjectAccessReview` in the fake API server.
 *
 * @module
 */

/** The path at which such reviews are created. */
export const ACCESS_REVIEW_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

interface ReviewRequest {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly spec?: {
    readonly resourceAttributes?: {
      readonly verb?: string;
      readonly group?: string;
      readonly resource?: string;
      readonly version?: string;
    };
  };
}

/**
 * The review with its answer; `undefined` for what is no review. Who is asked by `isForbidden` says
 * whether requests to the path of a collection are refused.
 */
export function answerAccessReview(
  body: string,
  isForbidden: (path: string, verb: string) => boolean,
): object | undefined {
  const review = parsed(body);
  if (review === undefined) return undefined;
  const { verb, group = "", resource, version = "v1" } = review.spec?.resourceAttributes ?? {};
  if (review.kind !== "SelfSubjectAccessReview" || !verb || !resource) return undefined;
  const root = group === "" ? "/api" : `/apis/${group}`;
  const allowed = !isForbidden(`${root}/${version}/${resource}`, verb);
  // A real server omits `denied` unless an authorizer forbids an access that others may still
  // allow.
  return { ...review, status: { allowed, ...(!allowed && { reason: "" }) } };
}

/** A client that goes away leaves a part of its request. */
function parsed(body: string): ReviewRequest | undefined {
  try {
    return JSON.parse(body) as ReviewRequest;
  } catch {
    return undefined;
  }
}
