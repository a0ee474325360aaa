/**
 * Runs `ip`: reads addresses and routes of any device and table, and carries out batches of lines.
 * With the text of its objects (`ip_text.ts`) the toolkit of every controller that makes addresses
 * local or writes routes.
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import { inPieces } from "../../lib/os/command_input.ts";
import {
  CommandError,
  type CommandResult,
  type CommandRunner,
} from "../../lib/os/command_runner.ts";
import { runBatch } from "../netfilter/tool_batch.ts";
import {
  type ChosenRoute,
  chosenRouteLine,
  type DeviceAddress,
  type IpFailure,
  type Link,
  parseAddresses,
  parseBatchFailures,
  parseChosenRoutes,
  parseLinkAddresses,
  parseLinks,
  parseNeighbours,
  parseRoutes,
  type Route,
} from "./ip_text.ts";

/** The failures, by item. All other items succeeded. */
export type Failures<T> = ReadonlyMap<T, IpFailure>;

/** The options of {@linkcode IpRunner}. */
interface IpRunnerOptions {
  /** @default {both} */
  readonly family?: IpFamily;
  /** @default {that of the command runner} */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

const BATCH_TIMEOUT_MS = 120_000;

/** The program. Each call is one process. All methods throw a CommandError in its words. */
export class IpRunner {
  readonly #commands: CommandRunner;
  readonly #flags: readonly string[];
  readonly #options: Omit<IpRunnerOptions, "family">;

  constructor(commands: CommandRunner, { family, ...options }: IpRunnerOptions = {}) {
    this.#commands = commands;
    this.#flags = family === undefined ? [] : [family === "IPv6" ? "-6" : "-4"];
    this.#options = options;
  }

  /** Returns the addresses of every device. */
  async allAddresses(): Promise<readonly DeviceAddress[]> {
    const args = [...this.#flags, "-j", "addr", "show"];
    return parseAddresses(stdoutOf(args, await this.#run(args)));
  }

  /** The addresses of a device; `undefined` = there is no such device. */
  async addresses(device: string): Promise<readonly DeviceAddress[] | undefined> {
    const args = [...this.#flags, "-j", "addr", "show", "dev", device];
    const result = await this.#run(args);
    if (result.code !== 0 && result.stderr.includes("does not exist")) return undefined;
    return parseAddresses(stdoutOf(args, result));
  }

  /** Returns the link-layer addresses of every device. */
  async linkAddresses(): Promise<ReadonlySet<string>> {
    const args = ["-j", "link", "show"];
    return parseLinkAddresses(stdoutOf(args, await this.#run(args)));
  }

  /** Returns every device with its addresses. */
  async links(): Promise<readonly Link[]> {
    const args = [...this.#flags, "-j", "-d", "addr", "show"];
    return parseLinks(stdoutOf(args, await this.#run(args)));
  }

  /** The routes of a table. `protocol`: only those with this number. */
  async routes(
    table: string,
    { protocol }: { readonly protocol?: number } = {},
  ): Promise<readonly Route[]> {
    const only = protocol === undefined ? [] : ["proto", `${protocol}`];
    const args = [...this.#flags, "-j", "route", "show", "table", table, ...only];
    return parseRoutes(stdoutOf(args, await this.#run(args)));
  }

  /**
   * Returns the routes by which the kernel would send packets to addresses, and the reasons where it
   * would send none. The runner has to have the family of the addresses.
   */
  async chosenRoutes(
    addresses: readonly IpAddress[],
  ): Promise<ReadonlyMap<IpAddress, ChosenRoute | IpFailure>> {
    if (addresses.length === 0) return new Map();
    const args = [...this.#flags, "-force", "-j", "-batch", "-"];
    const { stdout, stderr } = await this.#run(args, inPieces(addresses.map(chosenRouteLine)));
    const failures = parseBatchFailures(stderr);
    const printed = parseChosenRoutes(stdout);
    const routes = printed.values();
    const isComplete = printed.length + failures.size === addresses.length;
    return new Map(
      isComplete
        ? addresses.flatMap((address, index) => {
          const found = failures.get(index + 1) ?? routes.next().value;
          return found ? [[address, found] as const] : [];
        })
        : [],
    );
  }

  /** Returns the machines on the link of a device that the kernel knows: gateways, then the others. */
  async neighbours(device: string): Promise<readonly IpAddress[]> {
    const args = [...this.#flags, "-j", "neigh", "show", "dev", device];
    const known = parseNeighbours(stdoutOf(args, await this.#run(args)));
    const routes = (await this.routes("main")).filter((route) => route.device === device);
    return [...new Set([...routes.flatMap(({ gateways }) => gateways), ...known])];
  }

  /** Carries out lines up to the first that fails; throws as {@linkcode runBatch}. */
  async run(lines: readonly string[]): Promise<void> {
    const { timeoutMs = BATCH_TIMEOUT_MS } = this.#options;
    const command = ["ip", ...this.#flags, "-batch", "-"] as const;
    await runBatch(this.#commands, { command, lines, timeoutMs });
  }

  /** Carries out a line for each item, whichever of them fail. Throws only when it is not known how many were carried out. */
  async batch<T>(items: readonly T[], toLine: (item: T) => string): Promise<Failures<T>> {
    if (items.length === 0) return new Map();
    const args = [...this.#flags, "-force", "-batch", "-"];
    let result: CommandResult;
    try {
      result = await this.#run(args, inPieces(items.map(toLine)));
    } catch (error) {
      if (!wasNotRun(error)) throw error;
      const { message } = error;
      return new Map(items.map((item) => [item, { kind: "notPermitted", message }]));
    }
    if (result.code === 0) return new Map();
    const byLine = parseBatchFailures(result.stderr);
    // A batch that failed names its lines. One that does not was killed, or is no batch to this `ip`.
    if (byLine.size === 0 || result.code > 2) throw failedError(args, result);
    return new Map([...byLine].flatMap(([line, failure]) => {
      const item = items[line - 1];
      return item === undefined ? [] : [[item, failure] as const];
    }));
  }

  async #run(args: readonly string[], stdin?: Iterable<string>): Promise<CommandResult> {
    return await this.#commands.run("ip", args, { ...this.#options, ...(stdin && { stdin }) });
  }
}

/** Whether the program did not even start, so that nothing can have changed. */
function wasNotRun(error: unknown): error is CommandError {
  return error instanceof CommandError &&
    (error.kind === "not-found" || error.kind === "not-permitted");
}

function stdoutOf(args: readonly string[], result: CommandResult): string {
  if (result.code !== 0) throw failedError(args, result);
  return result.stdout;
}

function failedError(args: readonly string[], { code, stderr }: CommandResult): CommandError {
  const reason = stderr.trim().split("\n")[0] || `exit code ${code}`;
  return new CommandError("ip", args, "failed", `Cannot run 'ip ${args.join(" ")}': ${reason}`);
}
