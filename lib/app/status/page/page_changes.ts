/**
 * From the change log to what the status page says of it. Pure.
 *
 * @module
 */
import type {
  ChangeCause,
  ChangeEffect,
  ChangeEntry,
  ChangesReport,
  SyncEntry,
} from "../../changes/change_entry.ts";
import { durationText, repairText } from "../../changes/entry_text.ts";
import { operationsText } from "../operations_text.ts";
import type { PageChange } from "./page_model.ts";

/** Objects, and ServicePorts, of one sync that are named. */
const MOST_NAMED = 3;

/** A line for each entry, the newest last. */
export function pageChanges({ entries }: Pick<ChangesReport, "entries">): readonly PageChange[] {
  return entries.map((entry) => ({ at: Date.parse(entry.at), ...lineOf(entry) }));
}

function lineOf(entry: ChangeEntry): Omit<PageChange, "at"> {
  switch (entry.kind) {
    case "sync":
      return syncLine(entry);
    case "quarantine": {
      const { servicePort, address, reason, direction, family } = entry;
      const place = address === undefined ? "" : ` at ${address}`;
      return direction === "in"
        ? { cause: `${servicePort}${place}, ${family}`, effect: reason, attention: "quarantine" }
        : { cause: `${servicePort}${place}, ${family}`, effect: "is out of quarantine" };
    }
    case "drift": {
      const { family, object, found, repaired } = entry;
      const cause = `${found} objects of kube-relay (${object}, ${family}) were missing or changed`;
      return { cause, effect: `${repaired} put back`, attention: "drift" };
    }
    case "repair": {
      const { family, objects, error, uid } = entry;
      const who = uid === undefined ? "an unknown user" : `user ${uid}`;
      const cause = `kube-relay diff --repair by ${who}, ${family}`;
      const failed = error === undefined ? "" : `; it failed: ${error}`;
      return { cause, effect: `${repairText(objects)}${failed}`, attention: "drift" };
    }
    case "configuration":
      return { cause: `The configuration file: ${entry.fields.join(", ")}`, effect: "taken up" };
  }
}

function syncLine(entry: SyncEntry): Omit<PageChange, "at"> {
  const { first, failures, error, family, totalMs, slow, outcome } = entry;
  const cause = first ? `The first sync of ${family}` : causesText(entry);
  if (outcome === "failed") {
    const times = failures === 1 ? "once" : `${failures} times`;
    return { cause, effect: `${family}: failed ${times}: ${error ?? ""}`, attention: "failed" };
  }
  const work = operationsText(entry.operations);
  return {
    cause,
    effect: `${family}: ${effectsText(entry)}${work}, in effect after ${durationText(totalMs)}`,
    ...(slow && { attention: "slow" as const }),
  };
}

function causesText({ causes, moreCauses }: SyncEntry): string {
  const named = causes.slice(0, MOST_NAMED).map(causeText);
  const rest = causes.length - named.length +
    Object.values(moreCauses).reduce((sum, count) => sum + count, 0);
  return [...named, ...(rest > 0 ? [`${rest} more`] : [])].join("; ") || "Nothing that was changed";
}

function causeText({ kind, name, action, words, count }: ChangeCause): string {
  const what = words.length === 0 ? action : words.join(", ");
  return `${kind}${name === "" ? "" : ` ${name}`}: ${what}${
    count > 1 ? ` (${count} changes)` : ""
  }`;
}

function effectsText({ effects, moreEffects }: SyncEntry): string {
  const named = effects.slice(0, MOST_NAMED).map(effectText);
  const rest = effects.length - named.length +
    Object.values(moreEffects).reduce((sum, count) => sum + count, 0);
  const all = [...named, ...(rest > 0 ? [`${rest} more ServicePorts`] : [])];
  return all.length === 0 ? "" : `${all.join("; ")}; `;
}

function effectText({ servicePort, action, words }: ChangeEffect): string {
  return `${servicePort} ${words.length === 0 ? action : words.join(", ")}`;
}
