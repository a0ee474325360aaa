/**
 * A kernel as a process: Debian's user-mode Linux, on the machine's own files, for tests of
 * features that the kernel of the machine may lack, such as IPVS.
 *
 * The guest sees the host's root read-only. It has a network of its own, with nothing in it but
 * `lo`.
 */
import { runTool } from "../drivers/run_tool.ts";
import { program, type Requirement } from "../requirement.ts";

/** The program to run in the guest, and its input. */
export interface GuestOptions {
  /** The command with its arguments, run as root. */
  readonly command: readonly string[];
  /** Variables of its environment. */
  readonly environment: Readonly<Record<string, string>>;
  /** The folder in which it runs. */
  readonly folder: string;
  /** Modules of the kernel that are loaded before. Those that they need come along. */
  readonly modules: readonly string[];
  /** Folders that the guest may write to; its files disappear with the guest. */
  readonly writable: readonly string[];
  /** For all of it, the boot included. */
  readonly limitSeconds: number;
  readonly memoryMiB: number;
  /** Called with the output of the guest as it arrives. */
  readonly onOutput: (bytes: Uint8Array) => void;
  /** Ends the guest. */
  readonly signal?: AbortSignal;
}

/** The end of the guest. */
export type GuestEnd =
  | { readonly kind: "ended"; readonly code: number }
  | { readonly kind: "too long" }
  | { readonly kind: "died"; readonly words: string };

const KERNEL = "linux.uml";
/** The source of the library that is loaded into it on processors with AMX. */
const WHOLE_XSTATE = new URL("../../uml/whole_xstate.c", import.meta.url).pathname;
const INIT = new URL("../../uml/guest_init.sh", import.meta.url).pathname;
/** The time for which a guest that was asked to end may continue until it is killed. */
const GRACE_SECONDS = 5;
/** The exit codes of coreutils' `timeout`. */
const TIMED_OUT: readonly number[] = [124, 137];

/** Returns the requirements of a guest, for `isMissing()`. */
export function userModeLinuxRequirements(): Requirement[] {
  const cure = "Debian package user-mode-linux";
  const [what, met] = program(KERNEL);
  return [
    [`${what} (${cure})`, met],
    [`modules of its kernel in /usr/lib/uml/modules (${cure})`, hasModules()],
    program("modprobe"),
    program("timeout"),
    ["a machine of x86-64: user-mode Linux is for no other", Deno.build.arch === "x86_64"],
    ...(hasAmx() ? [program("gcc")] : []),
  ];
}

/** Boots a guest, runs the command in it, and waits for its end. */
export async function runInGuest(options: GuestOptions): Promise<GuestEnd> {
  const job = await Deno.makeTempDir({ prefix: "kube-relay-uml-" });
  try {
    await writeJob(job, options);
    const { code, words } = await boot(job, options);
    const status = await Deno.readTextFile(`${job}/status`).catch(() => "");
    if (/^\d+\n$/.test(status)) return { kind: "ended", code: Number(status) };
    if (TIMED_OUT.includes(code)) return { kind: "too long" };
    return { kind: "died", words };
  } finally {
    await Deno.remove(job, { recursive: true });
  }
}

/** As guest_init.sh reads it. */
async function writeJob(job: string, options: GuestOptions): Promise<void> {
  const { command, environment, folder, modules, writable } = options;
  const lines = [
    `cd ${quoted(folder)} || exit`,
    ...Object.entries(environment).map(([name, value]) => `export ${name}=${quoted(value)}`),
    `exec ${command.map(quoted).join(" ")}`,
  ];
  await Deno.writeTextFile(`${job}/command`, lines.map((line) => `${line}\n`).join(""));
  await Deno.writeTextFile(`${job}/modules`, modules.join(" "));
  await Deno.writeTextFile(`${job}/writable`, writable.map((path) => `${path}\n`).join(""));
}

async function boot(
  job: string,
  { limitSeconds, memoryMiB, onOutput, signal }: GuestOptions,
): Promise<{ readonly code: number; readonly words: string }> {
  const kernel = [
    ...["root=/dev/root", "rootfstype=hostfs", "ro", `init=${INIT}`, `UML_JOB=${job}`],
    ...[`mem=${memoryMiB}M`, `uml_dir=${job}/`, "umid=guest", "quiet", "loglevel=0"],
    // The console of the guest is our output, and has no input: a second one would ask for xterm.
    ...["con=null", "con0=null,fd:1", "ssl=null"],
  ];
  // The kernel is several processes of the host. `timeout` puts them into a group and ends them all.
  const limit = [`--kill-after=${GRACE_SECONDS}`, String(limitSeconds)];
  const preload = hasAmx() ? ["env", `LD_PRELOAD=${await compileWholeXstate(job)}`] : [];
  const child = new Deno.Command("timeout", {
    args: [...limit, ...preload, KERNEL, ...kernel],
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    ...(signal && { signal }),
  }).spawn();
  const [{ code }, words] = await Promise.all([
    child.status,
    new Response(child.stderr).text(),
    child.stdout.pipeTo(new WritableStream({ write: onOutput })),
  ]);
  return { code, words };
}

/** Whether the state of this processor is longer than user-mode Linux knows. */
function hasAmx(): boolean {
  const args = ["-q", "-m", "1", "-w", "amx_tile", "/proc/cpuinfo"];
  return new Deno.Command("grep", { args }).outputSync().success;
}

async function compileWholeXstate(job: string): Promise<string> {
  const library = `${job}/whole_xstate.so`;
  await runTool("gcc", ["-shared", "-fPIC", "-O2", "-o", library, WHOLE_XSTATE]);
  return library;
}

function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}

function hasModules(): boolean {
  try {
    return [...Deno.readDirSync("/usr/lib/uml/modules")].length > 0;
  } catch {
    return false;
  }
}
