import { messageOf } from "../../log/message_of.ts";
import type { Clock } from "../../os/clock.ts";
import { repairedObjects, type RepairNote, shortReason } from "../changes/repair_note.ts";
import { reportRepair } from "../control/control_client.ts";
import type { Dependencies, ProcessInfo } from "../dependencies.ts";
import type { RepairRunner } from "./node_difference.ts";

/** Reports each repair that found something or failed, for the change log of the running process. */
export function reportedRepairs(
  { clock, complain, process: { pid, uid } }: {
    readonly clock: Clock;
    readonly complain: Dependencies["complain"];
    readonly process: Pick<ProcessInfo, "pid" | "uid">;
  },
  controlSocket: string,
): RepairRunner {
  return async (family, attempt) => {
    const startedAt = clock.now();
    const report = async (outcome: Pick<RepairNote, "objects" | "error">) => {
      const note = { family, pid, ...(uid !== undefined && { uid }), ...outcome };
      const tookMs = clock.now() - startedAt;
      try {
        await reportRepair(controlSocket, { ...note, tookMs });
      } catch (error) {
        complain(`kube-relay: this repair is not in the change log: ${messageOf(error)}\n`);
      }
    };
    try {
      const repair = await attempt();
      if (repair.found.length > 0) await report({ objects: repairedObjects(repair) });
      return repair;
    } catch (error) {
      await report({ objects: [], error: shortReason(messageOf(error)) });
      throw error;
    }
  };
}
