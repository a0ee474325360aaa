import type { Machine, VerbEdges } from "../../../app/run/run_tools.ts";
import { ConfigurationError } from "../../../config/configuration_error.ts";
import type { FlagName, FlagValues } from "../../../config/flags.ts";
import { messageOf } from "../../../log/message_of.ts";
import { printableText } from "../../../log/printable_text.ts";
import { changesReport, entryMatches } from "../../changes/changes_view.ts";
import { askControl } from "../../control/control_client.ts";
import { agesAt, matchesFilter, statusAnswer, statusProblems } from "../../status/status_answer.ts";
import {
  answered,
  mostScrolled,
  pressed,
  renderWatch,
  unanswered,
  type WatchModel,
} from "../../status/watch_view.ts";
import { type CommandContext, printAnswer, usesColor } from "./command.ts";

/** Changes that a text has without `--last`. */
const LAST_CHANGES = 20;

/** Prints the Services, the quarantine and the last sync of the running process or of a dump. */
export async function statusVerb(
  machine: Machine,
  context: CommandContext,
): Promise<number> {
  const { flags: { filter = "", from, ...flags }, configuration: { relay } } = context;
  refuseConflicts(context.flags);
  if (flags.cluster) {
    const { printCluster } = await import("../planning_verbs.ts");
    return await printCluster(await machine.loadAll(), context);
  }
  if (flags.watch) return await watch(machine, context);
  if (flags.changes) return await printChanges(machine, context);
  const { report, now } = from === undefined
    ? {
      report: await askControl(relay.controlSocket, "/status"),
      now: machine.clock.wallNow(),
    }
    : await (await import("../planning_verbs.ts")).readDumpedStatus(from);
  const options = { time: agesAt(now), filter };
  const show = flags.problems ? "problems" : flags.all ? "all" : "few";
  const most = show === "few" ? {} : { mostProblems: Infinity };
  const sources = report.sources.filter(({ problems }) => problems.length > 0);
  const shown = flags.problems ? { ...report, sources } : report;
  printAnswer(
    machine,
    context,
    () => ({
      ...report,
      families: report.families.map((family) => ({
        ...family,
        services: family.services.filter(({ name }) => matchesFilter(name, filter)),
      })),
    }),
    () => statusAnswer(shown, { ...options, show, ...most }),
  );
  if (!flags.check) return 0;
  const { families, controllers = [] } = report;
  const names = [
    ...families.flatMap(({ services }) => services.map(({ name }) => name)),
    ...[...families, ...controllers.flatMap((each) => each.families)]
      .flatMap(({ quarantined }) => quarantined.map(({ key }) => key)),
  ];
  if (filter !== "" && !names.some((name) => matchesFilter(name, filter))) {
    machine.complain(`kube-relay: No Service matches '${printableText(filter)}'\n`);
    return 1;
  }
  return statusProblems(report, options).length > 0 ? 1 : 0;
}

/** Flags that have no effect, or another meaning, together with one. */
const CONFLICTS = {
  watch: ["changes", "json", "from", "check", "problems", "all", "last"],
  changes: ["check", "problems", "all"],
  all: ["problems"],
  cluster: ["watch", "changes", "filter", "from", "last"],
} as const satisfies Partial<Record<FlagName, readonly FlagName[]>>;

function refuseConflicts(flags: FlagValues): void {
  const problems = (["watch", "changes", "all", "cluster"] as const).flatMap((name) =>
    !flags[name]
      ? []
      : CONFLICTS[name].filter((other) => flags[other]).map((other) =>
        `Flag --${other} cannot be used with --${name}; leave one of them out`
      )
  );
  if (flags.last !== undefined && !flags.changes && !flags.watch) {
    problems.push("Flag --last needs --changes");
  }
  if (flags.context !== undefined && !flags.cluster) {
    problems.push("Flag --context needs --cluster");
  }
  if (problems.length > 0) throw new ConfigurationError(problems);
}

const PERIOD_MS = 1000;
/** Entries of the change log that can be scrolled through. */
const ENTRIES = 100;

/**
 * Draws the status of a running kube-relay once a second, and continues after its restart. Resolves
 * when the user quits or the terminal closes.
 */
async function watch(
  { clock, process, openTerminal }: VerbEdges,
  { flags, configuration: { relay }, endInOrder }: CommandContext,
): Promise<number> {
  const { filter = "" } = flags;
  if (!process.stdoutIsTerminal || openTerminal === undefined) {
    throw new ConfigurationError([
      "Cannot watch: standard output is no terminal. Use 'status' without --watch to print the " +
      "state once, or with --json for programs",
    ]);
  }
  const signal = endInOrder();
  using terminal = openTerminal();
  const color = usesColor(process);
  const socket = relay.controlSocket;
  let model: WatchModel = { socket, filter, scrolledBy: 0 };
  let drawn = "";
  const ending = new AbortController();
  const ends = AbortSignal.any([signal, terminal.ended, ending.signal]);
  const draw = ({ force }: { readonly force: boolean }) => {
    const lines = renderWatch(model, { size: terminal.size, now: clock.wallNow(), color });
    const text = lines.join("\n");
    if (text !== drawn || force) terminal.draw(lines);
    drawn = text;
  };
  terminal.listen((key) => {
    if (key !== undefined) {
      const next = pressed(model, key);
      if (next === undefined) return ending.abort();
      const view = { size: terminal.size, now: clock.wallNow() };
      model = { ...next, scrolledBy: Math.min(next.scrolledBy, mostScrolled(next, view)) };
    }
    draw({ force: key === undefined });
  });
  draw({ force: true });
  while (!ends.aborted) {
    try {
      const [status, changes] = await Promise.all([
        askControl(socket, "/status", { brief: "" }),
        askControl(socket, "/changes", { last: `${ENTRIES}` }),
      ]);
      model = answered(model, { at: clock.wallNow(), status, changes });
    } catch (error) {
      model = unanswered(model, { reason: messageOf(error), at: clock.wallNow() });
    }
    if (ends.aborted) break;
    draw({ force: false });
    await clock.sleep(PERIOD_MS, ends).catch(() => {});
  }
  return 0;
}

async function printChanges(
  dependencies: VerbEdges,
  context: CommandContext,
): Promise<number> {
  const { flags: { filter = "", from, json, last }, configuration: { relay } } = context;
  const report = from === undefined
    ? await askControl(relay.controlSocket, "/changes")
    : await (await import("../planning_verbs.ts")).readDumpedChanges(from);
  const entries = report.entries.filter((entry) => entryMatches(entry, filter));
  const most = last ?? (json ? Infinity : LAST_CHANGES);
  const earlier = Math.max(0, entries.length - most);
  const shown = { ...report, entries: entries.slice(earlier) };
  printAnswer(dependencies, context, () => shown, () => changesReport(shown, { filter }));
  return 0;
}
