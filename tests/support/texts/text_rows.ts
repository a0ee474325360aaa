/**
 * Reads a table of cases as text: a case begins with a line that names it, and each of its indented
 * lines is a cell. `\n` in a cell is the end of a line.
 */
export function textRows(text: string): readonly (readonly [name: string, ...cells: string[]])[] {
  return text.trim().split(/\n(?! )/).map((block) => {
    const [name = "", ...cells] = block.split("\n  ");
    return [name, ...cells.map((cell) => cell.replaceAll("\\n", "\n"))];
  });
}
