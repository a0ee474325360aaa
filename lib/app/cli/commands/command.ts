import type { LoadedConfiguration } from "../../../config/load.ts";
import type { FlagName, FlagValues } from "../../../config/flags.ts";
import type { AdjustableLogger } from "../../../log/logger.ts";
import type { TerminationSource } from "../../../os/termination_signals.ts";
import type { Dependencies } from "../../dependencies.ts";

/** What a verb is given beside the edges. */
export interface CommandContext {
  readonly flags: FlagValues;
  /** What stood after the verb, as its {@linkcode Verb.operands} have it. @default {none} */
  readonly operands?: readonly string[];
  readonly configuration: LoadedConfiguration;
  readonly logger: AdjustableLogger;
  /**
   * To be called before something is begun that has to be ended in order: until then SIGINT and SIGTERM
   * end the process at once. A verb that only computes and prints does without.
   */
  readonly endInOrder: TerminationSource;
}

/** Something that has to stand after a verb, in its place. */
export interface Operand {
  /** As help shows it, e.g. `FILE`. */
  readonly name: string;
  /** What it is, for help and for who left it out; without a full stop. */
  readonly help: string;
  /** @default {false} */
  readonly optional?: boolean;
  /** The only words that are right, for completion. */
  readonly choices?: readonly string[];
}

/** What all verbs have. */
interface Verb {
  readonly name: string;
  /** For `--help`; without a full stop. */
  readonly summary: string;
  /** What stands after it, optional ones last. @default {nothing} */
  readonly operands?: readonly Operand[];
  /** Command lines for `--help`, of at most 78 letters each. @default {none} */
  readonly examples?: readonly string[];
  /** For programs, not for people: no help tells of it. */
  readonly hidden?: true;
}

/** A verb that does something, with a configuration that was found to be right. */
export interface ActiveCommand extends Verb {
  /**
   * Flags that are enough for it: with a configuration that is wrong it runs with these alone.
   * @default {a wrong configuration ends it}
   */
  readonly enoughFlags?: readonly FlagName[];
  /** Whether others wait for turns of its event loop. @default {it does one thing and ends} */
  readonly serves?: true;
  /** Resolves to the exit code; a rejection is printed and ends with 1. */
  run(dependencies: Dependencies, context: CommandContext): Promise<number>;
}

/** A verb that only tells something, whatever the configuration and the machine are like. */
export interface TellingCommand extends Verb {
  /** What is printed. */
  text(flags: FlagValues, operands: readonly string[]): string;
}

/** One verb. */
export type Command = ActiveCommand | TellingCommand;
