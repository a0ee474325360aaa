/**
 * Where the health and metrics servers listen, as kube-proxy's flags and fields say it.
 *
 * @module
 */
import { tryParseIpAddress } from "../net/ip_address.ts";

/** The port of /healthz where the address names none. */
export const HEALTHZ_PORT = 10256;

/** The port of /metrics where the address names none. */
export const METRICS_PORT = 10249;

/** Address and port that a server listens on. */
export interface ListenAddress {
  readonly hostname: string;
  readonly port: number;
}

/** Reads `ip:port`, `[ip]:port`, or an IP alone, which gets the port given; `undefined` when it is none of them. */
export function tryParseListenAddress(text: string, port: number): ListenAddress | undefined {
  const alone = tryParseIpAddress(text);
  if (alone !== undefined) return { hostname: alone, port };
  const match = /^(?:\[([^\]]*)\]|([^:]*)):(\d{1,5})$/.exec(text);
  const hostname = match && tryParseIpAddress(match[1] ?? match[2] ?? "");
  const number = Number(match?.[3]);
  return hostname && number >= 1 && number <= 65535 ? { hostname, port: number } : undefined;
}

/** Reads `ip:port` or `[ip]:port`. Throws a SyntaxError that quotes the text for anything else. */
export function parseListenAddress(text: string): ListenAddress {
  const address = tryParseListenAddress(text, NaN);
  if (address === undefined || Number.isNaN(address.port)) {
    throw new SyntaxError(
      `Cannot listen on '${text}': expected an IP address and a port, such as 0.0.0.0:${HEALTHZ_PORT}`,
    );
  }
  return address;
}
