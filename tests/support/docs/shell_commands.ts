/**
 * Takes a piece of shell apart into the programs that it starts: the small part of the grammar that
 * pages of instructions need. Whatever else it meets is an error, so that nothing goes unseen.
 *
 * @module
 */

/** One program with its arguments. */
export interface ShellCommand {
  /** Program and arguments, quotes taken off. */
  readonly words: readonly string[];
  /** Files that input or output is redirected to. */
  readonly files: readonly string[];
}

/** The end of a command. */
const SEPARATORS = /^(&&|\|\||;|\||\n|\(|\))/;
/** Syntax that only a shell could interpret. */
const TOO_MUCH = /^(\$\(|`|<<|\{|&(?!&))/;

/** All commands in order. Throws a SyntaxError for unknown syntax. */
export function parseShell(text: string): readonly ShellCommand[] {
  const commands: ShellCommand[] = [];
  let words: string[] = [];
  let files: string[] = [];
  let redirecting = false;
  let rest = text.replaceAll(/\\\n\s*/g, " ");
  const end = () => {
    if (words.length > 0) commands.push({ words, files });
    [words, files] = [[], []];
  };
  while (rest !== "") {
    const blank = /^([ \t]+|#[^\n]*)/.exec(rest)?.[0];
    const separator = SEPARATORS.exec(rest)?.[0];
    if (TOO_MUCH.test(rest)) throw new SyntaxError(`Cannot read shell at '${rest.slice(0, 20)}'`);
    if (blank !== undefined) rest = rest.slice(blank.length);
    else if (separator !== undefined) {
      end();
      rest = rest.slice(separator.length);
    } else if (/^[<>]/.test(rest)) {
      redirecting = true;
      rest = rest.replace(/^(>>|[<>])/, "");
    } else {
      const { word, length } = readWord(rest);
      (redirecting ? files : words).push(word);
      redirecting = false;
      rest = rest.slice(length);
    }
  }
  end();
  return commands;
}

/** Reads a word at the beginning of a text: quoted and unquoted parts that touch. */
function readWord(text: string): { word: string; length: number } {
  let word = "";
  let length = 0;
  for (;;) {
    const rest = text.slice(length);
    const part = /^'([^']*)'|^"([^"`]*)"|^((?:\\.|[^\s'"`;|&()<>\\])+)/.exec(rest);
    if (!part) break;
    word += part[1] ?? part[2] ?? part[3]!.replaceAll(/\\(.)/g, "$1");
    length += part[0].length;
  }
  if (length === 0) throw new SyntaxError(`Cannot read shell at '${text.slice(0, 20)}'`);
  return { word, length };
}
