import type { IpFamily } from "../../lib/net/ip_address.ts";
import { formatHostPort } from "../../lib/net/port.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { parseWaitingSockets, SOCKET_FILES } from "../../lib/os/kernel_sockets.ts";
import type { SocketKey } from "./listeners.ts";

/** Returns the listening sockets of this network namespace; `undefined` if unavailable. */
export async function kernelSockets(
  runner: CommandRunner,
  family: IpFamily,
): Promise<ReadonlySet<SocketKey> | undefined> {
  const found = new Set<SocketKey>();
  for (const protocol of ["TCP", "UDP"] as const) {
    const { code, stdout } = await runner.run("cat", [SOCKET_FILES[family][protocol]]);
    if (code !== 0) return undefined;
    for (const socket of parseSockets(stdout, protocol)) found.add(socket);
  }
  return found;
}

/** The waiting sockets in a file of `/proc/net`. */
export function* parseSockets(text: string, protocol: "TCP" | "UDP"): Generator<SocketKey> {
  for (const { address, port } of parseWaitingSockets(text, protocol)) {
    yield `${formatHostPort(address, port)}/${protocol}` as SocketKey;
  }
}
