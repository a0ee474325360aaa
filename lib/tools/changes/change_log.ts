/**
 * The change log of a run: what changed, and the effects, as the lines that every view shows. The words are
 * made when a change happens, so nothing else of it is kept.
 *
 * @module
 */
import type { ChangeListener, FlowCleaning, NamedItem } from "../../app/change_listener.ts";
import { type LoopId, otherController } from "../../engine/loop_id.ts";
import { countText, groupedText } from "../../log/count_text.ts";
import { printableText } from "../../log/printable_text.ts";
import type { DriftFigures } from "../../metrics/proxy_metrics.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane.ts";
import type { EndpointHealth, EndpointHealthChange } from "../../proxy/service_mode.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { Tone } from "../report.ts";
import {
  type ChangeEntry,
  type ChangeLine,
  type ChangesReport,
  type EntryLoop,
  MAX_NAMED,
  type NewEntry,
  rounded,
  shortReason,
  type SyncTime,
  timesText,
} from "./change_entry.ts";
import { ChangeRecorder } from "./change_recorder.ts";
import { describePlan } from "./describe_plan.ts";

/** Number of syncs whose duration is kept. */
const MAX_SYNCS = 120;
/** The longest gap between two events in one entry, in milliseconds. */
const GAPS = { drift: Infinity, flows: 60_000, repair: 60_000, health: 5000 } as const;

interface Kept {
  entry: ChangeEntry;
  bytes: number;
  /** For {@linkcode ChangeLog.#continue}: the source of the entry, and what its lines are made of. */
  source?: string;
  state?: unknown;
}

/** The last changes in memory, within bounds; the oldest are forgotten first. */
export class ChangeLog implements ChangeListener {
  readonly #clock: Clock;
  readonly #bounds: { readonly entries: number; readonly bytes: number };
  readonly #kept: Kept[] = [];
  readonly #syncs: SyncTime[] = [];
  #bytes = 0;
  #sequence = 0;
  #forgotten = 0;

  /** `bounds`: of the number of entries, and of their estimated memory. */
  constructor(
    { clock }: { readonly clock: Clock },
    bounds: { readonly entries?: number; readonly bytes?: number } = {},
  ) {
    this.#clock = clock;
    this.#bounds = { entries: 500, bytes: 2 ** 20, ...bounds };
  }

