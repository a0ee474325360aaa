import { createColors } from "picocolors";

/** The colours, width and encoding of a text for a terminal. */
export interface TextLook {
  /** Width of the terminal. @default {80} */
  readonly columns?: number;
  /** @default {false} */
  readonly color?: boolean;
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
