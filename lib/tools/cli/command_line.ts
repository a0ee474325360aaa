import { findFlag, type FlagValues } from "../../config/flags.ts";
import { ConfigurationError } from "../../config/configuration_error.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { didYouMean } from "../../api/nearest_name.ts";
import { givenFlags, parseFlags } from "../../config/parse_flags.ts";
import { objectSourceConflicts } from "../../config/relay_options.ts";
import { messageOf } from "../../log/message_of.ts";
import { printableColors, printableLines } from "../../log/printable_text.ts";
import type { Clock } from "../../os/clock.ts";
import { TerminationRequest, type TerminationSource } from "../../os/termination_signals.ts";
import type { Machine, VerbEdges } from "../../app/run/run_tools.ts";
import type { Verb } from "./commands/command.ts";
import { VERBS } from "./verbs.ts";

/**
 * Chooses the verb and the exit code: 0 success, 1 failure, 2 wrong command line or configuration, 130
 * or 143 after a signal.
 */

const DONE = 0;
/** Exit code for a wrong command line or configuration. */
const WRONG_USE = 2;
const FAILED = 1;
/** The name under which kubectl starts a plugin. */
const PLUGIN = "kubectl-kube_relay";

/** Runs the verb of a command line and resolves to the exit code. Never rejects. */
export async function runCommandLine(
  { loadAll, ...machine }: Machine,
  argv: readonly string[],
  endInOrder: TerminationSource,
): Promise<number> {
  const { print, complain, process } = machine;
  // Flags, files, objects and tools may contain any text, which must not control the terminal. Output to
  // a program or a file stays unchanged.
  const edges: VerbEdges = {
    ...machine,
    print: process.stdoutIsTerminal ? (text) => print(printableColors(text)) : print,
    complain: (text) => complain(printableLines(text)),
  };
  let isJson = false;
  let ending: AbortSignal | undefined;
  try {
    const { command, flags, operands } = chooseCommand(argv, process.env("KUBE_RELAY_NAME"));
    if (command.text) {
      edges.print(await command.text(flags, operands));
      return DONE;
    }
    const configuration = await loadFor(edges, { command, flags });
    isJson = configuration.proxy.logging.format === "json";
    const { createLogger, logsToJournal } = await import("./asking_verbs.ts");
    const logger = createLogger({
      format: isJson ? "json" : "text",
      verbosity: configuration.proxy.logging.verbosity,
      vmodule: configuration.proxy.logging.vmodule,
      journal: await logsToJournal(process.env),
    });
    const clock = command.serves ? machine.clock : seldomYielding(machine.clock);
    const context = {
      ...{ flags, operands, configuration, logger },
      endInOrder: () => ending ??= endInOrder(),
    };
    const own = { ...edges, clock };
    const loadAlso = async () => ({ ...await loadAll(), ...own });
    const code = await command.run!({ ...own, loadAll: loadAlso }, context);
    return command.serves ? code : endedCode(code, ending);
  } catch (error) {
    return endedCode(await explain(edges, { error, isJson }), ending);
  }
}

/** The exit code of a verb that a signal may have interrupted. */
function endedCode(code: number, ending: AbortSignal | undefined): number {
  const reason: unknown = ending?.reason;
  return code !== DONE && reason instanceof TerminationRequest ? reason.exitCode : code;
}

function chooseCommand(argv: readonly string[], program: string | undefined): {
  readonly command: Verb;
  readonly flags: FlagValues;
  readonly operands: readonly string[];
} {
  const { values, positionals, problems } = parseFlags(argv);
  const [verb, ...rest] = positionals;
  const all = [...problems];
  const names = VERBS.map(({ name }) => name);
  const wanted = values.help ? "help" : verb ?? verbOf(values);
  const found = VERBS.find(({ name }) => name === wanted);
  // `VERB --help` with an unknown verb prints the whole help, as kube-proxy does.
  const named = verb === "help" ? rest : found ? [] : positionals.slice(0, 1);
  const unknown = named.find((name) => !names.includes(name));
  if (unknown !== undefined) all.push(`Unknown command '${unknown}'${didYouMean(unknown, names)}`);
  if (wanted !== "help") {
    if (found) all.push(...operandProblems(rest, found, values));
    for (const name of givenFlags(values)) {
      const { verbs } = findFlag(name)!;
      if (verbs === undefined || verbs.includes(wanted)) continue;
      all.push(`Flag --${name} belongs to '${verbs.join("', '")}', not to '${wanted}'`);
    }
    if (wanted === "run" && program === PLUGIN) {
      all.push(
        "A plugin of kubectl does not serve: name a verb, such as 'status --cluster', 'explain' or 'help'",
      );
    }
    // `diff` compares both.
    if (wanted !== "diff") all.push(...objectSourceConflicts(values));
  }
  if (!found || all.length > 0) throw new ConfigurationError(all);
  // `VERB --help` is `help VERB`.
  const operands = values.help && verb !== undefined && verb !== "help" ? [verb] : rest;
  const { replacesOperands: flag, operandsAreFlag } = found;
  const flags = operandsAreFlag && rest.length > 0 ? { ...values, [flag!]: rest } : values;
  return { command: found, flags, operands };
}

