/**
 * Sockets and interfaces. The only file that opens a socket (the Unix sockets of kube-relay's own control
 * server and of systemd's notifications, and Node's HTTP/2 client, have their own edges).
 *
 * @module
 */
import { connect } from "node:net";
import { type IpAddress, tryParseIpAddress } from "../net/ip_address.ts";
import { type Cidr, hostCidr, tryParseCidr } from "../net/cidr.ts";

/** Address and port of one end of a socket. */
export interface SocketAddress {
  readonly hostname: string;
  readonly port: number;
}

/** A TCP connection; the part of `Deno.TcpConn` that is used. */
export interface TcpConnection {
  readonly localAddr: SocketAddress;
  readonly remoteAddr: SocketAddress;
  /** Resolves to the number of bytes read, or `null` at the end of the stream. */
  read(buffer: Uint8Array): Promise<number | null>;
  /** May write less than it was given. */
  write(data: Uint8Array): Promise<number>;
  /** Sends FIN; reading goes on. */
  closeWrite(): Promise<void>;
  close(): void;
  setNoDelay(on?: boolean): void;
  setKeepAlive(on?: boolean): void;
}

/** A TCP socket that accepts connections. */
export interface TcpListener {
  readonly addr: SocketAddress;
  /** Rejects once the listener is closed. */
  accept(): Promise<TcpConnection>;
  close(): void;
}

/** A connection to a Unix socket of another program. */
export type UnixConnection = Pick<TcpConnection, "read" | "write" | "close">;

/** A UDP socket. It cannot be connected: the sender of each datagram must be checked by the reader. */
export interface UdpSocket {
  readonly addr: SocketAddress;
  /** Fills the buffer; the result is a view of it. Rejects once the socket is closed. */
  receive(buffer: Uint8Array): Promise<[Uint8Array, SocketAddress]>;
  send(data: Uint8Array, to: SocketAddress): Promise<number>;
  close(): void;
}

interface ListenOptions {
  /** Sockets of this user that are also shared may have the same address. @default {false} */
  readonly isShared?: boolean;
}

/** One address of one interface of the machine. */
export interface InterfaceAddress {
  readonly interfaceName: string;
  readonly address: IpAddress;
  /** The network of the interface, if it has other addresses. */
  readonly network?: Cidr;
}

/** The network of the machine. */
export interface Network {
  /** Throws `Deno.errors.AddrInUse`, `AddrNotAvailable` or `PermissionDenied`. */
  listenTcp(address: SocketAddress & ListenOptions): TcpListener;
  /** The signal serves this call alone. It may be aborted although the result is a connection. */
  connectTcp(address: SocketAddress, signal?: AbortSignal): Promise<TcpConnection>;
  /**
   * Connects from an address and port of this machine and closes at once. Resolves when connected;
   * rejects with the system's error, which has a `code`, or the signal's reason.
   */
  tryConnectTcp(
    address: SocketAddress,
    options: { readonly from: SocketAddress; readonly signal: AbortSignal },
  ): Promise<void>;
  /** Like {@linkcode listenTcp}; port 0 takes a free one. */
  listenUdp(address: SocketAddress): UdpSocket;
  /** Every address of every interface; link-local IPv6 ones are left out, since they need a zone. */
  interfaceAddresses(): readonly InterfaceAddress[];
}

