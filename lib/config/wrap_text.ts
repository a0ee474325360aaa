/** Width and indentation of the lines. */
interface WrapOptions {
  /** Longest line, indent included. */
  readonly width: number;
  /** Blanks before each line. @default {0} */
  readonly indent?: number;
}

/** Breaks at blanks; a word longer than a line stays whole. */
export function wrapText(text: string, { width, indent = 0 }: WrapOptions): string {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(/\s+/)) {
    if (line !== "" && line.length + 1 + word.length > width - indent) {
      lines.push(line);
      line = word;
    } else line = line === "" ? word : `${line} ${word}`;
  }
  lines.push(line);
  return lines.map((each) => " ".repeat(indent) + each).join("\n");
}
