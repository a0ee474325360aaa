/**
 * A problem with an object, worded so that its author can correct it.
 *
 * @module
 */

/** One value of an object that cannot be used. The rest of the object is still used. */
export interface ObjectProblem {
  /** Kind of the object, e.g. `Service`. */
  readonly kind: string;
  /** `namespace/name` of the object. */
  readonly object: string;
  /** Path of the field, e.g. `spec.externalIPs[1]`. */
  readonly path: string;
  /** The value as found, shortened if long. */
  readonly value: string;
  /** The consequence and the remedy; a constant sentence, so that logs can be grouped. */
  readonly message: string;
}

/** Equal problems have equal texts. */
export function problemText({ kind, object, path, value, message }: ObjectProblem): string {
  return JSON.stringify([kind, object, path, value, message]);
}
