/**
 * The configuration of a run: one whose mode has been chosen.
 *
 * @module
 */
import type { FlagValues } from "../config/flags.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import type { BackendMode } from "../proxy/backend.ts";

/** Everything that was said, and the mode that it came to on this host. */
export type RunConfiguration = LoadedConfiguration & {
  readonly mode: BackendMode;
  /** Flags as they were given. */
  readonly flags: FlagValues;
};
