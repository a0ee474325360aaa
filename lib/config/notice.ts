/** A message to log once the logger exists: a constant sentence and its fields. */
export interface ConfigurationNotice {
  readonly level: "info" | "warn";
  readonly message: string;
  readonly fields: Readonly<Record<string, string>>;
}
