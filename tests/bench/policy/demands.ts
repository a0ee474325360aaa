import type { Gate } from "../gates.ts";
import { spreadOf } from "../statistics.ts";
import {
  EVENT_KINDS,
  type OwnFigures,
  type SizeFigures,
  type StepCost,
  TOOL_NAMES,
} from "./rules_figures.ts";
import type { MemoryFigures } from "./memory.ts";

const LINES = 20;
const EVENT_GROWTH = 1.5;
/** iptables-legacy reads and writes the whole table. */
const LEGACY_EVENT_GROWTH = 2.5;
const LARGEST_LOAD_MS = 3_000;
const LARGEST_CHANGE_MS = 100;
const POD_MB = 15;
/** nftables finds the list of a pod by a map, which iptables does not have. */
const LIST_RULES = "grows with the isolated pods of the node";
const COUNT = { digits: 0, slack: 0 };

/** Returns the median of one part of some costs. */
function medianOf(costs: readonly StepCost[], part: keyof StepCost): number {
  return spreadOf(costs.map((cost) => cost[part])).median;
}

/** Returns the sum of the medians of the kinds of events. */
function sumOfMedians({ events }: SizeFigures, part: keyof StepCost): number {
  return EVENT_KINDS.reduce((sum, kind) => sum + medianOf(events[kind], part), 0);
}

/** Demands on rules. CPU time, since others use the machine too. */
export function ruleGates(all: readonly OwnFigures[]): readonly Gate[] {
  return all.flatMap((figures): readonly Gate[] => {
    const { tool, sizes: [few, many], largest } = figures;
    if (few === undefined || many === undefined) throw new Error("Two sizes are needed");
    return [
      ...eventGates(tool, few, many),
      visitGate(tool, few, many),
      {
        name: `${TOOL_NAMES[tool]}: first sync of 10,000 rules, CPU ms with ours`,
        value: medianOf(largest.loads, "toolMs") + medianOf(largest.loads, "ownMs"),
        atMost: LARGEST_LOAD_MS,
        digits: 0,
      },
      {
        name: `${TOOL_NAMES[tool]}: one policy among 10,000 rules, CPU ms with ours`,
        value: medianOf(largest.changes, "toolMs") + medianOf(largest.changes, "ownMs"),
        atMost: LARGEST_CHANGE_MS,
        digits: 0,
      },
    ];
  });
}

function eventGates(
  tool: OwnFigures["tool"],
  few: SizeFigures,
  many: SizeFigures,
): readonly Gate[] {
  const events = EVENT_KINDS.flatMap((kind) => many.events[kind]);
  return [
    {
      name: `${TOOL_NAMES[tool]}: most lines of an event of a pod`,
      value: Math.max(...events.map(({ lines }) => lines)),
      atMost: LINES,
      ...COUNT,
    },
    ...EVENT_KINDS.map((kind) => ({
      name: `${TOOL_NAMES[tool]}: ${kind}, the tool's CPU among 1,000 policies / 10`,
      value: medianOf(many.events[kind], "toolMs") / medianOf(few.events[kind], "toolMs"),
      atMost: tool === "legacy" ? LEGACY_EVENT_GROWTH : EVENT_GROWTH,
    })),
    {
      name: `${TOOL_NAMES[tool]}: our CPU / the tool's for an event`,
      // Not of all events together: those of local pods cost four times as much as the others, and the
      // median would be a single one in the gap between the two groups.
      value: sumOfMedians(many, "ownMs") / sumOfMedians(many, "toolMs"),
      atMost: 1,
    },
  ];
}

function visitGate(tool: OwnFigures["tool"], few: SizeFigures, many: SizeFigures): Gate {
  return {
    name: `${TOOL_NAMES[tool]}: rules met by a first packet, among 1,000 policies / 10`,
    value: many.visitedRules / few.visitedRules,
    atMost: 1,
    slack: 0,
    ...(tool !== "nftables" && { onlyAim: LIST_RULES }),
  };
}

/** Demands on memory. */
export function memoryGates({ podMb }: MemoryFigures): readonly Gate[] {
  return [{ name: "MB of 10,000 pods", value: podMb, atMost: POD_MB, digits: 1, slack: 0 }];
}
