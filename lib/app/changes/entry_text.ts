/**
 * One entry of the change log as sentences, for the table and for the live view. Pure; texts of
 * objects are made printable here.
 *
 * @module
 */
import { operationsText } from "../status/operations_text.ts";
import { printableText } from "../../log/printable_text.ts";
import type { RuleName } from "../../proxy/rule_names.ts";
import type {
  ChangeCause,
  ChangeEffect,
  ChangeEntry,
  ConfigurationEntry,
  DriftEntry,
  QuarantineEntry,
  RepairEntry,
  SyncEntry,
} from "./change_entry.ts";

/** How a line is meant. */
export type LineTone = "cause" | "effect" | "detail" | "bad" | "warning" | "good";

/** A line before it is broken and coloured. */
interface EntryLine {
  readonly tone: LineTone;
  readonly text: string;
}

/** Causes and effects of one entry that are told; the rest is counted. */
const MOST_TOLD = 4;

/** All lines of an entry; the first one says what happened. */
export function entryLines(entry: ChangeEntry): readonly EntryLine[] {
  const lines = linesOf(entry);
  return lines.map(({ tone, text }) => ({ tone, text: printableText(text) }));
}

function linesOf(entry: ChangeEntry): readonly EntryLine[] {
  switch (entry.kind) {
    case "sync":
      return syncLines(entry);
    case "quarantine":
      return [quarantineLine(entry)];
    case "drift":
      return [driftLine(entry)];
    case "repair":
      return repairLines(entry);
    case "configuration":
      return [configurationLine(entry)];
  }
}

/** The time it took, where it took any. */
export function entryDuration(entry: ChangeEntry): string {
  if (entry.kind === "repair") return durationText(entry.tookMs);
  return entry.kind === "sync" ? durationText(entry.totalMs) : "";
}

