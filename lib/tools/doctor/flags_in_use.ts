import { findFlag, type FlagValues } from "../../config/flags.ts";
import { givenFlags, parseFlags } from "../../config/parse_flags.ts";
import { askControl } from "../control/control_client.ts";

/** Flags that say how `doctor` works, not what a start does. */
const OWN = ["json", "verbose", "control-socket", "state-dir", "v", "vmodule", "logging-format"];

/** The units of `deploy`, in the order in which they are looked for. */
const UNITS = ["kube-relay.service", "kube-relay-userspace.service"];
const UNIT_FOLDERS = [
  "/etc/systemd/system",
  "/run/systemd/system",
  "/usr/local/lib/systemd/system",
  "/lib/systemd/system",
];

/** How files are read. */
interface UnitFiles {
  readonly readTextFile: (path: string) => Promise<string>;
  readonly readDir: (path: string) => AsyncIterable<Pick<Deno.DirEntry, "name">>;
}

/**
 * Returns the given flags, or without any about a start those of the running process, or those of the unit,
 * and where they come from. `problem` says why the flags of a unit are not known. Never rejects.
 */
export async function flagsInUse(
  given: FlagValues,
  controlSocket: string,
  files: UnitFiles = { readTextFile: Deno.readTextFile, readDir: Deno.readDir },
): Promise<{ readonly flags: FlagValues; readonly source: string; readonly problem?: string }> {
  if (givenFlags(given).some((name) => !OWN.includes(name))) {
    return { flags: given, source: "this command line" };
  }
  try {
    const flags = await askControl(controlSocket, "/flags");
    return { flags: { ...ofStart(flags), ...given }, source: "the running process" };
  } catch {
    // No process, or one of an older release.
  }
  for (const path of UNITS.flatMap((name) => UNIT_FOLDERS.map((folder) => `${folder}/${name}`))) {
    const unit = await files.readTextFile(path).catch(() => undefined);
    if (unit === undefined) continue;
    // The files that change a unit apply in the order of their names; a later folder's name is hidden.
    const paths = new Map<string, string>();
    for (const folder of UNIT_FOLDERS) {
      const place = `${folder}/${path.slice(path.lastIndexOf("/") + 1)}.d`;
      try {
        for await (const { name } of files.readDir(place)) {
          if (name.endsWith(".conf") && !paths.has(name)) paths.set(name, `${place}/${name}`);
        }
      } catch {
        // There is none, or it may not be read.
      }
    }
    const dropIns = [...paths].sort(([one], [other]) => one < other ? -1 : 1).map(([, at]) => at);
    const texts = [unit];
    for (const each of dropIns) texts.push(await files.readTextFile(each).catch(() => ""));
    const flags = await unitFlags(texts.join("\n"), files.readTextFile);
    const source = [path, ...dropIns].join(", ");
    if (flags !== undefined) return { flags: { ...flags, ...given }, source };
    const problem = `${source}: the command line in ExecStart is not understood`;
    return { flags: given, source: "a start without flags", problem };
  }
  return { flags: given, source: "a start without flags" };
}

/** Returns the flags of the command line in a unit; undefined if it is not understood. */
async function unitFlags(
  text: string,
  readTextFile: (path: string) => Promise<string>,
): Promise<FlagValues | undefined> {
  const unit = text.replace(/\\\r?\n/g, " ");
  const valuesOf = (name: string) =>
    [...unit.matchAll(new RegExp(`^${name}[ \\t]*=[ \\t]*(.*?)[ \\t\\r]*$`, "gm"))]
      .map(([, value = ""]) => value);
  // An empty value resets the list.
  const listOf = (name: string) => {
    const values = valuesOf(name);
    return values.slice(values.lastIndexOf("") + 1);
  };
  const variables = new Map<string, string>();
  for (const word of listOf("Environment").flatMap((value) => quotedWords(value) ?? [])) {
    const [, name = "", value = ""] = /^(\w+)=(.*)$/s.exec(unquoted(word)) ?? [];
    // The specifier of k3s.conf; those of ExecStart are refused below.
    variables.set(
      name,
      value.replace(/%([%H])/g, (_, name) => name === "H" ? Deno.hostname() : "%"),
    );
  }
  for (const value of listOf("EnvironmentFile")) {
    const lines = await readTextFile(value.replace(/^-/, "")).catch(() => "");
    const joined = lines.replace(/\\\r?\n/g, "");
    for (const [, name = "", value = ""] of joined.matchAll(/^(\w+)=["']?(.*?)["']?[ \t]*$/gm)) {
      variables.set(name, value);
    }
  }
  // Counts last, as in k3s.conf.
  for (const name of listOf("UnsetEnvironment").flatMap((names) => names.split(/\s+/))) {
    variables.delete(name);
  }
  const words = quotedWords(valuesOf("ExecStart").at(-1) ?? "");
  // A specifier (%i) has a value that only systemd knows.
  if (
    words === undefined || words.length === 0 || /%(?!%)/.test(words.join(" ").replaceAll("%%", ""))
  ) {
    return undefined;
  }
  const valueOf = (_: string, name: string) => variables.get(name) ?? "";
  const argv = words.slice(1).flatMap((word) => {
    const [, alone] = /^\$(\w+)$/.exec(word) ?? [];
    // systemd splits the value of such a variable at blanks.
    if (alone !== undefined) return (quotedWords(valueOf("", alone)) ?? []).map(unquoted);
    return unquoted(word).replace(/\$\{(\w+)\}/g, valueOf).replaceAll("$$", "$").replaceAll(
      "%%",
      "%",
    );
  });
  const { values, positionals, problems } = parseFlags(argv);
  const isStart = positionals.length === 0 || positionals.join(" ") === "run";
  return problems.length === 0 && isStart ? ofStart(values) : undefined;
}

/** Splits at blanks outside quotes, and keeps the quotes; undefined if one does not end. */
function quotedWords(text: string): readonly string[] | undefined {
  const word = /(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')+/gs;
  return text.replace(word, "").trim() === "" ? text.match(word) ?? [] : undefined;
}

/** Takes the quotes and backslashes away. */
function unquoted(word: string): string {
  return word.replace(
    /"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|\\(.)/gs,
    (_, double, single, one) => one ?? (double ?? single).replace(/\\(.)/gs, "$1"),
  );
}

/** Leaves out flags of single verbs. */
function ofStart(flags: object): FlagValues {
  return Object.fromEntries(
    Object.entries(flags).filter(([name]) => {
      const flag = findFlag(name);
      return flag !== undefined && flag.verbs === undefined;
    }),
  );
}
