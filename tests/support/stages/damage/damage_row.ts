/**
 * What is done to objects of the kernel behind the back of who wrote them, as rows of a table.
 *
 * @module
 */

/** One kind of damage. */
export interface DamageRow {
  /** What is done, as a sentence without a full stop; what tells rows apart. */
  readonly name: string;
  /** Input for the tool of the mode; `{chain 2}` stands for the handle of a chain's second rule. */
  readonly damage: string;
  /** What has to be found, sorted: `kind object name`, with the Service in brackets where it has one. */
  readonly found: readonly string[];
}
