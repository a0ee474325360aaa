import { entryMatches, renderChanges } from "../../changes/changes_view.ts";
import { ConfigurationError } from "../../../config/load.ts";
import { requestChanges, requestStatus } from "../../control/control_client.ts";
import type { Dependencies } from "../../dependencies.ts";
import { readDumpedChanges, readDumpedStatus } from "../../dump/dumped_status.ts";
import type { StatusReport } from "../../status/status_report.ts";
import { renderStatus } from "../../status/status_text.ts";
import { matchesFilter } from "../../status/status_view.ts";
import { usesColor } from "../uses_color.ts";
import { runWatch } from "../../status/watch/run_watch.ts";
import type { ActiveCommand, CommandContext } from "./command.ts";

/** Prints Services, addresses, endpoints, quarantined ones and sync times. */
export const statusCommand: ActiveCommand = {
  name: "status",
  summary: "ask a running kube-relay for Services, addresses, endpoints and syncs",
  examples: ["kube-relay status --changes --filter default/web", "kube-relay status --watch"],
  async run(dependencies, context) {
    if (context.flags.watch) return await watch(dependencies, context);
    if (context.flags.changes) return await printChanges(dependencies, context);
    const { clock, print, process } = dependencies;
    const { flags, configuration } = context;
    const { report, now } = flags.from === undefined
      ? {
        report: await requestStatus(configuration.relay.controlSocket),
        now: clock.wallNow(),
      }
      : await readDumpedStatus(flags.from);
    const { filter = "" } = flags;
    if (flags.json) {
      print(`${JSON.stringify(filterReport(report, filter), undefined, 2)}\n`);
      return 0;
    }
    const { columns } = process;
    const color = usesColor(process);
    print(renderStatus(report, { now, columns, color, filter }));
    return 0;
  },
};

async function watch(
  { clock, process, openTerminal }: Dependencies,
  { flags, configuration: { relay }, endInOrder }: CommandContext,
): Promise<number> {
  const { filter = "", ...others } = flags;
  const odd = (["changes", "json", "from"] as const).filter((name) => others[name]);
  if (odd.length > 0) {
    throw new ConfigurationError(
      odd.map((name) => `Flag --${name} has no meaning beside --watch; leave one of them out`),
    );
  }
  if (!process.stdoutIsTerminal || openTerminal === undefined) {
    throw new ConfigurationError([
      "Cannot watch: standard output is no terminal. 'status' without --watch prints the state " +
      "once, with --json for programs",
    ]);
  }
  const signal = endInOrder();
  using terminal = openTerminal();
  const color = usesColor(process);
  await runWatch({ clock, terminal }, { socket: relay.controlSocket, filter, color, signal });
  return 0;
}

async function printChanges(
  { print, process }: Dependencies,
  { flags: { filter = "", json, from }, configuration }: CommandContext,
): Promise<number> {
  const report = from === undefined
    ? await requestChanges(configuration.relay.controlSocket, { rules: true })
    : await readDumpedChanges(from);
  if (json) {
    const entries = report.entries.filter((entry) => entryMatches(entry, filter));
    print(`${JSON.stringify({ ...report, entries }, undefined, 2)}\n`);
    return 0;
  }
  const { columns } = process;
  print(renderChanges(report, { columns, color: usesColor(process), filter }));
  return 0;
}

function filterReport(report: StatusReport, filter: string): StatusReport {
  const families = report.families.map((family) => ({
    ...family,
    services: family.services.filter((service) => matchesFilter(service.name, filter)),
  }));
  return { ...report, families };
}
