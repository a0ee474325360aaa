import { createColors } from "picocolors";
import { wrapText } from "../../config/wrap_text.ts";
import { printableText } from "../../log/printable_text.ts";

/** The colours, width and encoding of a text for a terminal. */
export interface TextLook {
  /** Width of the terminal. @default {80} */
  readonly columns?: number;
  /** @default {false} */
  readonly color?: boolean;
}

/** A width and colors for the lines of a text. */
export interface TextStyle {
  readonly width: number;
  readonly colors: ReturnType<typeof createColors>;
}

/** The style of a look, within these bounds of the width. */
export function textStyle(
  { columns = 80, color = false }: TextLook,
  { least = 60, most = Infinity }: { readonly least?: number; readonly most?: number } = {},
): TextStyle {
  return { width: Math.min(most, Math.max(least, columns)), colors: createColors(color) };
}

/**
 * Makes a text printable and wraps it behind `first`. The lines after the first are indented, by default by
 * the length of `first`.
 */
export function hangingText(
  first: string,
  text: string,
  { width, indent = first.length }: { readonly width: number; readonly indent?: number },
): string {
  return first + wrapText(printableText(text), { width, indent }).slice(indent);
}

/** The meaning of a line of text. A terminal shows it as a color, the status page as a class. */
export type Tone = "plain" | "effect" | "detail" | "good" | "warning" | "bad" | "title" | "inverse";

/** A text and its meaning. */
export interface TonedText {
  readonly tone: Tone;
  readonly text: string;
}

/** Returns what colors a text for a terminal, by tone. */
export function toneColors(color: boolean): Readonly<Record<Tone, (text: string) => string>> {
  const { cyan, dim, green, yellow, red, bold, inverse } = createColors(color);
  return {
    plain: (text) => text,
    effect: cyan,
    detail: dim,
    good: green,
    warning: yellow,
    bad: red,
    title: bold,
    inverse,
  };
}
