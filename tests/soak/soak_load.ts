/** The servers and clients of a soak. A client checks each answer and counts what is lost. */
import { TcpServer, writeFully } from "../support/drivers/tcp_peers.ts";
import { UdpPeer } from "../support/drivers/udp_peer.ts";
import type { SoakCounts } from "./soak_counts.ts";

/** Where a Service is reached. */
interface Place {
  readonly hostname: string;
  readonly port: number;
}

/** The options of the clients. */
export interface SoakLoadOptions {
  readonly tcp: readonly Place[];
  readonly udp: Place;
  /** From 0 (included) to 1. */
  readonly random: () => number;
  readonly counts: SoakCounts;
  readonly signal: AbortSignal;
}

/** Reports a lost request whose loss nothing explains. */
type Lose = (reason: string) => void;

const TCP_CLIENTS = 16;
const UDP_CLIENTS = 16;
const MOST_REQUESTS = 8;
const MOST_BYTES = 65_536;
/** Keeps the ports of closed connections, which wait for a minute, from running out. */
const MOST_PAUSE_MS = 150;
const TCP_DEADLINE_MS = 10_000;
const UDP_DEADLINE_MS = 500;
/** As long as TCP has. A killed worker keeps its UDP sockets for seconds where many programs run. */
const MOST_SENDS = TCP_DEADLINE_MS / UDP_DEADLINE_MS;
/** Reasons of losses that are printed. */
const MOST_REASONS = 20;

/** Servers on one address, of which each answers with what it got. With sabotage it fails at times. */
export function startEchoServers(
  hostname: string,
  { port, sabotage }: {
    readonly port: number;
    readonly sabotage: boolean;
  },
): readonly AsyncDisposable[] {
  let requests = 0;
  const tcp = TcpServer.start(async (connection) => {
    const buffer = new Uint8Array(MOST_BYTES);
    for (let count; (count = await connection.read(buffer)) !== null;) {
      if (sabotage && ++requests % 100 === 0) return;
      await writeFully(connection, buffer.subarray(0, count));
    }
  }, { hostname, port });
  return [tcp, echoDatagrams(hostname, port)];
}

function echoDatagrams(hostname: string, port: number): AsyncDisposable {
  const socket = Deno.listenDatagram({ transport: "udp", hostname, port });
  const buffer = new Uint8Array(MOST_BYTES);
  const task = (async () => {
    for (;;) {
      const [data, from] = await socket.receive(buffer);
      await socket.send(data, from);
    }
  })().catch(() => {
    // The socket was closed.
  });
  return {
    async [Symbol.asyncDispose]() {
      socket.close();
      await task;
    },
  };
}

/** Runs all clients until the signal. Returns reasons of losses. */
export async function runClients(options: SoakLoadOptions): Promise<readonly string[]> {
  const reasons: string[] = [];
  const lose = (reason: string) => {
    if (reasons.length < MOST_REASONS) reasons.push(reason);
  };
  await Promise.all([
    ...Array.from({ length: TCP_CLIENTS }, () => runTcpClient(options, lose)),
    ...Array.from({ length: UDP_CLIENTS }, () => runUdpClient(options, lose)),
  ]);
  return reasons;
}

async function runTcpClient(
  { tcp, random, counts, signal }: SoakLoadOptions,
  lose: Lose,
): Promise<void> {
  while (!signal.aborted) {
    const place = tcp[Math.floor(random() * tcp.length)]!;
    const requests = 1 + Math.floor(random() * MOST_REQUESTS);
    try {
      using connection = await Deno.connect(place);
      for (let count = 0; count < requests; count++) {
        await exchange(connection, 1 + Math.floor(random() ** 4 * (MOST_BYTES - 1)));
        counts.tcp++;
        await pause(random() * MOST_PAUSE_MS);
      }
    } catch (error) {
      counts.lost++;
      lose(`TCP ${place.hostname}: ${error}`);
    }
  }
}

/** Sends a number of bytes and reads as many. Throws if the answer is not complete in time. */
async function exchange(connection: Deno.TcpConn, bytes: number): Promise<void> {
  const data = crypto.getRandomValues(new Uint8Array(bytes));
  const answer = new Uint8Array(bytes);
  const timer = setTimeout(() => connection.close(), TCP_DEADLINE_MS);
  try {
    const sent = writeFully(connection, data);
    for (let filled = 0; filled < bytes;) {
      const count = await connection.read(answer.subarray(filled));
      if (count === null) throw new Error(`the connection ended after ${filled} of ${bytes} bytes`);
      filled += count;
    }
    await sent;
  } finally {
    clearTimeout(timer);
  }
  if (answer.some((byte, index) => byte !== data[index])) throw new Error("the answer is another");
}

async function runUdpClient(
  { udp, random, counts, signal }: SoakLoadOptions,
  lose: Lose,
): Promise<void> {
  while (!signal.aborted) {
    await using client = UdpPeer.open();
    const requests = 1 + Math.floor(random() * MOST_REQUESTS);
    for (let count = 0; count < requests; count++) {
      const sends = await askByDatagram(client, udp);
      if (sends !== undefined) counts.udp++;
      else {
        counts.lost++;
        lose(`UDP ${udp.hostname}: no answer to ${MOST_SENDS} datagrams`);
      }
      counts.resent += (sends ?? MOST_SENDS) - 1;
      await pause(random() * MOST_PAUSE_MS);
    }
  }
}

/** Returns how many datagrams it took to get an answer; `undefined` if none came. */
async function askByDatagram(client: UdpPeer, to: Place): Promise<number | undefined> {
  const text = crypto.randomUUID();
  for (let sends = 1; sends <= MOST_SENDS; sends++) {
    await client.send(text, to);
    const until = performance.now() + UDP_DEADLINE_MS;
    for (let left = UDP_DEADLINE_MS; left > 0; left = until - performance.now()) {
      const answer = await client.next(left).catch(() => undefined);
      if (answer === undefined) break;
      if (answer.text === text) return sends;
    }
  }
  return undefined;
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
