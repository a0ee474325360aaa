import type { Dependencies } from "../../../app/dependencies.ts";
import { ConfigurationError } from "../../../config/configuration_error.ts";
import { loadConfiguration } from "../../../config/load.ts";
import { collectDoctorReport, isBlocked } from "../../doctor/doctor_report.ts";
import { doctorView } from "../../doctor/doctor_view.ts";
import { flagsInUse } from "../../doctor/flags_in_use.ts";
import { type CommandContext, printAnswer } from "./command.ts";

/** Checks this machine. Exits with status 1 if a problem keeps kube-relay from working. */
export async function doctorVerb(
  dependencies: Dependencies,
  { flags: given, configuration: own, ...context }: CommandContext,
): Promise<number> {
  // Feature tests that end in order leave nothing behind.
  const signal = context.endInOrder();
  const used = await flagsInUse(given, own.relay.controlSocket);
  const borrowed = used.flags === given
    ? { configuration: own, configuredBy: used.source, problems: used.problem ?? [] }
    : await loadConfiguration(dependencies.process, used).then(
      (configuration) => ({ configuration, configuredBy: used.source, problems: [] }),
      (error: unknown) => {
        if (!(error instanceof ConfigurationError)) throw error;
        const problems = error.problems.map((problem) => `${used.source}: ${problem}`);
        return { configuration: own, configuredBy: "a start without flags", problems };
      },
    );
  const { configuration, configuredBy, problems } = borrowed;
  const edges = { dependencies, configuration, logger: context.logger, signal };
  const report = await collectDoctorReport(edges, configuredBy, [problems].flat());
  signal.throwIfAborted();
  const isVerbose = given.verbose ?? false;
  printAnswer(dependencies, { flags: given }, () => report, () => doctorView(report, isVerbose));
  return isBlocked(report) ? 1 : 0;
}
