import type { Clock } from "../../../os/clock.ts";
import type { PageSection } from "./page_document.ts";

/** Most streams at a time; each renders the page once a second. */
export const MOST_STREAMS = 8;

/** Time from one rendering to the next. */
const PERIOD_MS = 1000;
/** Longest silence of a stream: its reader has to notice a dead connection. */
const SILENCE_MS = 15_000;

/**
 * After this time without reading, a reader, such as a stopped program, loses its stream to the
 * next one.
 */
const STALLED_MS = 60_000;

/** Returns all current sections, for a filter. */
type Sections = (filter: string) => Promise<readonly PageSection[]>;

/** A stream with a reader. */
interface OpenStream {
  readonly close: () => void;
  /**
   * The time at which the reader got data that it has not taken yet; `undefined` while the reader
   * waits.
   */
  handedOverAt: number | undefined;
}

/** The page's streams of server-sent events: each sends the sections that changed. Idle without readers. */
export class PageEvents {
  readonly #clock: Clock;
  readonly #sections: Sections;
  readonly #open = new Set<OpenStream>();

  constructor({ clock }: { readonly clock: Clock }, { sections }: { readonly sections: Sections }) {
    this.#clock = clock;
    this.#sections = sections;
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

  /** A stream whose reader has stopped taking data. */
  #stalled(): OpenStream | undefined {
    const latest = this.#clock.now() - STALLED_MS;
    return [...this.#open].find(({ handedOverAt = Infinity }) => handedOverAt <= latest);
  }

  async *#messages(filter: string, signal: AbortSignal): AsyncGenerator<string> {
    const sent = new Map<string, string>();
    let silentMs = 0;
    while (!signal.aborted) {
      const sections = await this.#sections(filter);
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

/** JSON contains no line end, which would end the data. */
function message(section: PageSection): string {
  return `event: section\ndata: ${JSON.stringify(section)}\n\n`;
}
