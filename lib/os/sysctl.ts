/**
 * Kernel settings through the tool `sysctl`: `/proc/sys` itself is closed to a Deno process that has
 * less than all permissions.
 *
 * @module
 */
import { CommandError, type CommandRunner } from "./command_runner.ts";

/** What was read. */
interface SysctlReading {
  /** Values by name, as the kernel spells them, blanks at the ends left out. */
  readonly values: ReadonlyMap<string, string>;
  /** Why names are missing in `values`, by name. */
  readonly problems: ReadonlyMap<string, SysctlProblem>;
}

/** Why a setting could not be read. */
export interface SysctlProblem {
  /** `unknown`: this kernel, or this network namespace, has no such setting now. */
  readonly kind: "unknown" | "no tool" | "failed";
  readonly reason: string;
}

/** Reads and writes kernel settings. Never throws. */
export interface Sysctl {
  /** Reads all names by one command; what can't be read hinders nothing else. */
  read(names: readonly string[]): Promise<SysctlReading>;
  /** Sets one. Resolves to the reason of a refusal. Read again: some kernels round or ignore. */
  write(name: string, value: string): Promise<string | undefined>;
}

/** The settings of this machine and network namespace. */
export function createSysctl(commands: CommandRunner): Sysctl {
  return {
    read: (names) => read(commands, names),
    write: (name, value) => write(commands, { name, value }),
  };
}

async function read(commands: CommandRunner, names: readonly string[]): Promise<SysctlReading> {
  const values = new Map<string, string>();
  const problems = new Map<string, SysctlProblem>();
  if (names.length === 0) return { values, problems };
  try {
    // Not -n: with values alone nobody could tell which of the names was unknown. Exit codes of procps
    // and busybox differ when one of many is unknown, so what was printed decides.
    const { stdout, stderr } = await commands.run("sysctl", names);
    for (const line of stdout.split("\n")) {
      const [, name, value] = /^(\S+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
      if (name !== undefined && value !== undefined) values.set(name, value);
    }
    for (const name of names) {
      if (!values.has(name)) problems.set(name, problemOf(name, stderr));
    }
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    const kind = isMissing(error) ? "no tool" : "failed";
    for (const name of names) problems.set(name, { kind, reason: error.message });
  }
  return { values, problems };
}

/** procps: `cannot stat /proc/sys/a/b: …`; busybox: `error: 'a.b' is an unknown key`. */
function problemOf(name: string, stderr: string): SysctlProblem {
  const line = stderr.split("\n")
    .find((candidate) => candidate.includes(name) || candidate.includes(name.replaceAll(".", "/")));
  if (line === undefined || /No such file|unknown key|is not a known key/.test(line)) {
    return { kind: "unknown", reason: "this kernel has no such setting now" };
  }
  return { kind: "failed", reason: reasonOf(line) };
}

async function write(
  commands: CommandRunner,
  { name, value }: { readonly name: string; readonly value: string },
): Promise<string | undefined> {
  try {
    const { code, stderr } = await commands.run("sysctl", ["-w", `${name}=${value}`]);
    // procps before 4.0 complains and ends with 0 for some refusals.
    if (code === 0 && stderr.trim() === "") return undefined;
    return reasonOf(stderr) || `sysctl ended with code ${code}`;
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    return error.message;
  }
}

function isMissing({ kind }: CommandError): boolean {
  return kind === "not-found" || kind === "not-permitted";
}

/** The tool's words without its own name and the key, which the caller knows. */
function reasonOf(stderr: string): string {
  return (stderr.trim().split("\n")[0] ?? "")
    .replace(/^sysctl: (error: )?/, "")
    .replace(/^(error )?(setting|reading) key "?[^"\s:]*"?: /, "")
    .replace(/^cannot (stat|open) "?\S+?"?: /, "")
    .replace(/^(permission denied) on key "\S+"$/, "$1")
    // procps says so too where the file has no right to be written, whatever the value.
    .replace(/^Invalid argument$/, "read-only here, or no value that it takes (Invalid argument)")
    .trim();
}
