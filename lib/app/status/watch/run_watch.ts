import { messageOf } from "../../../log/message_of.ts";
import type { Clock } from "../../../os/clock.ts";
import type { Terminal } from "../../../os/terminal.ts";
import { requestChanges, requestStatus } from "../../control/control_client.ts";

import {
  answered,
  mostScrolled,
  pressed,
  renderWatch,
  unanswered,
  type WatchAnswer,
  type WatchModel,
} from "./watch_view.ts";

/** What is watched and how it looks. */
interface WatchOptions {
  readonly socket: string;
  readonly filter: string;
  readonly color: boolean;
  readonly signal: AbortSignal;
}

/** What it needs. */
interface WatchDependencies {
  readonly clock: Clock;
  readonly terminal: Terminal;
  /** @default {over the control socket} */
  readonly ask?: (socket: string) => Promise<WatchAnswer>;
}

const PERIOD_MS = 1000;
/** Entries that can be scrolled through. */
const ENTRIES = 100;

/** Resolves when the reader has seen enough, or the terminal is gone. */
export async function runWatch(
  { clock, terminal, ask = askAll }: WatchDependencies,
  { socket, filter, color, signal }: WatchOptions,
): Promise<void> {
  let model: WatchModel = { socket, filter, scrolledBy: 0 };
  let drawn = "";
  const ending = new AbortController();
  const ends = AbortSignal.any([signal, terminal.ended, ending.signal]);
  const draw = ({ anew }: { readonly anew: boolean }) => {
    const lines = renderWatch(model, { size: terminal.size, now: clock.wallNow(), color });
    const text = lines.join("\n");
    if (text !== drawn || anew) terminal.draw(lines);
    drawn = text;
  };
  terminal.listen((key) => {
    if (key !== undefined) {
      const outcome = pressed(model, key);
      if (outcome.ends) return ending.abort();
      const view = { size: terminal.size, now: clock.wallNow() };
      const scrolledBy = Math.min(outcome.model.scrolledBy, mostScrolled(outcome.model, view));
      model = { ...outcome.model, scrolledBy };
    }
    draw({ anew: key === undefined });
  });
  draw({ anew: true });
  while (!ends.aborted) {
    try {
      model = answered(model, await ask(socket));
    } catch (error) {
      model = unanswered(model, { reason: messageOf(error), at: clock.wallNow() });
    }
    if (ends.aborted) break;
    draw({ anew: false });
    await clock.sleep(PERIOD_MS, ends).catch(() => {});
  }
}

async function askAll(socket: string): Promise<WatchAnswer> {
  const [status, changes] = await Promise.all([
    requestStatus(socket, { brief: true }),
    requestChanges(socket, { last: ENTRIES }),
  ]);
  return { status, changes };
}
