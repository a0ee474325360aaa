import type { FlagName, FlagValues } from "../../../config/flags.ts";
import type { LoadedConfiguration } from "../../../config/load.ts";
import type { AdjustableLogger } from "../../../log/logger.ts";
import { printableLines } from "../../../log/printable_text.ts";
import type { TerminationSource } from "../../../os/termination_signals.ts";
import type { Dependencies, ProcessInfo } from "../../../app/dependencies.ts";
import type { Machine } from "../../../app/run/run_tools.ts";
import { paintText, type Report } from "../../report.ts";

/** The parsed command line of a verb. */
export interface CommandContext {
  readonly flags: FlagValues;
  /** The arguments after the verb, as the table of verbs describes them. @default {none} */
  readonly operands?: readonly string[];
  readonly configuration: LoadedConfiguration;
  readonly logger: AdjustableLogger;
  /**
   * Has to be called before any work that needs an orderly end. Until then SIGINT and SIGTERM end the
   * process at once.
   */
  readonly endInOrder: TerminationSource;
}

/** An argument after a verb. */
export interface Operand {
  /** As help shows it, e.g. `FILE`. */
  readonly name: string;
  /** For help and for the error if it is missing; without a full stop. */
  readonly help: string;
  /** @default {false} */
  readonly optional?: boolean;
  /** Whether it may be repeated; only the last one may. @default {false} */
  readonly many?: true;
  /** The only valid words, for completion. */
  readonly choices?: readonly string[];
}

/** What `render` prints in place of the rules of a mode: the text of the BGP daemon, and of pods. */
export const ROUTING_TEXTS = ["bgp", "pod-network"] as const;
export type RoutingText = typeof ROUTING_TEXTS[number];

/** One verb. It has either a text or something to run. */
export interface Verb {
  readonly name: string;
  /** For `--help`; without a full stop. */
  readonly summary: string;
  /** Optional ones last. @default {none} */
  readonly operands?: readonly Operand[];
  /** With this flag it takes no operands. @default {none} */
  readonly replacesOperands?: FlagName;
  /** Whether the operands are the values of {@linkcode replacesOperands}. @default {false} */
  readonly operandsAreFlag?: true;
  /** Command lines for `--help`, of at most 78 characters each. @default {none} */
  readonly examples?: readonly string[];
  /** For programs: help does not list it. */
  readonly hidden?: true;
  /**
   * With an invalid configuration the verb runs with these flags alone.
   * @default {an invalid configuration is an error}
   */
  readonly enoughFlags?: readonly FlagName[];
  /** Values of `--proxy-mode` that are no modes of Services and that only this verb knows. @default {none} */
  readonly ownModes?: readonly string[];
  /** Whether it serves requests, so that its event loop has to stay responsive. */
  readonly serves?: true;
  /** Resolves to the exit code; a rejection is printed and exits with status 1. */
  run?(machine: Machine, context: CommandContext): Promise<number>;
  /** What it prints, whatever the configuration and the machine are. */
  text?(flags: FlagValues, operands: readonly string[]): string | Promise<string>;
}

/** The version of the fields of `--json`: within it, fields are only added. */
const API_VERSION = "kube-relay/v1";

/** Prints an answer as text or, with `--json`, its data without unprintable characters. */
export function printAnswer(
  { print, process }: Pick<Dependencies, "print" | "process">,
  { flags }: Pick<CommandContext, "flags">,
  data: () => object,
  report: () => Report,
): void {
  if (flags.json) {
    const json = JSON.stringify({ apiVersion: API_VERSION, ...data() }, undefined, 2);
    print(printableLines(`${json}\n`));
  } else print(paintText(report(), { columns: process.columns, color: usesColor(process) }));
}

/** Whether to print colors. NO_COLOR counts if it is set and not empty (no-color.org). */
export function usesColor(
  { env, stdoutIsTerminal }: Pick<ProcessInfo, "env" | "stdoutIsTerminal">,
): boolean {
  return stdoutIsTerminal && !env("NO_COLOR") && env("TERM") !== "dumb";
}

/** Logs the warnings about the configuration. What a start assumes concerns only `run`. */
export function logNotices(
  { configuration: { notices }, logger }: Pick<CommandContext, "configuration" | "logger">,
): void {
  for (const { level, message, fields } of notices) {
    if (level === "warn") logger.warn(message, fields);
  }
}

/** Whether flags name a source of objects, so that the running process is not asked. */
export function namesObjects({ manifests, kubeconfig, master }: FlagValues): boolean {
  return [manifests, kubeconfig, master].some((given) => given !== undefined);
}
