/**
 * What `lo` and the table of local routes hold, whoever put it there.
 *
 * @module
 */
import { type Cidr, hostCidr, tryParseCidr } from "../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, tryParseIpAddress } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";

/** What was found of one IP family. */
export interface FoundAddresses {
  /** By address of `lo`, the lengths of prefixes that it is there with. */
  readonly addresses: ReadonlyMap<IpAddress, readonly number[]>;
  /** Local routes by range: the device that each is for. */
  readonly routes: ReadonlyMap<Cidr, string>;
}

interface PrintedLink {
  readonly "addr_info"?: readonly { readonly local?: string; readonly prefixlen?: number }[];
}

interface PrintedRoute {
  readonly type?: string;
  readonly dst?: string;
  readonly dev?: string;
}

/** Asks `ip`. Throws an Error in its words. */
export async function findAddresses(
  runner: CommandRunner,
  family: IpFamily,
): Promise<FoundAddresses> {
  const flag = family === "IPv6" ? "-6" : "-4";
  const [links, printed] = await Promise.all([
    ask(runner, [flag, "-j", "addr", "show", "dev", "lo"]) as Promise<readonly PrintedLink[]>,
    ask(runner, [flag, "-j", "route", "show", "table", "local"]) as Promise<
      readonly PrintedRoute[]
    >,
  ]);
  const addresses = new Map<IpAddress, readonly number[]>();
  for (const { local = "", prefixlen = 0 } of links.flatMap((link) => link.addr_info ?? [])) {
    const address = tryParseIpAddress(local);
    if (address) addresses.set(address, [...addresses.get(address) ?? [], prefixlen]);
  }
  const routes = new Map<Cidr, string>();
  for (const { type, dst = "", dev = "" } of printed) {
    const single = tryParseIpAddress(dst);
    const range = single ? hostCidr(single) : tryParseCidr(dst);
    if (type === "local" && range !== undefined) routes.set(range, dev);
  }
  return { addresses, routes };
}

async function ask(runner: CommandRunner, args: readonly string[]): Promise<unknown> {
  const { code, stdout, stderr } = await runner.run("ip", args);
  if (code === 0) return JSON.parse(stdout || "[]");
  const reason = stderr.trim().split("\n")[0] || `exit code ${code}`;
  throw new Error(`Cannot read the addresses of lo: 'ip ${args.join(" ")}': ${reason}`);
}
