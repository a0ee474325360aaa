/**
 * Shows a program's output as a terminal would. Supports only the few control sequences of the live
 * view; any other one is an error.
 *
 * @module
 */

// deno-lint-ignore no-control-regex
const TOKEN = /\x1b\[\??[0-9;]*[A-Za-z]|\r|\n|[^\x00-\x1f\x7f]/uy;

/** A screen with an alternate one, as xterm has it. */
export class VirtualScreen {
  /** Whether the alternate screen is shown. */
  isAlternate = false;
  isCursorVisible = true;
  /** Times at which text was erased before it was overwritten: a reader sees this as flicker. */
  blanked = 0;
  /** Letters and lines of the alternate screen that had no room; they are cut off. */
  overflows = 0;
  #size: { readonly columns: number; readonly rows: number };
  #main: string[][] = [[]];
  #alternate: string[][] = [[]];
  #row = 0;
  #column = 0;
  #rest = "";

  constructor(size: { readonly columns: number; readonly rows: number }) {
    this.#size = size;
  }

  /** The rows that are seen, without blanks at their ends. */
  get lines(): readonly string[] {
    const cells = this.isAlternate ? this.#alternate : this.#main;
    const seen = this.isAlternate ? cells : cells.slice(-this.#size.rows);
    return seen.map((row) => Array.from(row, (cell) => cell ?? " ").join("").trimEnd());
  }

  get text(): string {
    return this.lines.join("\n").trimEnd();
  }

  resize(size: { readonly columns: number; readonly rows: number }): void {
    this.#size = size;
    this.#alternate.length = Math.min(this.#alternate.length, size.rows);
  }

  /** Takes output. A sequence that is cut off waits for its rest. */
  write(output: string): void {
    const text = this.#rest + output;
    let index = 0;
    while (index < text.length) {
      TOKEN.lastIndex = index;
      const token = TOKEN.exec(text)?.[0];
      if (token === undefined) break;
      this.#take(token);
      index += token.length;
    }
    this.#rest = text.slice(index);
    if (this.#rest.length > 20) throw new Error(`Unknown output ${JSON.stringify(this.#rest)}`);
  }

  #take(token: string): void {
    if (token === "\r") this.#column = 0;
    else if (token === "\n") this.#lineFeed();
    else if (token.startsWith("\x1b")) this.#sequence(token.slice(2));
    else this.#letter(token);
  }

  #letter(letter: string): void {
    if (this.isAlternate && this.#column >= this.#size.columns) return void this.overflows++;
    (this.#rows()[this.#row] ??= [])[this.#column++] = letter;
  }

  #lineFeed(): void {
    if (this.isAlternate && this.#row >= this.#size.rows - 1) return void this.overflows++;
    this.#row++;
    this.#rows()[this.#row] ??= [];
  }

  #sequence(name: string): void {
    if (name === "?1049h" || name === "?1049l") {
      this.isAlternate = name.endsWith("h");
      if (this.isAlternate) [this.#alternate, this.#row, this.#column] = [[[]], 0, 0];
      else [this.#row, this.#column] = [this.#main.length - 1, 0];
    } else if (name === "?25h" || name === "?25l") this.isCursorVisible = name.endsWith("h");
    else if (name === "H") [this.#row, this.#column] = [0, 0];
    else if (name === "K") (this.#rows()[this.#row] ??= []).length = this.#column;
    else if (name === "J") this.#eraseRest();
    else if (!/^(\?2026[hl]|[0-9;]*m)$/.test(name)) {
      throw new Error(`Unknown control sequence ESC [ ${name}`);
    }
  }

  #eraseRest(): void {
    if (this.#row === 0 && this.#column === 0) this.blanked++;
    const rows = this.#rows();
    rows.length = this.#row + 1;
    rows[this.#row]!.length = this.#column;
  }

  #rows(): string[][] {
    return this.isAlternate ? this.#alternate : this.#main;
  }
}
