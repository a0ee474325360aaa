/** One datagram and where it came from. */
export interface ReceivedDatagram {
  readonly text: string;
  readonly bytes: number;
  readonly from: { readonly hostname: string; readonly port: number };
}

/** A socket that keeps what it receives until the test asks for it. */
export class UdpPeer implements AsyncDisposable {
  readonly #socket: Deno.DatagramConn;
  readonly #received: ReceivedDatagram[] = [];
  #waiting: ((datagram: ReceivedDatagram) => void) | undefined;
  readonly #task: Promise<void>;

  private constructor(
    socket: Deno.DatagramConn,
    answer: ((text: string) => string | undefined) | undefined,
  ) {
    this.#socket = socket;
    this.#task = this.#receive(answer);
  }

  /** A socket on a free port of loopback; with `answer` it answers each datagram. */
  static open(
    { answer, hostname = "127.0.0.1", port = 0 }: {
      answer?: (text: string) => string | undefined;
      hostname?: string;
      port?: number;
    } = {},
  ): UdpPeer {
    return new UdpPeer(Deno.listenDatagram({ transport: "udp", hostname, port }), answer);
  }

  get port(): number {
    return (this.#socket.addr as Deno.NetAddr).port;
  }

  /** `address:port`. */
  get endpoint(): string {
    return `${(this.#socket.addr as Deno.NetAddr).hostname}:${this.port}`;
  }

  /** Datagrams that came and were not asked for. */
  get pending(): number {
    return this.#received.length;
  }

  async send(data: string | Uint8Array, to: { hostname: string; port: number }): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    await this.#socket.send(bytes, { transport: "udp", ...to });
  }

  /** The next datagram. Throws when none comes within `deadlineMs`. */
  async next(deadlineMs = 60_000): Promise<ReceivedDatagram> {
    const first = this.#received.shift();
    if (first) return first;
    let timer: ReturnType<typeof setTimeout> | undefined;
    try {
      return await new Promise<ReceivedDatagram>((resolve, reject) => {
        this.#waiting = resolve;
        const error = new Error(`Cannot receive: no datagram came within ${deadlineMs} ms`);
        timer = setTimeout(() => reject(error), deadlineMs);
      });
    } finally {
      clearTimeout(timer);
      this.#waiting = undefined;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#socket.close();
    await this.#task;
  }

  async #receive(answer: ((text: string) => string | undefined) | undefined): Promise<void> {
    const buffer = new Uint8Array(65_535);
    try {
      for (;;) {
        const [data, from] = await this.#socket.receive(buffer);
        const { hostname, port } = from as Deno.NetAddr;
        const text = new TextDecoder().decode(data);
        this.#deliver({ text, bytes: data.length, from: { hostname, port } });
        const reply = answer?.(text);
        if (reply !== undefined) await this.send(reply, { hostname, port });
      }
    } catch {
      // The socket was closed.
    }
  }

  #deliver(datagram: ReceivedDatagram): void {
    if (this.#waiting) this.#waiting(datagram);
    else this.#received.push(datagram);
  }
}
