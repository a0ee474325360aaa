import { type IpAddress, isLoopback, tryParseIpAddress } from "../net/ip_address.ts";

/**
 * Whether a request is from loopback and its Host header is `localhost` or an address. Other peers
 * must not read what this protects, whatever address is bound. A name in the Host header may belong
 * to a web page that makes a browser on this machine ask (DNS rebinding).
 */
export function isLocalRequest({ url }: Request, peer: IpAddress | undefined): boolean {
  if (peer === undefined || !isLoopback(peer)) return false;
  const { hostname } = new URL(url);
  const address = hostname.replace(/^\[|\]$/g, "");
  return hostname === "localhost" || tryParseIpAddress(address) !== undefined;
}
