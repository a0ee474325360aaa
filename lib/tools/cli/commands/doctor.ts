import { collectDoctorReport } from "../../doctor/collect_doctor_report.ts";
import { isBlocked } from "../../doctor/doctor_report.ts";
import { renderDoctor } from "../../doctor/doctor_view.ts";
import { type ActiveCommand, printReport } from "./command.ts";

/** Checks this machine. Exits with status 1 if a problem keeps kube-relay from working. */
export const doctorCommand: ActiveCommand = {
  name: "doctor",
  summary: "check this machine: features for each mode, and problems",
  examples: ["kube-relay doctor", "kube-relay doctor --mode userspace --manifests DIR --json"],
  async run(dependencies, context) {
    const { configuration, logger } = context;
    // Feature tests that end in order leave nothing behind.
    const signal = context.endInOrder();
    const report = await collectDoctorReport(dependencies, { configuration, logger, signal });
    signal.throwIfAborted();
    printReport(dependencies, context, {
      json: () => report,
      text: (look) => renderDoctor(report, look),
    });
    return isBlocked(report) ? 1 : 0;
  },
};
