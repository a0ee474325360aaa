/** The entries of the change log as sentences, for every view of it. Pure; all texts are printable. */
import { printableText } from "../../log/printable_text.ts";
import type {
  ChangeCause,
  ChangedItem,
  ChangeEffect,
  ChangeEntry,
  ConfigurationEntry,
  DriftEntry,
  HealthEntry,
  QuarantineEntry,
  RepairEntry,
  RuleName,
  SyncEntry,
} from "./change_entry.ts";
import type { EndpointHealth } from "../../proxy/service_mode.ts";
import { countsOf, sum } from "./merge_bursts.ts";
import { durationText, operationsText } from "../status/number_texts.ts";
import { countText, groupedText } from "../../log/count_text.ts";
import type { Tone, TonedText } from "../cli/terminal_text.ts";

/** Causes, effects and other parts of one entry that are named; the rest is counted. */
const MOST_NAMED = 4;

/**
 * All lines of an entry. The first one describes the event and names the controller, except for
 * that of Services.
 */
export function entryLines(entry: ChangeEntry): readonly TonedText[] {
  const head = "controller" in entry ? `${entry.controller}: ` : "";
  return linesOf(entry).map(({ tone, text }, index) => ({
    tone,
    text: printableText(`${index === 0 ? head : ""}${text}`),
  }));
}

/** The IP family; empty for an entry that concerns both. */
export function entryFamily(entry: ChangeEntry): string {
  return entry.kind === "configuration" ? "" : entry.family;
}

function linesOf(entry: ChangeEntry): readonly TonedText[] {
  switch (entry.kind) {
    case "sync":
      return syncLines(entry);
    case "quarantine":
      return [quarantineLine(entry)];
    case "drift":
      return [driftLine(entry)];
    case "repair":
      return repairLines(entry);
    case "health":
      return healthLines(entry);
    case "configuration":
      return [configurationLine(entry)];
  }
}

/** Returns the duration of an entry as text; empty if the entry has no duration. */
export function entryDuration(entry: ChangeEntry): string {
  if (entry.kind === "repair") return durationText(entry.tookMs);
  return entry.kind === "sync" ? durationText(entry.totalMs) : "";
}

function syncLines(entry: SyncEntry): readonly TonedText[] {
  const { causes, effects, moreCauses, moreEffects } = entry;
  const noun = entry.controller ? "item" : "ServicePort";
  return [
    ...headLines(entry),
    ...causes.slice(0, MOST_NAMED).map((cause) => line("plain", causeText(cause))),
    ...moreLine(
      "plain",
      addCounts(moreCauses, causes.slice(MOST_NAMED), ({ kind }) => kind),
      kindCountText,
    ),
    ...effects.slice(0, MOST_NAMED).flatMap(effectLines),
    ...moreLine(
      "effect",
      addCounts(moreEffects, effects.slice(MOST_NAMED), ({ action }) => action),
      (count, action) => `${countText(count, noun)} ${action}`,
    ),
    line("detail", workText(entry)),
    ...outcomeLines(entry),
    ...flowLines(entry),
  ];
}

/** The first line of an entry that has no cause, or too many. */
function headLines({ first, causes, syncs, moreCauses }: SyncEntry): readonly TonedText[] {
  if (first) return [line("plain", "First sync: everything that is known")];
  if (syncs > 1 && causes.length > 0) return [line("plain", `Many changes, in ${syncs} syncs`)];
  if (Object.keys(moreCauses).length > 0) return [line("plain", "Many changes at once")];
  if (causes.length > 0) return [];
  const times = syncs > 1 ? `, ${syncs} times` : "";
  return [line("plain", `No object: clean-up, repair or another try${times}`)];
}

function causeText({ kind, name, action, count, details }: ChangeCause): string {
  const what = name === "" ? KIND_TEXTS[kind] ?? kind : `${KIND_TEXTS[kind] ?? kind} ${name}`;
  const times = count > 1 ? ` (${count} changes)` : "";
  return `${what} ${action}${times}${listed(details)}`;
}

/** E.g. `3 Pods`. Some kinds are plurals. */
function kindCountText(count: number, kind: string): string {
  if (KIND_TEXTS[kind] !== undefined) return `${countText(count, "change")} of ${kind}`;
  return kind.endsWith("s") ? `${groupedText(count)} ${kind}` : countText(count, kind);
}

const KIND_TEXTS: Readonly<Record<string, string>> = {
  addresses: "Addresses of this node",
  configuration: "Configuration",
};

function effectLines(effect: ChangeEffect): readonly TonedText[] {
  const { rules } = effect;
  return [
    line("effect", effectText(effect)),
    ...(rules === undefined ? [] : [line("detail", rulesText(rules))]),
  ];
}

