/**
 * One task at a time.
 *
 * @module
 */

/** Runs tasks one after the other, in the order of asking. A task that fails does not stop the next. */
export class Turns {
  #last: Promise<unknown> = Promise.resolve();

  /** Resolves to the task's result, or rejects with its error, once its turn has come and it is done. */
  take<T>(task: () => Promise<T>): Promise<T> {
    const result = this.#last.then(task);
    this.#last = result.catch(() => {});
    return result;
  }
}
