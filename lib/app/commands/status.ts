/**
 * `status`: what a running kube-relay serves, asked over its control socket.
 *
 * @module
 */
import { requestStatus } from "../control_client.ts";
import type { StatusReport } from "../status_report.ts";
import { matchesFilter, renderStatus } from "../status_view.ts";
import { usesColor } from "../uses_color.ts";
import type { ActiveCommand } from "./command.ts";

/** Prints Services, addresses, endpoints, quarantined ones and sync times. */
export const statusCommand: ActiveCommand = {
  name: "status",
  summary: "ask a running kube-relay for Services, addresses, endpoints and syncs",
  async run({ clock, print, process }, { flags, configuration }) {
    const report = await requestStatus(configuration.relay.controlSocket);
    const { filter = "" } = flags;
    if (flags.json) {
      print(`${JSON.stringify(filterReport(report, filter), undefined, 2)}\n`);
      return 0;
    }
    const { columns } = process;
    const color = usesColor(process);
    print(renderStatus(report, { now: clock.wallNow(), columns, color, filter }));
    return 0;
  },
};

function filterReport(report: StatusReport, filter: string): StatusReport {
  const families = report.families.map((family) => ({
    ...family,
    services: family.services.filter((service) => matchesFilter(service, filter)),
  }));
  return { ...report, families };
}
