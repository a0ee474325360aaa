/**
 * What is found while the configuration is loaded, before there is a log.
 *
 * @module
 */

/** Something to be logged once the log is there: a constant sentence and its fields. */
export interface ConfigurationNotice {
  readonly level: "info" | "warn";
  readonly message: string;
  readonly fields: Readonly<Record<string, string>>;
}
