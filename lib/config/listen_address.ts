import { tryParseIpAddress } from "../net/ip_address.ts";

/** The default port of /healthz. */
export const HEALTHZ_PORT = 10256;

/** The default port of /metrics. */
export const METRICS_PORT = 10249;

/** Address and port that a server listens on. */
export interface ListenAddress {
  readonly hostname: string;
  readonly port: number;
}

/**
 * Reads `ip:port`, `[ip]:port`, or an IP alone, which gets the given port; `undefined` for anything
 * else.
 */
export function tryParseListenAddress(text: string, port: number): ListenAddress | undefined {
  const alone = tryParseIpAddress(text);
  if (alone !== undefined) return { hostname: alone, port };
  const match = /^(?:\[([^\]]*)\]|([^:]*)):(\d{1,5})$/.exec(text);
  const hostname = match && tryParseIpAddress(match[1] ?? match[2] ?? "");
  const number = Number(match?.[3]);
  return hostname && number >= 1 && number <= 65535 ? { hostname, port: number } : undefined;
}
