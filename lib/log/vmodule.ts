/**
 * `--vmodule`: more detail from some components only. kube-proxy's patterns name Go files; here
 * they name components, which loggers get from `with({ component })`, such as `reflector`. A
 * component has the name of its file.
 *
 * @module
 */

/** One `pattern=N` of `--vmodule`, with the field names of the configuration file. */
export interface VmoduleEntry {
  /** Name of a component; `*`, `?` and `[a-z]` work as in a shell. */
  readonly filePattern: string;
  readonly verbosity: number;
}

/** Returns the verbosity of a component by the patterns; 0 if none matches, as in klog. */
export function vmoduleVerbosity(entries: readonly VmoduleEntry[], component: string): number {
  // If several patterns match, klog uses the first.
  return entries.find(({ filePattern }) => fits(filePattern, component))?.verbosity ?? 0;
}

/** Matches names like a shell. A loop, because a pattern must never become a regular expression. */
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
