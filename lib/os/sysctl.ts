/**
 * Kernel settings through the tool `sysctl`: Deno opens `/proc/sys` only with all permissions.
 *
 * @module
 */
import { CommandError, type CommandOptions, type CommandRunner } from "./command_runner.ts";

/** The reason why a setting could not be read. */
export interface SysctlProblem {
  /** `unknown`: this kernel, or this network namespace, does not have the setting now. */
  readonly kind: "unknown" | "no tool" | "failed";
  readonly reason: string;
}

/** Reads and writes the settings of this machine and network namespace. Never throws. */
export class Sysctl {
  constructor(private readonly commands: CommandRunner) {}

  /**
   * Reads all names by one command; an unreadable one does not affect the others. Resolves to the values
   * by name in the kernel's spelling, trimmed, and to the reasons for the names missing in them.
   */
  async read(
    names: readonly string[],
    options: Pick<CommandOptions, "mayBeRecent"> = {},
  ): Promise<{
    readonly values: ReadonlyMap<string, string>;
    readonly problems: ReadonlyMap<string, SysctlProblem>;
  }> {
    const values = new Map<string, string>();
    const problems = new Map<string, SysctlProblem>();
    if (names.length === 0) return { values, problems };
    try {
      // Not -n: values alone would not show which name was unknown. Exit codes of procps and busybox
      // differ if one of many is unknown, so the output decides.
      const { stdout, stderr } = await this.commands.run("sysctl", names, options);
      for (const line of stdout.split("\n")) {
        const [, name, value] = /^(\S+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
        if (name !== undefined && value !== undefined) values.set(name, value);
      }
      for (const name of names) {
        if (!values.has(name)) problems.set(name, problemOf(name, stderr));
      }
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      const isMissing = error.kind === "not-found" || error.kind === "not-permitted";
      const kind = isMissing ? "no tool" : "failed";
      for (const name of names) problems.set(name, { kind, reason: error.message });
    }
    return { values, problems };
  }

  /**
   * Sets all by one command; a refused one does not affect the others. Resolves to the reasons of
   * refusals by name. Read them again, because some kernels round or ignore.
   */
  async write(values: ReadonlyMap<string, string>): Promise<ReadonlyMap<string, string>> {
    const reasons = new Map<string, string>();
    if (values.size === 0) return reasons;
    const reportAll = (reason: string) => {
      for (const name of values.keys()) reasons.set(name, reason);
    };
    try {
      const args = [...values].map(([name, value]) => `${name}=${value}`);
      const { code, stderr } = await this.commands.run("sysctl", ["-w", ...args]);
      for (const name of values.keys()) {
        const line = lineAbout(name, stderr);
        if (line !== undefined) reasons.set(name, reasonOf(line));
      }
      // procps before 4.0 prints an error but exits with 0 for some refusals.
      const isRefused = code !== 0 || stderr.trim() !== "";
      if (isRefused && reasons.size === 0) {
        reportAll(reasonOf(stderr) || `sysctl ended with code ${code}`);
      }
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      reportAll(error.message);
    }
    return reasons;
  }
}

/** procps: `cannot stat /proc/sys/a/b: …`; busybox: `error: 'a.b' is an unknown key`. */
function problemOf(name: string, stderr: string): SysctlProblem {
  const line = lineAbout(name, stderr);
  if (line === undefined || /No such file|unknown key|is not a known key/.test(line)) {
    return { kind: "unknown", reason: "this kernel has no such setting now" };
  }
  return { kind: "failed", reason: reasonOf(line) };
}

function lineAbout(name: string, stderr: string): string | undefined {
  return stderr.split("\n")
    .find((line) => line.includes(name) || line.includes(name.replaceAll(".", "/")));
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
