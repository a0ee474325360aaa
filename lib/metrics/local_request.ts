/**
 * Whether a request comes from this machine, and from somebody who meant to ask it.
 *
 * @module
 */
import { type IpAddress, isLoopback, tryParseIpAddress } from "../net/ip_address.ts";

/**
 * True for a peer on loopback whose Host header is `localhost` or an address. Whatever address is bound,
 * others are not to learn what only this is asked for; and a name in the Host header may be that of a
 * web page which makes a browser on this machine ask (DNS rebinding).
 */
export function isLocalRequest({ url }: Request, peer: IpAddress | undefined): boolean {
  if (peer === undefined || !isLoopback(peer)) return false;
  const { hostname } = new URL(url);
  const address = hostname.replace(/^\[|\]$/g, "");
  return hostname === "localhost" || tryParseIpAddress(address) !== undefined;
}
