import { collectDoctorReport } from "../../doctor/collect_doctor_report.ts";
import { isBlocked } from "../../doctor/doctor_report.ts";
import { renderDoctor } from "../../doctor/doctor_view.ts";
import { usesColor } from "../uses_color.ts";
import type { ActiveCommand } from "./command.ts";

/** Prints the examination. Ends with 1 when something has to be done before kube-relay can work. */
export const doctorCommand: ActiveCommand = {
  name: "doctor",
  summary: "check this machine: features for each mode, and problems",
  async run(dependencies, { flags, configuration, logger, endInOrder }) {
    const { print, process } = dependencies;
    // The trials of a mode leave nothing behind when they are ended in order.
    const signal = endInOrder();
    const report = await collectDoctorReport(dependencies, { configuration, logger, signal });
    signal.throwIfAborted();
    print(
      flags.json
        ? `${JSON.stringify(report, undefined, 2)}\n`
        : renderDoctor(report, { columns: process.columns, color: usesColor(process) }),
    );
    return isBlocked(report) ? 1 : 0;
  },
};
