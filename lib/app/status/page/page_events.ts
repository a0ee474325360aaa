/**
 * The status page's event streams: what has changed on the page, sent as it changes.
 *
 * @module
 */
import type { Clock } from "../../../os/clock.ts";
import type { PageSection } from "./page_model.ts";

/** Streams at a time; each costs a rendering a second. */
export const MOST_STREAMS = 8;

/** Time from one look to the next. */
const PERIOD_MS = 1000;
/** So long a stream may say nothing: whoever reads it has to notice that it is dead. */
const SILENCE_MS = 15_000;

/** Whoever takes nothing for so long, such as a stopped program, gives way to another reader. */
const STALLED_MS = 60_000;

/** What streams are made with. */
interface PageEventsOptions {
  /** All sections as they are now, for a filter. */
  readonly sections: (filter: string) => Promise<readonly PageSection[]>;
}

/** A stream that somebody reads. */
interface OpenStream {
  readonly close: () => void;
  /** Since when there is something that was not taken; `undefined` while the reader waits. */
  handedOverAt: number | undefined;
}

/** Streams of server-sent events. Costs nothing while there are none. */
export class PageEvents {
  readonly #clock: Clock;
  readonly #options: PageEventsOptions;
  readonly #open = new Set<OpenStream>();

  constructor({ clock }: { readonly clock: Clock }, options: PageEventsOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  /** Opens a stream that begins with all sections; `undefined` when there are {@linkcode MOST_STREAMS}. */
  open(filter: string): ReadableStream<Uint8Array> | undefined {
    if (this.#open.size >= MOST_STREAMS) this.#stalled()?.close();
    if (this.#open.size >= MOST_STREAMS) return undefined;
    const ending = new AbortController();
    const messages = this.#messages(filter, ending.signal);
    const close = () => {
      this.#open.delete(stream);
      ending.abort();
    };
    const stream: OpenStream = { close, handedOverAt: this.#clock.now() };
    this.#open.add(stream);
    return this.#readable(messages, stream);
  }

  #readable(messages: AsyncIterator<string>, stream: OpenStream): ReadableStream<Uint8Array> {
    const { close } = stream;
    const now = () => this.#clock.now();
    const encoder = new TextEncoder();
    return new ReadableStream({
      async pull(controller) {
        stream.handedOverAt = undefined;
        try {
          const { value, done } = await messages.next();
          if (!done) {
            stream.handedOverAt = now();
            return controller.enqueue(encoder.encode(value));
          }
          close();
          controller.close();
        } catch (error) {
          close();
          controller.error(error);
        }
      },
      cancel: close,
    }, { highWaterMark: 0 });
  }

  /** One that takes nothing any more. */
  #stalled(): OpenStream | undefined {
    const latest = this.#clock.now() - STALLED_MS;
    return [...this.#open].find(({ handedOverAt = Infinity }) => handedOverAt <= latest);
  }

  async *#messages(filter: string, signal: AbortSignal): AsyncGenerator<string> {
    const sent = new Map<string, string>();
    let silentMs = 0;
    while (!signal.aborted) {
      const sections = await this.#options.sections(filter);
      const changed = sections.filter(({ id, html }) => sent.get(id) !== html);
      for (const { id, html } of changed) sent.set(id, html);
      if (changed.length > 0) {
        silentMs = 0;
        yield changed.map(message).join("");
      } else if (silentMs >= SILENCE_MS) {
        silentMs = 0;
        yield ": nothing has changed\n\n";
      }
      await this.#clock.sleep(PERIOD_MS, signal).catch(() => {});
      silentMs += PERIOD_MS;
    }
  }
}

/** JSON has no line ends, which would end the data. */
function message(section: PageSection): string {
  return `event: section\ndata: ${JSON.stringify(section)}\n\n`;
}
