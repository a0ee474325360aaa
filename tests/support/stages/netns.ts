/**
 * Network namespaces that a test creates and removes. The host's own network is not touched: both
 * ends of each link are inside the test's namespaces.
 */
import { type CommandResult, systemCommandRunner } from "../../../lib/os/command_runner.ts";
import { DEADLINE_FACTOR } from "../deadline_factor.ts";
import { LineProcess } from "../drivers/line_process.ts";
import { programFile } from "../drivers/program_file.ts";
import { program, type Requirement, ROOT } from "../requirement.ts";

/** Returns the requirements of tests with namespaces, for `isMissing()`. */
export function netnsRequirements(): Requirement[] {
  const requirements = [ROOT, program("ip"), program("sysctl")];
  if (requirements.some(([, met]) => !met)) return requirements;
  return [...requirements, ["the right to make network namespaces (ip netns add)", mayMakeOne()]];
}

function mayMakeOne(): boolean {
  const name = uniqueName("probe");
  const { success } = new Deno.Command("ip", { args: ["netns", "add", name] }).outputSync();
  if (success) new Deno.Command("ip", { args: ["netns", "del", name] }).outputSync();
  return success;
}

/** Of a command that a test waits for. */
const LIMIT = { timeoutMs: 120_000 * DEADLINE_FACTOR };

let made = 0;

/** A name that no other test, file or run has at the same time. */
function uniqueName(label: string): string {
  return `kr-${Deno.pid}-${++made}-${label}`;
}

/** Flags of Deno programs that only tests run. Least rights matter where the product is run. */
const TEST_FLAGS = [
  "--no-prompt",
  "--no-check",
  "--quiet",
  "--unstable-net",
  "--allow-net",
  "--allow-read",
  "--allow-write",
  "--allow-env",
  "--allow-sys",
  "--allow-run",
];

/** The options of a Deno program in a namespace. */
export interface DenoOptions {
  /** @default {rights for everything that test programs do} */
  readonly flags?: readonly string[];
  /** A command that the program is run by, such as `setpriv` with its flags. */
  readonly by?: readonly string[];
}

/**
 * A network namespace. Its disposal ends the processes started in it and removes it with its links.
 */
export class Namespace implements AsyncDisposable {
  readonly #processes = new Set<LineProcess>();

  private constructor(readonly name: string) {}

  /** Makes a namespace whose `lo` is up. The label shows in its name. */
  static async create(label: string): Promise<Namespace> {
    const [namespace] = await Namespace.createAll([label]);
    return namespace!;
  }

  /** As {@linkcode create} for each label, all by one process. */
  static async createAll(labels: readonly string[]): Promise<Namespace[]> {
    const namespaces = labels.map((label) => new Namespace(uniqueName(label)));
    // Duplicate address detection holds an IPv6 address back for a second or two.
    const script = `for name; do
      ip netns add "$name"
      ip -n "$name" link set lo up
      ip netns exec "$name" sysctl -qw net.ipv6.conf.all.accept_dad=0 \
        net.ipv6.conf.default.accept_dad=0
    done`;
    try {
      await succeed("sh", ["-ec", script, "sh", ...namespaces.map(({ name }) => name)]);
    } catch (error) {
      await Namespace.removeAll(namespaces).catch(() => {});
      throw error;
    }
    return namespaces;
  }

  /**
   * Ends the processes started in the namespaces and removes the namespaces, all by one process.
   */
  static async removeAll(namespaces: readonly Namespace[]): Promise<void> {
    const processes = namespaces.flatMap((namespace) => [...namespace.#processes]);
    await Promise.all(processes.map((process) => process.kill()));
    // All are tried, whichever fails.
    const script = 'code=0; for name; do ip netns del "$name" || code=1; done; exit $code';
    await succeed("sh", ["-c", script, "sh", ...namespaces.map(({ name }) => name)]);
  }

  /** Runs one `ip` command, given as text, in the namespace. Returns its output; throws when it fails. */
  ip(command: string): Promise<string> {
    return succeed("ip", ["-n", this.name, ...command.split(" ")]);
  }

  /** Runs several `ip` commands by one process, up to the first that fails. */
  async ipBatch(commands: readonly string[]): Promise<void> {
    const stdin = commands.map((command) => `${command}\n`).join("");
    await succeed("ip", ["-n", this.name, "-batch", "-"], stdin);
  }

  /** Sets sysctls of the namespace, each as `name=value`. */
  async sysctl(...settings: readonly string[]): Promise<void> {
    await this.output("sysctl", ["-qw", ...settings]);
  }

  /** Runs a command in the namespace to its end; any exit code is a result. */
  run(command: string, args: readonly string[]): Promise<CommandResult> {
    return systemCommandRunner.run("ip", ["netns", "exec", this.name, command, ...args], LIMIT);
  }

  /** As {@linkcode run}; returns the output, and throws when the command fails. */
  output(command: string, args: readonly string[]): Promise<string> {
    return succeed("ip", ["netns", "exec", this.name, command, ...args]);
  }

  /** Starts a program in the namespace. It is killed with the namespace, if not before. */
  start(command: string, args: readonly string[]): LineProcess {
    // `ip netns exec` becomes the program: signals to its process id reach the program itself.
    const process = new LineProcess("ip", ["netns", "exec", this.name, command, ...args]);
    this.#processes.add(process);
    return process;
  }

  /** Starts a Deno program, given by its source file, in the namespace. */
  startDeno(file: URL, args: readonly string[], options: DenoOptions = {}): LineProcess {
    const { flags = TEST_FLAGS, by = [] } = options;
    const line = [...by, Deno.execPath(), "run", ...flags, programFile(file), ...args];
    return this.start(line[0] ?? "", line.slice(1));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Namespace.removeAll([this]);
  }
}

async function succeed(command: string, args: readonly string[], stdin?: string): Promise<string> {
  const options = { ...LIMIT, ...(stdin !== undefined && { stdin }) };
  const { code, stdout, stderr } = await systemCommandRunner.run(command, args, options);
  if (code === 0) return stdout;
  throw new Error(`Cannot run '${[command, ...args].join(" ")}': exit code ${code}: ${stderr}`);
}