/** The machine's network. */
export const systemNetwork: Network = {
  listenTcp: ({ hostname, port, isShared: reusePort = false }) =>
    Deno.listen({ hostname, port, reusePort, tcpBacklog: 4096 }) as TcpListener,
  async connectTcp({ hostname, port }, signal) {
    if (!signal) return await Deno.connect({ hostname, port });
    if (signal.aborted) throw signal.reason;
    // Deno.connect() asks once more when it has the connection, and if the abort came a moment before,
    // the connection is lost: nothing closes it (Deno 2.9).
    signal.throwIfAborted = () => {};
    return await Deno.connect({ hostname, port, signal }).catch((error) => {
      throw signal.aborted ? signal.reason : error;
    });
  },
  tryConnectTcp: ({ hostname: host, port }, { from, signal }) =>
    new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      // Deno's own connect() chooses the port that it sends from.
      const socket = connect({ host, port, localAddress: from.hostname, localPort: from.port });
      const onAbort = () => void socket.destroy(signal.reason);
      signal.addEventListener("abort", onAbort, { once: true });
      socket.once("connect", () => {
        socket.destroy();
        resolve();
      });
      socket.once("error", reject);
      socket.once("close", () => {
        signal.removeEventListener("abort", onAbort);
        reject(signal.aborted ? signal.reason : new Error("closed before it was connected"));
      });
    }),
  listenUdp({ hostname, port }) {
    const socket = Deno.listenDatagram({ transport: "udp", hostname, port });
    return {
      addr: socket.addr as Deno.NetAddr,
      receive: (buffer) => socket.receive(buffer) as Promise<[Uint8Array, Deno.NetAddr]>,
      // It reads only the hostname and the port, so no object is made for each datagram.
      send: (data, to) => socket.send(data, to as Deno.NetAddr),
      close: () => socket.close(),
    };
  },
  interfaceAddresses() {
    const read = new Map<string, InterfaceAddress | undefined>();
    for (const each of Deno.networkInterfaces()) {
      const key = `${each.name} ${each.address} ${each.cidr}`;
      read.set(key, lastRead.has(key) ? lastRead.get(key) : interfaceAddressOf(each));
    }
    lastRead = read;
    return [...read.values()].filter((each) => each !== undefined);
  },
};

/**
 * What was read last. Addresses are read every few seconds and hardly ever change, and parsing was a
 * quarter of what an idle node costs.
 */
let lastRead: ReadonlyMap<string, InterfaceAddress | undefined> = new Map();

function interfaceAddressOf(
  { name, address, cidr }: Deno.NetworkInterfaceInfo,
): InterfaceAddress | undefined {
  const parsed = tryParseIpAddress(address);
  if (parsed === undefined || /^fe[89ab]/.test(parsed)) return undefined;
  const network = tryParseCidr(cidr);
  const isShared = network !== undefined && network !== hostCidr(parsed);
  return { interfaceName: name, address: parsed, ...(isShared && { network }) };
}

/**
 * Returns the path of a Unix socket after symbolic links are followed. Throws if it lies in none of the
 * folders.
 */
export function unixSocketWithin(folders: readonly string[], path: string): string {
  const real = Deno.realPathSync(path);
  const isWithin = (folder: string) => {
    try {
      return real.startsWith(`${Deno.realPathSync(folder)}/`);
    } catch {
      return false;
    }
  };
  if (folders.some(isWithin)) return real;
  throw new Deno.errors.PermissionDenied(`${path} is in no folder of --unix-socket-folders`);
}

/**
 * Connects to a Unix socket that lies in one of some folders, also after symbolic links are followed.
 * The result names `remoteAddr` as its peer. Rejects if the socket lies elsewhere.
 */
export async function connectUnixWithin(
  folders: readonly string[],
  { path, remoteAddr }: { readonly path: string; readonly remoteAddr: SocketAddress },
): Promise<TcpConnection> {
  const real = unixSocketWithin(folders, path);
  const connection = await Deno.connect({ transport: "unix", path: real });
  return {
    localAddr: { hostname: "unix", port: 0 },
    remoteAddr,
    read: (buffer) => connection.read(buffer),
    write: (data) => connection.write(data),
    closeWrite: () => connection.closeWrite(),
    close: () => connection.close(),
    // Options of TCP.
    setNoDelay() {},
    setKeepAlive() {},
  };
}

/** Connects to a Unix socket. Rejects with `Deno.errors.NotFound` or `ConnectionRefused`. */
export function connectUnix(path: string): Promise<UnixConnection> {
  return Deno.connect({ transport: "unix", path });
}
