import * as v from "valibot";
import type { ChangesReport } from "../changes/change_entry.ts";
import { controller, endpointHealth } from "./dump_status.ts";
import {
  fields,
  flag,
  foreignText,
  ipFamily,
  list,
  number,
  optional,
  ownText,
  table,
  time,
} from "./dump_value.ts";

const action = v.picklist(
  ["added", "updated", "deleted"],
  "has to be added, updated or deleted",
);
const outcome = v.picklist(["applied", "failed"], "has to be applied or failed");
const yes = optional(v.literal(true, "has to be true"));
const base = { sequence: number, at: time };
const loop = { controller: optional(controller), family: ipFamily };
const item = { servicePort: optional(ownText), item: optional(ownText) };

const sync = fields({
  kind: v.literal("sync"),
  ...base,
  ...loop,
  outcome,
  first: yes,
  causes: list(fields({
    kind: ownText,
    name: foreignText,
    action,
    details: list(foreignText),
    count: number,
    seenAt: time,
  })),
  moreCauses: table(number),
  effects: list(fields({
    ...item,
    action,
    details: list(foreignText),
    rules: optional(list(fields({ object: ownText, name: ownText, count: number }))),
  })),
  moreEffects: table(number),
  syncs: number,
  full: optional(flag),
  operations: table(number),
  queuedMs: number,
  planMs: number,
  applyMs: number,
  totalMs: number,
  failures: number,
  error: optional(foreignText),
  slow: yes,
  flows: optional(fields({
    services: list(fields({ servicePort: ownText, flows: number })),
    more: number,
    tookMs: number,
    failures: number,
    error: optional(foreignText),
  })),
});

const quarantine = fields({
  kind: v.literal("quarantine"),
  ...base,
  ...loop,
  direction: v.picklist(["in", "out"], "has to be in or out"),
  ...item,
  address: optional(ownText),
  reason: foreignText,
});

const drift = fields({
  kind: v.literal("drift"),
  ...base,
  ...loop,
  object: ownText,
  found: number,
  repaired: number,
  times: number,
});

const repair = fields({
  kind: v.literal("repair"),
  ...base,
  ...loop,
  uid: optional(number),
  pid: number,
  objects: list(fields({ object: ownText, found: number, repaired: number })),
  tookMs: number,
  times: number,
  error: optional(foreignText),
});

const health = fields({
  kind: v.literal("health"),
  ...base,
  ...loop,
  changes: list(fields({
    servicePort: ownText,
    endpoint: ownText,
    state: endpointHealth,
    reason: optional(foreignText),
  })),
  more: number,
});

const configuration = fields({
  kind: v.literal("configuration"),
  ...base,
  fields: list(foreignText),
});

/** The answer to `/changes`. */
export const CHANGES: v.GenericSchema<unknown, ChangesReport> = fields({
  entries: list(v.variant(
    "kind",
    [sync, quarantine, drift, repair, health, configuration],
    "has to be sync, quarantine, drift, repair, health or configuration",
  )),
  forgotten: number,
  syncs: list(fields({ ...loop, at: number, durationMs: number, outcome })),
});
