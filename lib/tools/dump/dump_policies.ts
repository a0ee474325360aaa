/**
 * The section of a dump for the NetworkPolicy controller; their objects are elsewhere in the dump.
 */
import { fields, flag, ipFamily, list, number, optional, plainText } from "./dump_value.ts";

/** The section; the path of the kubeconfig is not in it. */
export const DUMPED_POLICIES = fields({
  /** Absent if none was chosen yet. */
  tool: optional(plainText),
  families: list(ipFamily),
  settings: fields({
    mode: plainText,
    start: plainText,
    deny: plainText,
    logPerMinute: number,
    logGroup: number,
    cutConnections: flag,
    minSyncPeriod: number,
  }),
});
