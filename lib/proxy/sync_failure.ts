/**
 * A sync that failed, by a backend that knows of what kind it was.
 *
 * @module
 */

/** Thrown by `Backend.sync()`; any other error says nothing of the kind of sync. */
export class SyncFailure extends Error {
  override name = "SyncFailure";
  /** Whether everything was compared, or only what changed. */
  readonly full: boolean;

  constructor(message: string, { full, ...options }: ErrorOptions & { readonly full: boolean }) {
    super(message, options);
    this.full = full;
  }
}
