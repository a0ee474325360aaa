/**
 * The addresses of other machines, as this machine knows them: by name, and those of its resolvers.
 *
 * @module
 */
// As other programs do it: with /etc/hosts. Deno.resolveDns() asks the resolvers only.
import { lookup } from "node:dns/promises";
import { type IpAddress, tryParseIpAddress } from "../net/ip_address.ts";

/** Returns all addresses of a host name, or of an address as text. Rejects if there are none. */
export async function addressesOfHost(name: string): Promise<readonly IpAddress[]> {
  const found = await lookup(name, { all: true });
  return found.flatMap(({ address }) => tryParseIpAddress(address) ?? []);
}

/** Returns the resolvers of a file such as /etc/resolv.conf; none if it cannot be read. */
export async function readResolvers(path: string): Promise<readonly string[]> {
  const text = await Deno.readTextFile(path).catch(() => "");
  return [...text.matchAll(/^\s*nameserver\s+([^\s#;%]+)/gm)].map(([, address]) => address!);
}
