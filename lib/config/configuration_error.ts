/** An invalid command line or configuration. The message has one line for each problem. */
export class ConfigurationError extends Error {
  override name = "ConfigurationError";
  constructor(readonly problems: readonly string[]) {
    super(problems.join("\n"));
  }
}
