import * as v from "valibot";
import type { ChangesReport } from "../changes/change_entry.ts";
import { controller } from "./dump_status.ts";
import { fields, foreignText, ipFamily, list, number, optional, time } from "./dump_value.ts";

const loop = { controller: optional(controller), family: ipFamily };
const outcome = v.picklist(["applied", "failed"], "has to be applied or failed");

/** The answer to `/changes`. */
export const CHANGES: v.GenericSchema<unknown, ChangesReport> = fields({
  entries: list(fields({
    sequence: number,
    at: time,
    kind: v.picklist(
      ["sync", "flows", "quarantine", "drift", "repair", "health", "configuration"],
      "has to be sync, flows, quarantine, drift, repair, health or configuration",
    ),
    controller: optional(controller),
    family: optional(ipFamily),
    outcome: optional(outcome),
    waitedMs: optional(number),
    tookMs: optional(number),
    lines: list(fields({
      text: foreignText,
      tone: optional(v.picklist(
        ["good", "warning", "bad", "effect", "detail", "title"],
        "has to be a tone",
      )),
      object: optional(foreignText),
      item: optional(foreignText),
    })),
  })),
  forgotten: number,
  syncs: list(fields({ ...loop, at: number, durationMs: number, outcome })),
});
