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
  const port = typeof value === "number" ? value : /^[0-9]{1,5}$/.test(value) ? Number(value) : NaN;
  if (!Number.isInteger(port) || port < 1 || port > 65535) {
    throw new RangeError(
      `Cannot parse port '${value}': a port is a whole number between 1 and 65535`,
    );
  }
  return port as Port;
}

/** Parses a protocol; `undefined` means TCP, as in the Kubernetes API. Throws a RangeError. */
export function parseProtocol(value: string | undefined): Protocol {
  if (value === undefined) return "TCP";
  if ((PROTOCOLS as readonly string[]).includes(value)) return value as Protocol;
  throw new RangeError(
    `Cannot parse protocol '${value}': a Service has ${PROTOCOLS.join(", ")} only`,
  );
}

/** Writes `host:port`, with brackets around an IPv6 address. */
export function formatHostPort(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
