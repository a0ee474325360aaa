/**
 * The configuration of a run: one whose mode has been chosen.
 *
 * @module
 */
import type { LoadedConfiguration } from "../config/load.ts";
import type { BackendMode } from "../proxy/backend.ts";

/** Everything that was said, and the mode that it came to on this host. */
export type RunConfiguration = LoadedConfiguration & { readonly mode: BackendMode };