  /** Estimated memory of the entries. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Returns the newest entries, or all, oldest first. */
  recent(most = Infinity): ChangesReport {
    return {
      entries: this.#kept.slice(Math.max(0, this.#kept.length - most)).map(({ entry }) => entry),
      forgotten: this.#forgotten,
      syncs: [...this.#syncs],
    };
  }

  /**
   * Adds an entry and returns its sequence number. With one it replaces that entry, or adds it again if it
   * has been forgotten.
   */
  put(entry: NewEntry, sequence?: number): number {
    const known = this.#kept.findLast((kept) => kept.entry.sequence === sequence);
    return this.#put(known, entry).entry.sequence;
  }

  /** Adds the duration of a sync. */
  timed(sync: SyncTime): void {
    this.#syncs.push(sync);
    if (this.#syncs.length > MAX_SYNCS) this.#syncs.shift();
  }

  followServices(loop: LoopId, waitMs: number): ChangeRecorder<ServicePlan> {
    return new ChangeRecorder(
      { clock: this.#clock, log: this },
      entryLoop(loop),
      waitMs,
      describePlan,
    );
  }

  follow(loop: LoopId, waitMs: number): ChangeRecorder<NamedItem> {
    const describe = (previous: NamedItem | undefined, next: NamedItem | undefined) =>
      (next ?? previous)?.words ?? [];
    return new ChangeRecorder({ clock: this.#clock, log: this }, entryLoop(loop), waitMs, describe);
  }

  driftFound(
    loop: LoopId,
    { kind, found, repaired }: Omit<DriftFigures, "kind"> & { kind: string },
  ): void {
    if (found === 0) return;
    interface Sum {
      readonly found: number;
      readonly repaired: number;
      readonly times: number;
    }
    this.#continue<Sum>("drift", entryLoop(loop), kind, (before) => {
      const sum = {
        found: found + (before?.found ?? 0),
        repaired: repaired + (before?.repaired ?? 0),
        times: 1 + (before?.times ?? 0),
      };
      const often = sum.times > 1 ? `, ${sum.times} times in a row` : "";
      const text = `DRIFT: ${
        countText(sum.found, kind)
      } not as written, ${sum.repaired} repaired${often}`;
      return [sum, { lines: [{ tone: "warning", text }] }];
    });
  }

  flowsCleaned(family: IpFamily, { removed, tookMs, error }: FlowCleaning): void {
    this.#continue<{ failures: number; error?: string }>("flows", { family }, "", (before) => {
      if (error !== undefined) {
        const failures = (before?.failures ?? 0) + 1;
        const text = `FAILED ${timesText(failures)} to remove UDP flows, is tried again: ${
          shortReason(error)
        }`;
        return [{ failures, error }, { lines: [{ tone: "bad", text }] }];
      }
      const hadFailed = before?.error !== undefined;
      if (removed.size === 0 && !hadFailed) return undefined;
      const counts = [...removed];
      const rest = counts.slice(MAX_NAMED).reduce((sum, [, count]) => sum + count, 0);
      const lines: ChangeLine[] = [];
      for (const [item, count] of counts.slice(0, MAX_NAMED)) {
        lines.push({
          text: `${groupedText(count)} UDP flows of ${item} to former endpoints removed`,
          item,
        });
      }
      if (rest > 0) {
        lines.push({ text: `${groupedText(rest)} UDP flows of other ServicePorts removed` });
      }
      if (hadFailed) {
        const text = `Removing UDP flows had failed ${timesText(before.failures)}`;
        lines.push({ tone: "warning", text });
      }
      // Not continued: each removal is an entry of its own.
      return [undefined, { tookMs: rounded(tookMs), lines }];
    });
  }

  /** Adds a run of `diff --repair`: the differences before and after. */
  repaired({ controller, family }: EntryLoop, { found, left, tookMs, error }: {
    readonly found: readonly Pick<DataPlaneDifference, "object">[];
    readonly left: readonly Pick<DataPlaneDifference, "object">[];
    readonly tookMs: number;
    readonly error?: string;
  }): void {
    const loop = { ...(controller && { controller }), family };
    const now = new Map<string, { readonly found: number; readonly repaired: number }>();
    const remaining = Map.groupBy(left, ({ object }) => object);
    for (const [object, { length }] of Map.groupBy(found, ({ object }) => object)) {
      // The second comparison may find more of a kind than the first one.
      const repaired = Math.max(0, length - (remaining.get(object)?.length ?? 0));
      now.set(object, { found: length, repaired });
    }
    interface Sum {
      readonly times: number;
      readonly tookMs: number;
      readonly objects: typeof now;
    }
    this.#continue<Sum>("repair", loop, "", (before) => {
      const all = new Map(before?.objects);
      for (const [object, counts] of now) {
        const known = all.get(object);
        if (known || all.size < 2 * MAX_NAMED) {
          // What the run before did not repair is found again.
          const repaired = (known?.repaired ?? 0) + counts.repaired;
          all.set(object, { found: (known?.repaired ?? 0) + counts.found, repaired });
        }
      }
      const sum = {
        times: (before?.times ?? 0) + 1,
        tookMs: (before?.tookMs ?? 0) + tookMs,
        objects: all,
      };
      const often = sum.times > 1 ? `, ${sum.times} times` : "";
      const counts = [...all].map(([object, { found, repaired }]) =>
        `${groupedText(repaired)} of ${countText(found, object)}`
      );
      const text = `REPAIR by a user, with 'kube-relay diff --repair'${often}: ${
        counts.join(", ")
      } repaired`;
      const failed = error === undefined
        ? []
        : [{ tone: "bad", text: `FAILED: ${shortReason(error)}` } as const];
      return [sum, { tookMs: rounded(sum.tookMs), lines: [{ tone: "warning", text }, ...failed] }];
    });
  }

  healthChanged(family: IpFamily, changes: readonly EndpointHealthChange[]): void {
    this.#continue<{ lines: ChangeLine[]; more: number }>("health", { family }, "", (before) => {
      const all = [
        ...before?.lines ?? [],
        ...changes.map(({ servicePort: item, endpoint, state, reason }) => {
          const [word, tone] = HEALTH[state];
          const why = reason === undefined ? "" : `: ${shortReason(reason)}`;
          return { tone, text: `Endpoint ${endpoint} of ${item} ${word}${why}`, item };
        }),
      ];
      const lines = all.slice(-MAX_NAMED);
      const more = (before?.more ?? 0) + all.length - lines.length;
      const first = { text: `${groupedText(more)} changes of health before these` };
      return [{ lines, more }, { lines: more > 0 ? [first, ...lines] : lines }];
    });
  }

  /** Adds changed fields of the configuration, without their values, which may be secret. */
  configurationChanged(fields: readonly string[]): void {
    const more = fields.length - MAX_NAMED;
    const text = `Configuration file: ${fields.slice(0, MAX_NAMED).join(", ")}` +
      (more > 0 ? ` and ${more} more` : "");
    this.put({ kind: "configuration", lines: [{ text }] });
  }

  /**
   * Adds an event, or continues the entry of the same source among the entries of its kind that are the
   * newest. `join` returns the state for the next event and the entry; nothing if there is nothing to say.
   */
  #continue<State>(
    kind: keyof typeof GAPS,
    loop: EntryLoop,
    name: string,
    join: (
      before: State | undefined,
    ) => readonly [State | undefined, Pick<NewEntry, "lines" | "tookMs">] | undefined,
  ): void {
    const source = `${loop.controller} ${loop.family} ${name}`;
    const now = this.#clock.wallNow();
    const end = this.#kept.findLastIndex(({ entry }) => entry.kind !== kind) + 1;
    const recent = this.#kept.slice(end).filter(({ entry, state }) =>
      state !== undefined && now - Date.parse(entry.at) <= GAPS[kind]
    );
    const place = recent.findLast((kept) => kept.source === source);
    const joined = join(place?.state as State | undefined);
    if (joined === undefined) return;
    const [state, rest] = joined;
    const entry = { kind, ...loop, ...rest };
    const kept = this.#put(place, entry);
    kept.source = source;
    kept.state = state;
  }

  #put(known: Kept | undefined, { lines, controller, ...entry }: NewEntry): Kept {
    const sequence = known?.entry.sequence ?? ++this.#sequence;
    const place = known ?? { bytes: 0 } as Kept;
    if (!known) this.#kept.push(place);
    this.#bytes -= place.bytes;
    place.entry = {
      sequence,
      at: new Date(this.#clock.wallNow()).toISOString(),
      ...(controller && { controller }),
      ...entry,
      lines: lines.map((line, index) => ({
        ...line,
        text: printableText(index === 0 && controller ? `${controller}: ${line.text}` : line.text),
      })),
    };
    // Two bytes for each character of the text form, and as much again for the objects around it.
    place.bytes = 4 * JSON.stringify(place.entry).length;
    this.#bytes += place.bytes;
    const { entries, bytes } = this.#bounds;
    while (this.#kept.length > 1 && (this.#kept.length > entries || this.#bytes > bytes)) {
      this.#bytes -= this.#kept.shift()!.bytes;
      this.#forgotten++;
    }
    return place;
  }
}

function entryLoop({ controller, family }: LoopId): EntryLoop {
  return { ...otherController({ controller }), family };
}

const HEALTH: Readonly<Record<EndpointHealth["state"], readonly [text: string, tone: Tone]>> = {
  unchecked: ["used again", "good"],
  healthy: ["healthy again", "good"],
  unhealthy: ["unhealthy", "bad"],
  ejected: ["ejected", "bad"],
};
