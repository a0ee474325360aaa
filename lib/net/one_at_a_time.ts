/**
 * Runs tasks one after the other, in the order of requests. A failed task does not stop the next.
 */
export class OneAtATime {
  #last: Promise<unknown> = Promise.resolve();

  /** Resolves or rejects as the task does, once its turn has come. */
  run<T>(task: () => Promise<T>): Promise<T> {
    const result = this.#last.then(task);
    this.#last = result.catch(() => {});
    return result;
  }
}
