/**
 * The machine's network, with a trick that is described by plain data, so that workers can play it
 * as well.
 */
import { type Network, type SocketAddress, systemNetwork } from "../../../lib/os/network.ts";

/** How a network misleads. */
export interface NetworkTrick {
  /** Packets to this address go to another place. */
  readonly detour?: { readonly from: string; readonly to: SocketAddress };
  /** Connections on the detour are reported so many turns of the event loop late. */
  readonly reportTurns?: number;
  /** Datagrams of this port seem to come from another place. */
  readonly forgery?: { readonly port: number; readonly sender: SocketAddress };
  /** Connections to endpoints seem to have the port of the client that was accepted last. */
  readonly isPortShared?: boolean;
}

/** A network that plays a trick. */
export function misleadingNetwork(
  { detour, reportTurns = 0, forgery, isPortShared }: NetworkTrick,
): Network {
  const lead = (address: SocketAddress) =>
    detour && address.hostname === detour.from ? detour.to : address;
  let client: SocketAddress | undefined;
  return {
    ...systemNetwork,
    async connectTcp(address, signal) {
      const connection = await systemNetwork.connectTcp(lead(address), signal);
      for (let turn = 0; turn < reportTurns && lead(address) !== address; turn++) {
        await new Promise((resolve) => setTimeout(resolve, 0));
      }
      return isPortShared ? replacing(connection, "localAddr", client) : connection;
    },
    listenTcp(address) {
      const listener = systemNetwork.listenTcp(address);
      return replacing(listener, "accept", async () => {
        const connection = await listener.accept();
        client = connection.remoteAddr;
        return connection;
      });
    },
    listenUdp(address) {
      const socket = systemNetwork.listenUdp(address);
      return {
        ...socket,
        send: (data, to) => socket.send(data, lead(to)),
        async receive(buffer) {
          const [datagram, from] = await socket.receive(buffer);
          return [datagram, from.port === forgery?.port ? forgery.sender : from];
        },
      };
    },
  };
}

/** Starts a worker with the network of a trick. */
export function spawnMisledWorker(name: string, trick: NetworkTrick): Worker {
  const program = new URL("misled_worker.ts", import.meta.url);
  program.searchParams.set("trick", JSON.stringify(trick));
  return new Worker(program, { type: "module", name });
}

function replacing<T extends object, Name extends keyof T>(object: T, name: Name, by: unknown): T {
  return new Proxy(object, {
    get(target, property) {
      if (property === name) return by;
      const value = Reflect.get(target, property);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
