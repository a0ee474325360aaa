import { messageOf } from "../log/message_of.ts";
import type { IpFamily } from "../net/ip_address.ts";
import type { Network, TcpListener } from "./network.ts";

/**
 * Tries to open two shared sockets at one port of the loopback address. Returns why that is refused; `undefined` =
 * it works. Leaves nothing behind.
 */
export function shareRefusal(network: Network, family: IpFamily): string | undefined {
  const hostname = family === "IPv4" ? "127.0.0.1" : "::1";
  const listeners: TcpListener[] = [];
  try {
    listeners.push(network.listenTcp({ hostname, port: 0, isShared: true }));
    const { port } = listeners[0]!.addr;
    listeners.push(network.listenTcp({ hostname, port, isShared: true }));
    return undefined;
  } catch (error) {
    return messageOf(error);
  } finally {
    for (const listener of listeners) listener.close();
  }
}
