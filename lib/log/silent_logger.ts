import type { Logger } from "./logger.ts";

const ignore = () => {};

/** Drops every line, for parts that report their findings in another form. */
export const SILENT_LOGGER: Logger = {
  error: ignore,
  warn: ignore,
  info: ignore,
  verbose: ignore,
  enabled: () => false,
  with: () => SILENT_LOGGER,
};
