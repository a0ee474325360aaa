/**
 * Ports, protocols, and the `host:port` notation.
 *
 * @module
 */

/** A port number from 1 to 65535. Only {@linkcode parsePort} makes one. */
export type Port = number & { readonly __brand: "Port" };

/** The transport protocols of a Kubernetes Service. */
export type Protocol = "TCP" | "UDP" | "SCTP";

/** Every {@linkcode Protocol}, in the order of the Kubernetes API documentation. */
export const PROTOCOLS: readonly Protocol[] = ["TCP", "UDP", "SCTP"];

/** Parses a port. Throws a RangeError that names the value for anything but an integer from 1 to 65535. */
export function parsePort(value: number | string): Port {
  const port = tryParsePort(value);
  if (port === undefined) {
    throw new RangeError(
      `Cannot parse port '${value}': a port is a whole number between 1 and 65535`,
    );
  }
  return port;
}

/** Like {@linkcode parsePort}, but returns `undefined` instead of throwing. */
export function tryParsePort(value: number | string): Port | undefined {
  const port = typeof value === "number" ? value : /^[0-9]{1,5}$/.test(value) ? Number(value) : NaN;
  return Number.isInteger(port) && port >= 1 && port <= 65535 ? port as Port : undefined;
}

/** Parses a protocol; `undefined` means TCP, as in the Kubernetes API. Throws a RangeError. */
export function parseProtocol(value: string | undefined): Protocol {
  const protocol = tryParseProtocol(value);
  if (protocol === undefined) {
    throw new RangeError(
      `Cannot parse protocol '${value}': a Service has ${PROTOCOLS.join(", ")} only`,
    );
  }
  return protocol;
}

/** Like {@linkcode parseProtocol}, but returns `undefined` instead of throwing. */
export function tryParseProtocol(value: string | undefined): Protocol | undefined {
  if (value === undefined) return "TCP";
  return PROTOCOLS.find((protocol) => protocol === value);
}

/** Writes `host:port`, with brackets around an IPv6 address. */
export function formatHostPort(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
