import type { Cidr } from "../../../lib/net/cidr.ts";
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import { type Failures, IpRunner } from "../../iproute/ip_runner.ts";
import { addressLine, type Route, routeLine } from "../../iproute/ip_text.ts";

/** The result of a removal. Missing objects are in neither part. */
export interface Removal<T> {
  readonly removed: readonly T[];
  /** The objects that remain, with the reason. */
  readonly failures: Failures<T>;
}

/** Derives the removed items from the failures. */
export function removalOf<T>(items: readonly T[], failures: Failures<T>): Removal<T> {
  return {
    removed: items.filter((item) => !failures.has(item)),
    failures: new Map([...failures].filter(([, { kind }]) => kind !== "absent")),
  };
}

/** The line that adds an address, which never becomes the source of the node's own connections. */
export function addAddressLine(address: IpAddress): string {
  return addressLine("add", { address, device: "lo", neverSource: true });
}

/** The line that makes every address of a range local (AnyIP). */
export function addRouteLine(range: Cidr): string {
  return localRouteLine("add", range);
}

function localRouteLine(verb: "add" | "del", destination: Cidr): string {
  return routeLine(verb, { type: "local", destination, device: "lo" });
}

/** `net.ipv6.ip_nonlocal_bind`: without it an IPv6 socket cannot be bound to an address that only a route makes local. */
export const NONLOCAL_BIND = "net.ipv6.ip_nonlocal_bind";

/** `lo` and the local routes of one IP family. Each call is one process, however many items it has. */
export class LoDevice {
  readonly #commands: CommandRunner;
  readonly #ip: IpRunner;

  constructor(commands: CommandRunner, family: IpFamily) {
    this.#commands = commands;
    this.#ip = new IpRunner(commands, { family });
  }

  addAddresses(addresses: readonly IpAddress[]): Promise<Failures<IpAddress>> {
    return this.#ip.batch(addresses, addAddressLine);
  }

  deleteAddresses(addresses: readonly IpAddress[]): Promise<Failures<IpAddress>> {
    return this.#ip.batch(addresses, (address) => addressLine("del", { address, device: "lo" }));
  }

  addRoutes(ranges: readonly Cidr[]): Promise<Failures<Cidr>> {
    return this.#ip.batch(ranges, addRouteLine);
  }

  deleteRoutes(ranges: readonly Cidr[]): Promise<Failures<Cidr>> {
    return this.#ip.batch(ranges, (range) => localRouteLine("del", range));
  }

  /** The addresses that `lo` has. */
  async addresses(): Promise<ReadonlySet<IpAddress>> {
    return new Set((await this.#ip.addresses("lo") ?? []).map(({ address }) => address));
  }

  /** The main table, which routes everything that is not local. */
  routes(): Promise<readonly Route[]> {
    return this.#ip.routes("main");
  }

  /** The value of {@linkcode NONLOCAL_BIND}. */
  async nonlocalBind(): Promise<string> {
    return (await this.#sysctl("-n", NONLOCAL_BIND)).trim();
  }

  async setNonlocalBind(value: string): Promise<void> {
    await this.#sysctl("-w", `${NONLOCAL_BIND}=${value}`);
  }

  async #sysctl(...args: readonly string[]): Promise<string> {
    const { code, stdout, stderr } = await this.#commands.run("sysctl", args);
    if (code === 0) return stdout;
    const reason = stderr.trim().split("\n")[0] || `exit code ${code}`;
    const message = `Cannot run 'sysctl ${args.join(" ")}': ${reason}`;
    throw new CommandError("sysctl", args, "failed", message);
  }
}
