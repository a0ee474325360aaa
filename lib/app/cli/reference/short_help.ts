const LONGEST = 60;

/** The first clause, cut at a word. */
export function shortHelp(help: string): string {
  const [clause = ""] = help.split(/[;:.] /);
  if (clause.length <= LONGEST) return clause;
  const cut = clause.slice(0, LONGEST - 1);
  return `${cut.slice(0, cut.lastIndexOf(" "))}\u2026`;
}
