/**
 * The configuration of a run: one whose mode and IP families have been chosen.
 *
 * @module
 */
import type { FlagValues } from "../../config/flags.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import type { ModeRequest } from "../../config/mode_request.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";

/** The configuration, and the choices made from it on this host. */
export type RunConfiguration = LoadedConfiguration & {
  readonly mode: BackendMode;
  /** The requested mode. @default the mode itself */
  readonly requestedMode?: ModeRequest;
  readonly families: readonly IpFamily[];
  /** Flags as they were given. */
  readonly flags: FlagValues;
};
