/**
 * `--cleanup`: takes away everything that any mode ever added to the machine, and nothing else.
 *
 * @module
 */
import { IP_FAMILIES } from "../../net/ip_address.ts";
import type { ActiveCommand } from "./command.ts";

/** Removes what earlier runs left. Needs no cluster. */
export const cleanupCommand: ActiveCommand = {
  name: "cleanup",
  summary: "remove everything that any earlier run added to the machine (as --cleanup)",
  async run(dependencies, { configuration: { relay }, logger }) {
    const { backends, print, complain } = dependencies;
    let removed = 0;
    let failed = 0;
    for (const createBackend of Object.values(backends)) {
      for (const family of IP_FAMILIES) {
        await using backend = createBackend({ ...dependencies, logger }, {
          family,
          relay,
          belongsTo: () => undefined,
        });
        const report = await backend.cleanup();
        for (const line of report.removed) print(`removed ${line}\n`);
        for (const line of report.failed) complain(`Cannot remove ${line}\n`);
        removed += report.removed.length;
        failed += report.failed.length;
      }
    }
    if (removed === 0 && failed === 0) print("Nothing of kube-relay's is left on this machine.\n");
    return failed === 0 ? 0 : 1;
  },
};
