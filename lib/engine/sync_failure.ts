/**
 * An error of a failed sync whose kind the backend knows.
 *
 * @module
 */

/** Thrown by `Backend.sync()`; other errors do not state the kind of sync. */
export class SyncFailure extends Error {
  override name = "SyncFailure";
  /** Whether everything was compared, or only the changes. */
  readonly full: boolean;

  constructor(message: string, { full, ...options }: ErrorOptions & { readonly full: boolean }) {
    super(message, options);
    this.full = full;
  }
}
