import { createColors } from "picocolors";

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
