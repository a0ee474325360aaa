/**
 * Collects what is wrong with one object while it is read.
 *
 * @module
 */
import type { ObjectProblem } from "./problem.ts";

/** Problems of one object that are told; each may be a line of the log. */
const MOST_PROBLEMS = 20;
/** A value longer than this is cut: a log line has to stay one line. */
const MAX_VALUE_LENGTH = 80;

/** Shared: nearly every object has none, and ten thousand lists of nothing add up. */
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

  /** What was reported so far. */
  get problems(): readonly ObjectProblem[] {
    return this.#problems;
  }

  /** Adds one problem; the first of an object are kept. `message` is a constant sentence: what follows from it and what would be right. */
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