/** `4.2 ms`, `312 ms`, `3.2 s`, `4m12s`. */
export function durationText(ms: number): string {
  if (ms < 10) return `${Math.round(ms * 10) / 10} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 99_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}

function syncLines(entry: SyncEntry): readonly EntryLine[] {
  const { causes, effects, moreCauses, moreEffects } = entry;
  return [
    ...headLines(entry),
    ...causes.slice(0, MOST_TOLD).map((cause) => line("cause", causeText(cause))),
    ...moreLine("cause", addCounts(moreCauses, causes.slice(MOST_TOLD), ({ kind }) => kind)),
    ...effects.slice(0, MOST_TOLD).flatMap(effectLines),
    ...moreLine(
      "effect",
      addCounts(moreEffects, effects.slice(MOST_TOLD), ({ action }) => `ServicePorts ${action}`),
    ),
    line("detail", workText(entry)),
    ...outcomeLines(entry),
    ...flowLines(entry),
  ];
}

/** What an entry is that has no cause, or too many. */
function headLines({ first, causes, syncs, moreCauses }: SyncEntry): readonly EntryLine[] {
  if (first) return [line("cause", "First sync: everything that is known")];
  if (syncs > 1 && causes.length > 0) return [line("cause", `Many changes, in ${syncs} syncs`)];
  if (Object.keys(moreCauses).length > 0) return [line("cause", "Many changes at once")];
  if (causes.length > 0) return [];
  const times = syncs > 1 ? `, ${syncs} times` : "";
  return [line("cause", `No object: repair or another try${times}`)];
}

function causeText({ kind, name, action, count, words }: ChangeCause): string {
  const what = name === "" ? KIND_TEXTS[kind] ?? kind : `${KIND_TEXTS[kind] ?? kind} ${name}`;
  const times = count > 1 ? ` (${count} changes)` : "";
  return `${what} ${action}${times}${listed(words)}`;
}

const KIND_TEXTS: Readonly<Record<string, string>> = {
  addresses: "Addresses of this node",
  configuration: "Configuration",
};

function effectLines(effect: ChangeEffect): readonly EntryLine[] {
  const { rules } = effect;
  return [
    line("effect", effectText(effect)),
    ...(rules === undefined ? [] : [line("detail", rulesText(rules))]),
  ];
}

/** The rules that there are now: those of then are gone, or the same. */
function rulesText(rules: readonly RuleName[]): string {
  if (rules.length === 0) return "now without rules";
  const shown = rules.slice(0, MOST_TOLD).map(({ object, name, count }) =>
    `${name} (${count === 1 ? object : `${count} ${pluralOf(object)}`})`
  );
  const more = rules.length - shown.length;
  return `by ${shown.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

function pluralOf(noun: string): string {
  if (noun.endsWith("y")) return `${noun.slice(0, -1)}ies`;
  return noun.endsWith("s") ? `${noun}es` : `${noun}s`;
}

function effectText({ servicePort, action, words }: ChangeEffect): string {
  return `-> ${servicePort}${action === "updated" ? "" : ` ${action}`}${listed(words)}`;
}

function listed(words: readonly string[]): string {
  return words.length === 0 ? "" : `: ${words.join(", ")}`;
}

function workText({ operations, full, queuedMs, planMs, applyMs }: SyncEntry): string {
  const kind = full ? "everything compared, " : "";
  const times = [["waited", queuedMs], ["planned", planMs], ["applied", applyMs]] as const;
  const parts = times.map(([name, ms]) => `${name} ${durationText(ms)}`);
  return `${kind}${operationsText(operations)} (${parts.join(", ")})`;
}

function outcomeLines({ outcome, failures, error = "", slow }: SyncEntry): readonly EntryLine[] {
  const times = failures === 1 ? "once" : `${failures} times`;
  return [
    ...(outcome === "failed" ? [line("bad", `FAILED ${times}, is tried again: ${error}`)] : []),
    ...(outcome === "applied" && failures > 0
      ? [line("warning", `Had failed ${times}: ${error}`)]
      : []),
    ...(slow ? [line("warning", "SLOW: far longer than other changes lately")] : []),
  ];
}

function flowLines({ flows }: SyncEntry): readonly EntryLine[] {
  if (flows === undefined) return [];
  const { services, more, tookMs, failures, error } = flows;
  const told = services.slice(0, MOST_TOLD).map(({ servicePort, flows: count }) =>
    `${grouped(count)} of ${servicePort}`
  );
  const rest = services.slice(MOST_TOLD).reduce((sum, each) => sum + each.flows, more);
  if (rest > 0) told.push(`${grouped(rest)} of others`);
  const times = failures === 1 ? "once" : `${failures} times`;
  return [
    ...(told.length === 0 ? [] : [
      line(
        "detail",
        `UDP flows to former endpoints removed: ${told.join(", ")} (${durationText(tookMs)})`,
      ),
    ]),
    ...(error === undefined
      ? []
      : [line("bad", `FAILED ${times} to remove UDP flows, is tried again: ${error}`)]),
    ...(error === undefined && failures > 0
      ? [line("warning", `Removing UDP flows had failed ${times}`)]
      : []),
  ];
}

function quarantineLine(
  { direction, servicePort, address, reason }: QuarantineEntry,
): EntryLine {
  const place = address === undefined ? servicePort : `${servicePort} ${address}`;
  return direction === "in"
    ? line("bad", `QUARANTINE: ${place}: ${reason}`)
    : line("good", `Out of quarantine: ${place}`);
}

function driftLine({ object, found, repaired, times }: DriftEntry): EntryLine {
  const often = times > 1 ? `, ${times} times in a row` : "";
  const what = found === 1 ? object : pluralOf(object);
  const text = `DRIFT: ${found} ${what} not as written, ${repaired} repaired${often}`;
  return line("warning", text);
}

function repairLines({ uid, pid, objects, times, error }: RepairEntry): readonly EntryLine[] {
  const who = uid === undefined ? `process ${pid}` : `user ${uid}, process ${pid}`;
  const often = times > 1 ? `, ${times} times` : "";
  const words = repairText(objects);
  return [
    line("warning", `REPAIR by 'kube-relay diff --repair' (${who})${often}: ${words}`),
    ...(error === undefined ? [] : [line("bad", `FAILED, so that more may be written: ${error}`)]),
  ];
}

/** `2 of 3 rules repaired`. */
export function repairText(objects: RepairEntry["objects"]): string {
  const parts = objects.map(({ object, found, mended }) =>
    `${grouped(mended)} of ${grouped(found)} ${found === 1 ? object : pluralOf(object)}`
  );
  return parts.length === 0 ? "no known difference was repaired" : `${parts.join(", ")} repaired`;
}

function configurationLine({ fields }: ConfigurationEntry): EntryLine {
  const shown = fields.slice(0, MOST_TOLD).join(", ");
  const more = fields.length - MOST_TOLD;
  return line("cause", `Configuration file: ${shown}${more > 0 ? ` and ${more} more` : ""}`);
}

function moreLine(
  tone: "cause" | "effect",
  counts: Readonly<Record<string, number>>,
): readonly EntryLine[] {
  const parts = Object.entries(counts).map(([what, count]) => `${grouped(count)} ${what}`);
  if (parts.length === 0) return [];
  return [line(tone, `${tone === "effect" ? "-> " : ""}and ${parts.join(", ")}`)];
}

function addCounts<Item>(
  counts: Readonly<Record<string, number>>,
  items: readonly Item[],
  nameOf: (item: Item) => string,
): Readonly<Record<string, number>> {
  const total: Record<string, number> = {};
  for (const item of items) total[nameOf(item)] = (total[nameOf(item)] ?? 0) + 1;
  for (const [name, count] of Object.entries(counts)) {
    const full = ACTIONS.has(name) ? `ServicePorts ${name}` : name;
    total[full] = (total[full] ?? 0) + count;
  }
  return total;
}

const ACTIONS: ReadonlySet<string> = new Set(["added", "updated", "deleted"]);

/** `19,996`. */
function grouped(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

function line(tone: LineTone, text: string): EntryLine {
  return { tone, text };
}
