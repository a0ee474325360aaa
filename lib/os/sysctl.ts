/**
 * Kernel settings through the tool `sysctl`: Deno opens `/proc/sys` only with all permissions.
 *
 * @module
 */
import { CommandError, type CommandRunner } from "./command_runner.ts";

/** The result of reading settings. */
interface SysctlReading {
  /** Values by name in the kernel's spelling, trimmed. */
  readonly values: ReadonlyMap<string, string>;
  /** The reasons for the names missing in `values`. */
  readonly problems: ReadonlyMap<string, SysctlProblem>;
}

/** The reason why a setting could not be read. */
export interface SysctlProblem {
  /** `unknown`: this kernel, or this network namespace, does not have the setting now. */
  readonly kind: "unknown" | "no tool" | "failed";
  readonly reason: string;
}

/** Reads and writes kernel settings. Never throws. */
export interface Sysctl {
  /** Reads all names by one command; an unreadable one does not affect the others. */
  read(names: readonly string[]): Promise<SysctlReading>;
  /**
   * Sets one. Resolves to the reason of a refusal. Read it again, because some kernels round or
   * ignore.
   */
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
    // Not -n: values alone would not show which name was unknown. Exit codes of procps and busybox
    // differ if one of many is unknown, so the output decides.
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
    // procps before 4.0 prints an error but exits with 0 for some refusals.
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

/** Returns the tool's message without its own name and the key, which the caller knows. */
function reasonOf(stderr: string): string {
  return (stderr.trim().split("\n")[0] ?? "")
    .replace(/^sysctl: (error: )?/, "")
    .replace(/^(error )?(setting|reading) key "?[^"\s:]*"?: /, "")
    .replace(/^cannot (stat|open) "?\S+?"?: /, "")
    .replace(/^(permission denied) on key "\S+"$/, "$1")
    // procps prints this too for a read-only file, whatever the value.
    .replace(/^Invalid argument$/, "read-only here, or no value that it takes (Invalid argument)")
    .trim();
}
