/**
 * Breaks at blanks; a word longer than a line stays whole. `width`: of a line with the `indent` blanks
 * before it.
 */
export function wrapText(text: string, width: number, indent = 0): string {
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
