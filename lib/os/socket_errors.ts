import type { IpAddress } from "../net/ip_address.ts";
import type { Quarantined } from "../proxy/data_plane.ts";
import { messageOf } from "../log/message_of.ts";

/** The remedy when {@linkcode isOutOfSockets}. */
export const OUT_OF_SOCKETS_CURE =
  "raise the limit of open files (LimitNOFILE= of the unit, or ulimit -n)";

/** The remedy when the kernel has no port left for sockets: {@linkcode isOutOfPorts}. */
export const OUT_OF_PORTS_CURE =
  "give sockets more ports and keep them off node ports: sysctl -w " +
  'net.ipv4.ip_local_port_range="20000 65535" net.ipv4.ip_local_reserved_ports=30000-32767';

/** The name of the system error, such as `EADDRINUSE`; `undefined` for other errors. */
export function systemErrorOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}

/** Whether the process, or the machine, cannot open more sockets: no endpoint is the cause. */
export function isOutOfSockets(error: unknown): boolean {
  const name = systemErrorOf(error);
  return name === "EMFILE" || name === "ENFILE" || name === "ENOBUFS" || name === "ENOMEM";
}

/** Whether a socket that may have any port got none. */
export function isOutOfPorts(error: unknown): boolean {
  const name = systemErrorOf(error);
  return name === "EADDRINUSE" || name === "EADDRNOTAVAIL";
}

/** Whether an attempt to connect failed because this machine has no socket or no port left for it. */
export function isOwnShortage(error: unknown): boolean {
  return isOutOfSockets(error) || isOutOfPorts(error);
}

/**
 * Whether `accept()` failed because its client is already gone: Deno reads the peer's address,
 * which a reset connection no longer has. The next accept() works.
 */
export function isClientGone(error: unknown): boolean {
  const name = systemErrorOf(error);
  return name === "ENOTCONN" || name === "ECONNABORTED" || name === "ECONNRESET";
}

/** Whether another port at the same address may work. */
export function isPortRefused(error: unknown): boolean {
  const name = systemErrorOf(error);
  return name === "EADDRINUSE" || name === "EACCES";
}

/** Returns why a listening socket cannot be opened, with the remedy. */
export function listenProblem(
  error: unknown,
  at: { readonly address: IpAddress; readonly port: number },
): Quarantined["reason"] {
  switch (systemErrorOf(error)) {
    case "EADDRINUSE":
      return `another program listens on port ${at.port}, on this address or on all: ` +
        "stop it or let it listen on its own address only";
    case "EADDRNOTAVAIL":
      return `${at.address} is not an address of this machine: ` +
        "see how Service addresses become local (kube-relay status)";
    case "EACCES":
      return at.port < 1024
        ? `port ${at.port} is below 1024 and this process may not bind it: give it ` +
          `CAP_NET_BIND_SERVICE, or sysctl -w net.ipv4.ip_unprivileged_port_start=${at.port}`
        : `this process may not bind port ${at.port}: a security module forbids it`;
    case "EMFILE":
    case "ENFILE":
      return `no more sockets can be opened: ${OUT_OF_SOCKETS_CURE}`;
    default:
      return messageOf(error);
  }
}
