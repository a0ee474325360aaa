/**
 * Damage that another program does to objects of the kernel, as rows of a table.
 *
 * @module
 */

/** One kind of damage. */
export interface DamageRow {
  /** The damage, as a sentence without a full stop; unique among the rows. */
  readonly name: string;
  /** Input for the tool of the mode; `{chain 2}` stands for the handle of a chain's second rule. */
  readonly damage: string;
  /**
   * The expected findings, sorted: `kind object name`, with the Service in brackets if it has one.
   */
  readonly found: readonly string[];
}