/** Missing and extra arguments after the verb. */
function operandProblems(
  given: readonly string[],
  { name: verb, operands: all = [], replacesOperands: flag }: Verb,
  values: FlagValues,
): readonly string[] {
  const operands = flag !== undefined && values[flag] !== undefined ? [] : all;
  const missing = operands.slice(given.length).filter(({ optional = false }) => !optional);
  const extra = operands.at(-1)?.many ? [] : given.slice(operands.length);
  return [
    ...missing.map(({ name, help }) => `'${verb}' lacks ${name}: ${help}`),
    ...extra.map((text) => `Unexpected argument '${text}'; flags begin with --`),
  ];
}

/** The verb of flags that stand for one, as in kube-proxy. */
function verbOf({ version, cleanup, "write-config-to": file }: FlagValues): string {
  // A version such as v1.36.0 replaces only the one that kube-proxy reports.
  if (version === "true" || version === "raw") return "version";
  if (file !== undefined) return "write-config";
  return cleanup ? "cleanup" : "run";
}

/** Loads the configuration. An invalid one is an error unless the verb works without. */
async function loadFor(
  edges: VerbEdges,
  { command, flags }: { readonly command: Verb; readonly flags: FlagValues },
): Promise<LoadedConfiguration> {
  const { "proxy-mode": mode = "", ...others } = flags;
  try {
    return await load(edges, command.ownModes?.includes(mode) ? others : flags);
  } catch (error) {
    const { enoughFlags, name } = command;
    if (!(error instanceof ConfigurationError) || enoughFlags === undefined) throw error;
    for (const problem of error.problems) edges.complain(`kube-relay: ${problem}\n`);
    edges.complain(`kube-relay: continuing '${name}' without the configuration\n`);
    const enough = enoughFlags.map((flag) => [flag, flags[flag]] as const);
    const given = enough.filter(([, value]) => value !== undefined);
    return await load(edges, Object.fromEntries(given));
  }
}

async function load({ process }: VerbEdges, flags: FlagValues): Promise<LoadedConfiguration> {
  const { loadConfiguration } = await import("./asking_verbs.ts");
  return await loadConfiguration(process, { flags });
}

async function explain(
  { complain }: VerbEdges,
  { error, isJson }: { readonly error: unknown; readonly isJson: boolean },
): Promise<number> {
  if (error instanceof ConfigurationError) {
    for (const problem of error.problems) complain(`kube-relay: ${problem}\n`);
    complain("kube-relay: see --help\n");
    return WRONG_USE;
  }
  // A collector of JSON lines would lose a line of text, and with it the error.
  if (isJson) {
    const { createLogger } = await import("./asking_verbs.ts");
    const sink = (line: string) => complain(`${line}\n`);
    createLogger({ format: "json", verbosity: 0, sink })
      .error("Command failed", { error: messageOf(error) });
  } else complain(`kube-relay: ${messageOf(error)}\n`);
  return FAILED;
}

/** Only signals wait for a turn of the event loop, and each turn costs a millisecond of idle time. */
const SLICE_MS = 50;

/** For a verb that does one thing and ends: skips turns of the event loop within 50 ms of the last one. */
export function seldomYielding(clock: Clock): Clock {
  let sliceStart = clock.now();
  const yieldSeldom = async () => {
    if (clock.now() - sliceStart < SLICE_MS) return;
    await clock.yieldToEventLoop();
    sliceStart = clock.now();
  };
  return {
    now: () => clock.now(),
    wallNow: () => clock.wallNow(),
    setTimer: (ms, callback) => clock.setTimer(ms, callback),
    sleep: (ms, signal) => clock.sleep(ms, signal),
    yieldToEventLoop: yieldSeldom,
    nextTurn: yieldSeldom,
  };
}
