/** One block. */
export interface MarkdownBlock {
  /** The word behind the fence; empty where there is none. */
  readonly language: string;
  readonly text: string;
  /** Number of its first line in the page, from 1. */
  readonly line: number;
}

/** All blocks in order, without the indentation that a list gives them. Throws for one without an end. */
export function extractBlocks(page: string): readonly MarkdownBlock[] {
  const blocks: MarkdownBlock[] = [];
  let open:
    | { readonly indent: string; readonly language: string; readonly line: number }
    | undefined;
  let lines: string[] = [];
  for (const [index, line] of page.split("\n").entries()) {
    const [, indent, language] = /^(\s*)```(\S*)\s*$/.exec(line) ?? [];
    if (open === undefined) {
      if (indent !== undefined) open = { indent, language: language!, line: index + 2 };
    } else if (indent !== undefined) {
      blocks.push({ language: open.language, text: `${lines.join("\n")}\n`, line: open.line });
      [open, lines] = [undefined, []];
    } else lines.push(line.startsWith(open.indent) ? line.slice(open.indent.length) : line);
  }
  if (open) throw new SyntaxError(`Cannot read a page: the block at line ${open.line} has no end`);
  return blocks;
}
