import { type IpAddress, type IpFamily, tryParseIpAddress } from "../net/ip_address.ts";
import { CommandError, type CommandRunner } from "./command_runner.ts";

/** Addresses of documentation (RFC 5737, RFC 3849), which only the default route leads to. */
const FAR: Readonly<Record<IpFamily, string>> = { IPv4: "192.0.2.113", IPv6: "2001:db8::113" };
const FLAG: Readonly<Record<IpFamily, string>> = { IPv4: "-4", IPv6: "-6" };
const TIMEOUT_MS = 5_000;

/**
 * Returns the address that the node's own packets have when they take the default route; `undefined` if
 * there is no such route, or if the tool `ip` cannot be used.
 */
export async function defaultRouteSource(
  commands: CommandRunner,
  family: IpFamily,
): Promise<IpAddress | undefined> {
  const args = [FLAG[family], "-j", "route", "get", FAR[family]];
  try {
    const { code, stdout } = await commands.run("ip", args, { timeoutMs: TIMEOUT_MS });
    if (code !== 0) return undefined;
    const [route] = JSON.parse(stdout) as readonly { readonly prefsrc?: unknown }[];
    return typeof route?.prefsrc === "string" ? tryParseIpAddress(route.prefsrc) : undefined;
  } catch (error) {
    if (error instanceof CommandError || error instanceof SyntaxError) return undefined;
    throw error;
  }
}
