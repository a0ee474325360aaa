/**
 * What a verb of the command line is.
 *
 * @module
 */
import type { LoadedConfiguration } from "../../config/load.ts";
import type { FlagName, FlagValues } from "../../config/flags.ts";
import type { AdjustableLogger } from "../../log/logger.ts";
import type { Dependencies } from "../dependencies.ts";

/** What a verb is given beside the edges. */
export interface CommandContext {
  readonly flags: FlagValues;
  readonly configuration: LoadedConfiguration;
  readonly logger: AdjustableLogger;
  /** Aborted by SIGINT and SIGTERM. */
  readonly signal: AbortSignal;
}

/** What all verbs have. */
interface Verb {
  readonly name: string;
  /** For `--help`; without a full stop. */
  readonly summary: string;
  /** Command lines for `--help`, of at most 78 letters each. @default {none} */
  readonly examples?: readonly string[];
}

/** A verb that does something, with a configuration that was found to be right. */
export interface ActiveCommand extends Verb {
  /**
   * Flags that are enough for it: with a configuration that is wrong it runs with these alone.
   * @default {a wrong configuration ends it}
   */
  readonly enoughFlags?: readonly FlagName[];
  /** Resolves to the exit code; a rejection is printed and ends with 1. */
  run(dependencies: Dependencies, context: CommandContext): Promise<number>;
}

/** A verb that only tells something, whatever the configuration and the machine are like. */
export interface TellingCommand extends Verb {
  /** What is printed. */
  text(flags: FlagValues): string;
}

/** One verb. */
export type Command = ActiveCommand | TellingCommand;
