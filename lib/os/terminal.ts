/**
 * A full-screen terminal: the only file with control sequences. They are few and common to every
 * terminal since the VT220, so no library is needed.
 *
 * @module
 */
import { writeText } from "./write_text.ts";

/** Columns and rows. */
export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/** A key, by its name in `Keys` or its letter. */
export type Key = string;

/** A full screen, until it is closed. */
export interface Terminal extends Disposable {
  readonly size: TerminalSize;
  /** Aborted when the terminal closes, or a key requests the end by a signal. */
  readonly ended: AbortSignal;
  /** Shows only these lines. They must fit {@linkcode size} and contain no cursor movements. */
  draw(lines: readonly string[]): void;
  /**
   * Calls for each key and, without one, when the screen must be redrawn: after a resize or a stop.
   */
  listen(listener: (key?: Key) => void): void;
}

const KEYS: Readonly<Record<string, Key>> = {
  "\x1b[A": "up",
  "\x1b[B": "down",
  "\x1bOA": "up",
  "\x1bOB": "down",
  "\x1b[5~": "page up",
  "\x1b[6~": "page down",
  "\x1b[H": "home",
  "\x1b[F": "end",
  "\x1b[1~": "home",
  "\x1b[4~": "end",
  "\x1b": "escape",
  "\r": "enter",
  "\n": "enter",
  "\x7f": "backspace",
  "\b": "backspace",
};

/** The alternate screen, which preserves the former content, without a cursor. */
const ENTER = "\x1b[?1049h\x1b[?25l";
const LEAVE = "\x1b[?25h\x1b[?1049l";
/** A terminal that supports these shows a frame at once; others ignore them. */
const [BEGIN_FRAME, END_FRAME] = ["\x1b[?2026h", "\x1b[?2026l"];
const [HOME, REST_OF_LINE, REST_OF_SCREEN] = ["\x1b[H", "\x1b[K", "\x1b[J"];

/** Returns one frame, which overwrites the former one without a blank in between. */
export function frameText(lines: readonly string[]): string {
  const rows = lines.map((line) => `${line}${REST_OF_LINE}`).join("\r\n");
  return `${BEGIN_FRAME}${HOME}${rows}${REST_OF_SCREEN}${END_FRAME}`;
}

/** Splits input into keys; unknown control sequences are left out. */
export function keysOf(text: string): readonly Key[] {
  // deno-lint-ignore no-control-regex
  const tokens = text.match(/\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|[\s\S]/gu) ?? [];
  return tokens.flatMap((token) => {
    const key = KEYS[token];
    if (key !== undefined) return [key];
    return /^[\x20-\x7e]$/.test(token) ? [token] : [];
  });
}

/** Opens the terminal of standard input and output, until disposal or the exit of the process. */
export function openTerminal(): Terminal {
  return new SystemTerminal();
}

class SystemTerminal implements Terminal {
  readonly #ended = new AbortController();
  readonly #hasKeys = Deno.stdin.isTerminal();
  readonly #handlers: readonly (readonly [Deno.Signal, () => void])[];
  #listener: (key?: Key) => void = () => {};
  #isOpen = false;
  readonly #leave = () => this.#restore();

  constructor() {
    this.#handlers = [
      ["SIGWINCH", () => this.#listener()],
      ["SIGTSTP", () => this.#stop()],
      ["SIGCONT", () => this.#goOn()],
      ["SIGHUP", () => this.#ended.abort()],
      ["SIGQUIT", () => this.#ended.abort()],
    ];
    for (const [signal, handler] of this.#handlers) Deno.addSignalListener(signal, handler);
    // A second Ctrl-C, which ends the process at once, must also leave a usable terminal.
    globalThis.addEventListener("unload", this.#leave);
    this.#enter();
    if (this.#hasKeys) void this.#readKeys();
  }

  get size(): TerminalSize {
    return Deno.consoleSize();
  }

  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  draw(lines: readonly string[]): void {
    if (this.#isOpen) writeText(Deno.stdout, frameText(lines));
  }

  listen(listener: (key?: Key) => void): void {
    this.#listener = listener;
  }

  [Symbol.dispose](): void {
    this.#listener = () => {};
    for (const [signal, handler] of this.#handlers) Deno.removeSignalListener(signal, handler);
    globalThis.removeEventListener("unload", this.#leave);
    this.#restore();
  }

  #enter(): void {
    // Keys arrive one by one; Ctrl-C and Ctrl-Z stay signals.
    if (this.#hasKeys) Deno.stdin.setRaw(true, { cbreak: true });
    writeText(Deno.stdout, ENTER);
    this.#isOpen = true;
  }

  #restore(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    try {
      writeText(Deno.stdout, LEAVE);
      if (this.#hasKeys) Deno.stdin.setRaw(false);
    } catch {
      // The terminal is closed, so there is nothing to restore.
    }
  }

  /** Restores the terminal for the shell; SIGSTOP, because SIGTSTP would only arrive here again. */
  #stop(): void {
    this.#restore();
    Deno.kill(Deno.pid, "SIGSTOP");
  }

  #goOn(): void {
    if (this.#isOpen || this.#ended.signal.aborted) return;
    this.#enter();
    this.#listener();
  }

  async #readKeys(): Promise<void> {
    const buffer = new Uint8Array(256);
    const decoder = new TextDecoder();
    try {
      for (;;) {
        const length = await Deno.stdin.read(buffer);
        if (length === null) break;
        const text = decoder.decode(buffer.subarray(0, length), { stream: true });
        for (const key of keysOf(text)) this.#listener(key);
      }
    } catch {
      // A closed terminal causes an error of its own.
    }
    this.#ended.abort();
  }
}
