/**
 * What is done to `lo` and to the local routes, by `ip`.
 *
 * @module
 */
import type { Cidr } from "../../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import {
  CommandError,
  type CommandResult,
  type CommandRunner,
} from "../../../lib/os/command_runner.ts";
import {
  addAddressLine,
  addRouteLine,
  deleteAddressLine,
  deleteRouteLine,
  type IpFailure,
  parseBatchFailures,
} from "../../iproute/ip_batch.ts";
import { parseRoutes, type Route } from "./route_guard.ts";

/** What was not done, and why. All the others were. */
export type Failures<T> = ReadonlyMap<T, IpFailure>;

/** What came of removing things. What was not there any more is in neither. */
export interface Removal<T> {
  readonly removed: readonly T[];
  /** What is still there, and why. */
  readonly failures: Failures<T>;
}

/** Tells what was removed from the failures of a removal. */
export function removalOf<T>(items: readonly T[], failures: Failures<T>): Removal<T> {
  return {
    removed: items.filter((item) => !failures.has(item)),
    failures: new Map([...failures].filter(([, { kind }]) => kind !== "absent")),
  };
}

/** `net.ipv6.ip_nonlocal_bind`: without it an IPv6 socket cannot be bound to an address that only a route makes local. */
export const NONLOCAL_BIND = "net.ipv6.ip_nonlocal_bind";

/** `lo` and the local routes of one IP family. Each call is one process, however many items it has. */
export class LoDevice {
  readonly #runner: CommandRunner;
  readonly #familyFlag: string;

  constructor(runner: CommandRunner, family: IpFamily) {
    this.#runner = runner;
    this.#familyFlag = family === "IPv6" ? "-6" : "-4";
  }

  addAddresses(addresses: readonly IpAddress[]): Promise<Failures<IpAddress>> {
    return this.#batch(addresses, addAddressLine);
  }

  deleteAddresses(addresses: readonly IpAddress[]): Promise<Failures<IpAddress>> {
    return this.#batch(addresses, deleteAddressLine);
  }

  addRoutes(ranges: readonly Cidr[]): Promise<Failures<Cidr>> {
    return this.#batch(ranges, addRouteLine);
  }

  deleteRoutes(ranges: readonly Cidr[]): Promise<Failures<Cidr>> {
    return this.#batch(ranges, deleteRouteLine);
  }

  /** The addresses that `lo` has. */
  async addresses(): Promise<Set<IpAddress>> {
    const args = [this.#familyFlag, "-j", "addr", "show", "dev", "lo"];
    const { stdout } = await this.#runOrThrow("ip", args);
    const links = JSON.parse(stdout || "[]") as { addr_info?: { local?: string }[] }[];
    const found = new Set<IpAddress>();
    for (const { local } of links.flatMap((link) => link.addr_info ?? [])) {
      const address = tryParseIpAddress(local ?? "");
      if (address !== undefined) found.add(address);
    }
    return found;
  }

  /** The main table, through which everything goes that is not local. */
  async routes(): Promise<Route[]> {
    const args = [this.#familyFlag, "-j", "route", "show", "table", "main"];
    return parseRoutes((await this.#runOrThrow("ip", args)).stdout);
  }

  /** The value of {@linkcode NONLOCAL_BIND}. */
  async nonlocalBind(): Promise<string> {
    return (await this.#runOrThrow("sysctl", ["-n", NONLOCAL_BIND])).stdout.trim();
  }

  async setNonlocalBind(value: string): Promise<void> {
    await this.#runOrThrow("sysctl", ["-w", `${NONLOCAL_BIND}=${value}`]);
  }

  /** Throws a CommandError only when it is not known how much of the batch was done. */
  async #batch<T>(items: readonly T[], toLine: (item: T) => string): Promise<Failures<T>> {
    if (items.length === 0) return new Map();
    const args = [this.#familyFlag, "-force", "-batch", "-"];
    let result: CommandResult;
    try {
      result = await this.#runner.run("ip", args, { stdin: linesOf(items, toLine) });
    } catch (error) {
      if (!wasNotRun(error)) throw error;
      return failAll(items, { kind: "notPermitted", message: error.message });
    }
    if (result.code === 0) return new Map();
    const byLine = parseBatchFailures(result.stderr);
    // A batch that failed names its lines. One that does not was killed, or is no batch to this `ip`.
    if (byLine.size === 0 || result.code > 2) throw failedError("ip", args, result);
    return new Map([...byLine].flatMap(([line, failure]) => {
      const item = items[line - 1];
      return item === undefined ? [] : [[item, failure] as const];
    }));
  }

  async #runOrThrow(program: string, args: readonly string[]): Promise<CommandResult> {
    const result = await this.#runner.run(program, args);
    if (result.code !== 0) throw failedError(program, args, result);
    return result;
  }
}

/** Whether the program did not even start, so that nothing can have changed. */
function wasNotRun(error: unknown): error is CommandError {
  return error instanceof CommandError &&
    (error.kind === "not-found" || error.kind === "not-permitted");
}

function* linesOf<T>(items: readonly T[], toLine: (item: T) => string): Generator<string> {
  for (const item of items) yield `${toLine(item)}\n`;
}

function failAll<T>(items: readonly T[], failure: IpFailure): Failures<T> {
  return new Map(items.map((item) => [item, failure]));
}

function failedError(
  program: string,
  args: readonly string[],
  { code, stderr }: CommandResult,
): CommandError {
  const reason = stderr.trim().split("\n")[0] || `exit code ${code}`;
  const message = `Cannot run '${program} ${args.join(" ")}': ${reason}`;
  return new CommandError(program, args, "failed", message);
}
