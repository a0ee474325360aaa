/**
 * A log that nothing comes of, for parts whose findings are told by other means.
 *
 * @module
 */
import type { Logger } from "./logger.ts";

const ignore = () => {};

/** Drops every line. */
export const SILENT_LOGGER: Logger = {
  error: ignore,
  warn: ignore,
  info: ignore,
  verbose: ignore,
  enabled: () => false,
  with: () => SILENT_LOGGER,
};
