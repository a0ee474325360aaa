/**
 * What a verb of the command line is.
 *
 * @module
 */
import type { LoadedConfiguration } from "../../config/load.ts";
import type { FlagValues } from "../../config/flags.ts";
import type { Logger } from "../../log/logger.ts";
import type { Dependencies } from "../dependencies.ts";

/** What a verb is given beside the edges. */
export interface CommandContext {
  readonly flags: FlagValues;
  readonly configuration: LoadedConfiguration;
  readonly logger: Logger;
  /** Aborted by SIGINT and SIGTERM. */
  readonly signal: AbortSignal;
}

/** One verb. */
export interface Command {
  readonly name: string;
  /** For `--help`; without a full stop. */
  readonly summary: string;
  /** Resolves to the exit code; a rejection is printed and ends with 1. */
  run(dependencies: Dependencies, context: CommandContext): Promise<number>;
}
