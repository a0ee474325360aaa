/**
 * `--vmodule`: more detail from some parts of the program only. kube-proxy's patterns name Go files;
 * ours name the parts that a log is made for by `with({ component })`, such as `reflector`. A part is
 * named after its file, so that who reads the source finds the name.
 *
 * @module
 */

/** One `pattern=N` of `--vmodule`, with the field names of the configuration file. */
export interface VmoduleEntry {
  /** Name of a component; `*`, `?` and `[a-z]` stand for what they do in a shell. */
  readonly filePattern: string;
  readonly verbosity: number;
}

/** The verbosity that the patterns give a component; 0 when none fits, as in klog. */
export function vmoduleVerbosity(entries: readonly VmoduleEntry[], component: string): number {
  // Of several patterns that fit, klog takes the first.
  return entries.find(({ filePattern }) => fits(filePattern, component))?.verbosity ?? 0;
}

/** As a shell compares names. Written as a walk: a pattern never becomes a regular expression. */
function fits(pattern: string, name: string): boolean {
  const [first, ...rest] = pattern;
  if (first === undefined) return name === "";
  if (first === "*") {
    return fits(rest.join(""), name) || (name !== "" && fits(pattern, name.slice(1)));
  }
  if (name === "") return false;
  const set = /^\[(\^?)([^\]]+)\]/.exec(pattern);
  if (set) {
    const [{ length }, negated = "", members = ""] = set;
    return isMember(members, name[0]!) !== (negated !== "") &&
      fits(pattern.slice(length), name.slice(1));
  }
  return (first === "?" || first === name[0]) && fits(rest.join(""), name.slice(1));
}

function isMember(members: string, character: string): boolean {
  return [...members.matchAll(/(.)-(.)|(.)/g)].some(([, low, high, single]) =>
    single === undefined ? low! <= character && character <= high! : single === character
  );
}
