/**
 * What is wrong with an object, said so that its author can mend it.
 *
 * @module
 */

/** One value of one object that could not be used. The rest of the object is used all the same. */
export interface ObjectProblem {
  /** Kind of the object, e.g. `Service`. */
  readonly kind: string;
  /** `namespace/name` of the object. */
  readonly object: string;
  /** Path of the field, e.g. `spec.externalIPs[1]`. */
  readonly path: string;
  /** The value as found, shortened where long. */
  readonly value: string;
  /** What follows from it and what would be right; a constant sentence, so that logs can be grouped. */
  readonly message: string;
}

/** Equal problems have equal texts. */
export function problemText({ kind, object, path, value, message }: ObjectProblem): string {
  return JSON.stringify([kind, object, path, value, message]);
}