/** The rules currently installed; the rules of that time may no longer exist. */
function rulesText(rules: readonly RuleName[]): string {
  if (rules.length === 0) return "now without rules";
  const shown = rules.slice(0, MOST_NAMED).map(({ object, name, count }) =>
    `${name} (${count === 1 ? object : countText(count, object)})`
  );
  const more = rules.length - shown.length;
  return `by ${shown.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

/** The item that an effect or a quarantine is about. */
export function itemText({ servicePort, item = "" }: ChangedItem): string {
  return servicePort ?? item;
}

function effectText({ action, details, ...changed }: ChangeEffect): string {
  return `-> ${itemText(changed)}${action === "updated" ? "" : ` ${action}`}${listed(details)}`;
}

function listed(details: readonly string[]): string {
  return details.length === 0 ? "" : `: ${details.join(", ")}`;
}

function workText({ operations, full, queuedMs, planMs, applyMs }: SyncEntry): string {
  const kind = full ? "everything compared, " : "";
  const times = [["waited", queuedMs], ["planned", planMs], ["applied", applyMs]] as const;
  const parts = times.map(([name, ms]) => `${name} ${durationText(ms)}`);
  return `${kind}${operationsText(operations)} (${parts.join(", ")})`;
}

function outcomeLines({ outcome, failures, error = "", slow }: SyncEntry): readonly TonedText[] {
  const times = failures === 1 ? "once" : `${failures} times`;
  return [
    ...(outcome === "failed" ? [line("bad", `FAILED ${times}, is tried again: ${error}`)] : []),
    ...(outcome === "applied" && failures > 0
      ? [line("warning", `Had failed ${times}: ${error}`)]
      : []),
    ...(slow ? [line("warning", "SLOW: far longer than other changes lately")] : []),
  ];
}

function flowLines({ flows }: SyncEntry): readonly TonedText[] {
  if (flows === undefined) return [];
  const { services, more, tookMs, failures, error } = flows;
  const named = services.slice(0, MOST_NAMED).map(({ servicePort, flows: count }) =>
    `${groupedText(count)} of ${servicePort}`
  );
  const rest = services.slice(MOST_NAMED).reduce((sum, each) => sum + each.flows, more);
  if (rest > 0) named.push(`${groupedText(rest)} of other ServicePorts`);
  const times = failures === 1 ? "once" : `${failures} times`;
  return [
    ...(named.length === 0 ? [] : [
      line(
        "detail",
        `UDP flows to former endpoints removed: ${named.join(", ")} (${durationText(tookMs)})`,
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
  { direction, address, reason, ...changed }: QuarantineEntry,
): TonedText {
  const item = itemText(changed);
  const place = address === undefined ? item : `${item} ${address}`;
  return direction === "in"
    ? line("bad", `QUARANTINE: ${place}: ${reason}`)
    : line("good", `Out of quarantine: ${place}`);
}

function healthLines({ changes, more }: HealthEntry): readonly TonedText[] {
  return [
    ...(more > 0 ? [line("plain", `${groupedText(more)} changes of health before these`)] : []),
    ...changes.map(({ servicePort, endpoint, state, reason }) => {
      const text = reason === undefined ? "" : `: ${reason}`;
      return line(
        HEALTH_TONES[state],
        `Endpoint ${endpoint} of ${servicePort} ${HEALTH_TEXTS[state]}${text}`,
      );
    }),
  ];
}

const HEALTH_TEXTS: Readonly<Record<EndpointHealth["state"], string>> = {
  unchecked: "used again",
  healthy: "healthy again",
  unhealthy: "unhealthy",
  ejected: "ejected",
};

const HEALTH_TONES: Readonly<Record<EndpointHealth["state"], Tone>> = {
  unchecked: "good",
  healthy: "good",
  unhealthy: "bad",
  ejected: "bad",
};

function driftLine({ object, found, repaired, times }: DriftEntry): TonedText {
  const often = times > 1 ? `, ${times} times in a row` : "";
  const text = `DRIFT: ${countText(found, object)} not as written, ${repaired} repaired${often}`;
  return line("warning", text);
}

function repairLines({ uid, pid, objects, times, error }: RepairEntry): readonly TonedText[] {
  const who = uid === undefined ? `process ${pid}` : `user ${uid}, process ${pid}`;
  const often = times > 1 ? `, ${times} times` : "";
  const words = repairText(objects);
  return [
    line("warning", `REPAIR by 'kube-relay diff --repair' (${who})${often}: ${words}`),
    ...(error === undefined ? [] : [line("bad", `FAILED, so that more may be written: ${error}`)]),
  ];
}

/** Returns e.g. `2 of 3 rules repaired`. */
function repairText(objects: RepairEntry["objects"]): string {
  const parts = objects.map(({ object, found, repaired }) =>
    `${groupedText(repaired)} of ${countText(found, object)}`
  );
  return parts.length === 0 ? "no known difference was repaired" : `${parts.join(", ")} repaired`;
}

function configurationLine({ fields }: ConfigurationEntry): TonedText {
  const shown = fields.slice(0, MOST_NAMED).join(", ");
  const more = fields.length - MOST_NAMED;
  return line("plain", `Configuration file: ${shown}${more > 0 ? ` and ${more} more` : ""}`);
}

function moreLine(
  tone: "plain" | "effect",
  counts: Readonly<Record<string, number>>,
  textOf: (count: number, what: string) => string,
): readonly TonedText[] {
  const parts = Object.entries(counts).map(([what, count]) => textOf(count, what));
  if (parts.length === 0) return [];
  return [line(tone, `${tone === "effect" ? "-> " : ""}and ${parts.join(", ")}`)];
}

function addCounts<Item>(
  counts: Readonly<Record<string, number>>,
  items: readonly Item[],
  nameOf: (item: Item) => string,
): Readonly<Record<string, number>> {
  return sum(countsOf(items, nameOf), counts);
}

function line(tone: Tone, text: string): TonedText {
  return { tone, text };
}
