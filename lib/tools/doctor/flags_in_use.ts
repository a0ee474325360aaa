import { findFlag, type FlagValues } from "../../config/flags.ts";
import { givenFlags, parseFlags } from "../../config/parse_flags.ts";
import { askControl } from "../control/control_client.ts";

/** Flags that say how `doctor` works, not what a start does. */
const OWN = ["json", "verbose", "control-socket", "state-dir", "v", "vmodule", "logging-format"];

/** The units of `deploy`, in the order in which they are looked for. */
const UNITS = ["kube-relay.service", "kube-relay-userspace.service"];
const UNIT_FOLDERS = [
  "/etc/systemd/system",
  "/usr/local/lib/systemd/system",
  "/lib/systemd/system",
];

/** The flags of a start, and where they come from. */
export interface UsedFlags {
  readonly flags: FlagValues;
  readonly source: string;
}

/**
 * Returns the given flags, or without any about a start those of the running process, or those of the unit.
 * Never rejects.
 */
export async function flagsInUse(
  given: FlagValues,
  controlSocket: string,
  readTextFile: (path: string) => Promise<string> = Deno.readTextFile,
): Promise<UsedFlags> {
  if (givenFlags(given).some((name) => !OWN.includes(name))) {
    return { flags: given, source: "this command line" };
  }
  try {
    const flags = await askControl(controlSocket, { route: "/flags" });
    return { flags: { ...ofStart(flags), ...given }, source: "the running process" };
  } catch {
    // No process, or one of an older release.
  }
  for (const path of UNITS.flatMap((name) => UNIT_FOLDERS.map((folder) => `${folder}/${name}`))) {
    try {
      const flags = await unitFlags(await readTextFile(path), readTextFile);
      return { flags: { ...flags, ...given }, source: path };
    } catch {
      // Usually there is no such file.
    }
  }
  return { flags: given, source: "a start without flags" };
}

/** Returns the flags of the command line in a unit. */
async function unitFlags(
  unit: string,
  readTextFile: (path: string) => Promise<string>,
): Promise<FlagValues> {
  const [, line = ""] = /^ExecStart=[-@:+!]*\S+[ \t]*(.*)$/m.exec(unit) ?? [];
  const variables = new Map<string, string>();
  for (const [, path = ""] of unit.matchAll(/^EnvironmentFile=-?(\S+)$/gm)) {
    const text = await readTextFile(path).catch(() => "");
    for (const [, name = "", value = ""] of text.matchAll(/^(\w+)=["']?(.*?)["']?[ \t]*$/gm)) {
      variables.set(name, value);
    }
  }
  // systemd splits the value of a variable without quotes at blanks.
  const words = line.replace(/\$\{?(\w+)\}?/g, (_, name) => variables.get(name) ?? "");
  return ofStart(parseFlags(words.split(/\s+/)).values);
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
