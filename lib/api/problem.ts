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

/** Maximum number of reported problems of one object; each may be a log line. */
const MOST_PROBLEMS = 20;
/** Longer values are cut: a log line has to stay one line. */
const MAX_VALUE_LENGTH = 80;

/** Shared: almost every object has no problems, and ten thousand empty lists would add up. */
const NO_PROBLEMS: readonly ObjectProblem[] = [];

/** The problems of one object, in the order in which they were found. */
export class ProblemCollector {
  readonly #kind: string;
  readonly #object: string;
  #problems: readonly ObjectProblem[] = NO_PROBLEMS;

  constructor(kind: string, object: string) {
    this.#kind = kind;
    this.#object = object;
  }

  /** The problems reported so far. */
  get problems(): readonly ObjectProblem[] {
    return this.#problems;
  }

  /**
   * Adds one problem; only the first ones of an object are kept. `message` is a constant sentence:
   * the consequence, and the remedy.
   */
  report(path: string, value: unknown, message: string): void {
    if (this.#problems.length === MOST_PROBLEMS) return;
    const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
    this.#problems = [...this.#problems, {
      kind: this.#kind,
      object: this.#object,
      path,
      value: text.length > MAX_VALUE_LENGTH ? `${text.slice(0, MAX_VALUE_LENGTH)}…` : text,
      message,
    }];
  }
}
