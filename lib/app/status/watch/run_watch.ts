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

const PERIOD_MS = 1000;
/** Entries of the change log that can be scrolled through. */
const ENTRIES = 100;

/**
 * Draws the status of a running kube-relay once a second, and continues after its restart. Resolves
 * when the user quits or the terminal closes.
 */
export async function runWatch(
  { clock, terminal }: { readonly clock: Clock; readonly terminal: Terminal },
  { socket, filter, color, signal }: {
    readonly socket: string;
    readonly filter: string;
    readonly color: boolean;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  let model: WatchModel = { socket, filter, scrolledBy: 0 };
  let drawn = "";
  const ending = new AbortController();
  const ends = AbortSignal.any([signal, terminal.ended, ending.signal]);
  const draw = ({ force }: { readonly force: boolean }) => {
    const lines = renderWatch(model, { size: terminal.size, now: clock.wallNow(), color });
    const text = lines.join("\n");
    if (text !== drawn || force) terminal.draw(lines);
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
    draw({ force: key === undefined });
  });
  draw({ force: true });
  while (!ends.aborted) {
    try {
      model = answered(model, await ask(socket));
    } catch (error) {
      model = unanswered(model, { reason: messageOf(error), at: clock.wallNow() });
    }
    if (ends.aborted) break;
    draw({ force: false });
    await clock.sleep(PERIOD_MS, ends).catch(() => {});
  }
}

async function ask(socket: string): Promise<WatchAnswer> {
  const [status, changes] = await Promise.all([
    requestStatus(socket, { brief: true }),
    requestChanges(socket, { last: ENTRIES }),
  ]);
  return { status, changes };
}
