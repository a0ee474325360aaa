/**
 * A program: a client of `echo_server.ts` that executes the lines of its standard input
 * (`probe_protocol.ts`), prints one line for each, and ends with its input.
 */
import type { EchoGreeting } from "./echo_server.ts";
import {
  type LoadReport,
  type LoadTarget,
  type ProbeAnswer,
  type ProbeRequest,
  type ProbeTarget,
  targetText,
} from "./probe_protocol.ts";

/** Thrown at the end of a time-out. */
class Silence extends Error {}

/** A socket to one target. */
interface Line {
  /**
   * Sends a unique text and waits for its echo, until the signal. Resolves to the greeting of the
   * server.
   */
  talk(giveUp: AbortSignal): Promise<EchoGreeting>;
  /** Sends FIN, where there is one, and waits for the other side's. */
  finish(): Promise<void>;
  close(): void;
}

let texts = 0;

/** A text that no other exchange has, so that an answer cannot be taken for another one's. */
function nextText(): string {
  return `probe ${++texts} of ${Deno.pid};`;
}

async function openTcp({ address, port }: ProbeTarget, signal: AbortSignal): Promise<Line> {
  const conn = await Deno.connect({ hostname: address, port, signal });
  let open = true;
  let received = "";
  let greeting: EchoGreeting | undefined;
  const buffer = new Uint8Array(4096);
  const close = () => {
    if (open) conn.close();
    open = false;
  };
  const readUntil = async (end: string) => {
    while (!received.includes(end)) {
      const size = await conn.read(buffer);
      if (size === null) throw new Error(`the connection ended after '${received}'`);
      received += new TextDecoder().decode(buffer.subarray(0, size));
    }
    const text = received.slice(0, received.indexOf(end) + end.length);
    received = received.slice(text.length);
    return text;
  };
  return {
    close,
    async talk() {
      greeting ??= JSON.parse(await readUntil("\n")) as EchoGreeting;
      const text = nextText();
      await conn.write(new TextEncoder().encode(text));
      const echo = await readUntil(";");
      if (echo !== text) throw new Error(`sent '${text}', got '${echo}'`);
      return greeting;
    },
    async finish() {
      await conn.closeWrite();
      if (await conn.read(buffer) !== null) throw new Error("got more than was asked for");
    },
  };
}

/** A busy server's lost datagram comes again, as a SYN does. No probe waits for silence so long. */
const RESEND_MS = 2_000;

/** How a UDP socket sends. */
interface UdpOptions {
  /** It also sends on its own, at this interval. */
  readonly everyMs?: number;
  readonly sendsOnce?: boolean;
}

function openUdp({ address, port }: ProbeTarget, { everyMs, sendsOnce }: UdpOptions): Line {
  const hostname = address.includes(":") ? "::" : "0.0.0.0";
  const socket = Deno.listenDatagram({ transport: "udp", hostname, port: 0 });
  const to: Deno.NetAddr = { transport: "udp", hostname: address, port };
  const buffer = new Uint8Array(65_535);
  let open = true;
  let asked: { readonly text: string } & PromiseWithResolvers<EchoGreeting> | undefined;
  // One reader for the socket's whole life: an exchange that was given up takes no later one's echo.
  const receiveEchoes = async (): Promise<never> => {
    for (;;) {
      const [data, from] = await socket.receive(buffer);
      const [head = "", echo] = new TextDecoder().decode(data).split("\n");
      const sender = from as Deno.NetAddr;
      if (sender.hostname !== address || sender.port !== port) {
        asked?.reject(
          new Error(`asked ${address}, was answered by ${sender.hostname}:${sender.port}`),
        );
      } else if (echo === asked?.text) {
        asked?.resolve(JSON.parse(head) as EchoGreeting);
      }
    }
  };
  const receiving = receiveEchoes();
  receiving.catch(() => {});
  const sendUnasked = () =>
    void socket.send(new TextEncoder().encode("unasked"), to).catch(() => {});
  const sending = everyMs === undefined ? undefined : setInterval(sendUnasked, everyMs);
  return {
    close() {
      clearInterval(sending);
      if (open) socket.close();
      open = false;
    },
    async talk(giveUp) {
      const text = nextText();
      asked = { text, ...Promise.withResolvers() };
      const send = () => socket.send(new TextEncoder().encode(text), to);
      await send();
      const resend = () => open && send().catch(() => {});
      const timer = sendsOnce ? undefined : setInterval(resend, RESEND_MS);
      // A flow that the test believes idle must not be renewed behind its back.
      giveUp.addEventListener("abort", () => clearInterval(timer));
      return await Promise.race([asked.promise, receiving]).finally(() => clearInterval(timer));
    },
    finish: () => Promise.resolve(),
  };
}

/** So many looks at the clock make up a time-out. */
const TICKS = 20;

/**
 * Calls back after a time in which this process has run. A process that a busy machine delayed
 * would otherwise mistake its own pause for silence of the peer. Returns a function that cancels
 * the callback.
 */
function afterSilence(ms: number, callback: () => void): () => void {
  let left = TICKS;
  const timer = setInterval(() => {
    if (--left > 0) return;
    clearInterval(timer);
    callback();
  }, ms / TICKS);
  return () => clearInterval(timer);
}

async function withTimeout<T>(start: (giveUp: AbortSignal) => Promise<T>, ms: number): Promise<T> {
  const silence = Promise.withResolvers<never>();
  const giveUp = new AbortController();
  const cancel = afterSilence(ms, () => {
    silence.reject(new Silence());
    giveUp.abort();
  });
  const task = start(giveUp.signal);
  try {
    return await Promise.race([task, silence.promise]);
  } finally {
    cancel();
    task.catch(() => {});
  }
}

async function openLine(
  target: ProbeTarget,
  { timeoutMs, ...options }: UdpOptions & { readonly timeoutMs: number },
): Promise<Line> {
  if (target.protocol === "UDP") return openUdp(target, options);
  const giveUp = new AbortController();
  const { signal } = giveUp;
  const cancel = afterSilence(timeoutMs, () => giveUp.abort());
  try {
    return await openTcp(target, signal);
  } catch (error) {
    throw signal.aborted ? new Silence() : error;
  } finally {
    cancel();
  }
}

async function probe(
  target: ProbeTarget,
  timeoutMs: number,
  { sendsOnce = false }: Pick<UdpOptions, "sendsOnce"> = {},
): Promise<ProbeAnswer> {
  let line: Line | undefined;
  try {
    const opened = line = await openLine(target, { timeoutMs, sendsOnce });
    const by = await withTimeout((giveUp) => opened.talk(giveUp), timeoutMs);
    await withTimeout(() => opened.finish(), timeoutMs);
    return { kind: "answered", by };
  } catch (error) {
    return answerOfError(error);
  } finally {
    line?.close();
  }
}

function answerOfError(error: unknown): ProbeAnswer {
  if (error instanceof Silence) return { kind: "silent" };
  if (error instanceof Deno.errors.ConnectionRefused) return { kind: "refused" };
  return { kind: "failed", reason: error instanceof Error ? error.message : String(error) };
}

/** Exchanges at a fixed rate. */
class Load {
  readonly #targets: readonly LoadTarget[];
  readonly #timeoutMs: number;
  readonly #perSecond: number;
  readonly #sendsOnce: boolean;
  readonly #start = performance.now();
  readonly #underWay = new Set<Promise<void>>();
  readonly #examples: string[] = [];
  readonly #failedAfterMs: Record<string, number[]> = {};
  readonly #byTarget: Record<string, Record<string, number>> = {};
  readonly #timer: ReturnType<typeof setInterval>;
  #attempts = 0;
  #answered = 0;
  #failures = 0;
  #slowestMs = 0;

  constructor(request: ProbeRequest & { readonly do: "load" }) {
    this.#targets = request.targets;
    this.#timeoutMs = request.timeoutMs;
    this.#perSecond = request.perSecond;
    this.#sendsOnce = request.sendsOnce ?? false;
    this.#timer = setInterval(() => this.#catchUp(), 5);
  }

  async stop(): Promise<LoadReport> {
    clearInterval(this.#timer);
    this.#catchUp();
    const seconds = (performance.now() - this.#start) / 1000;
    await Promise.all(this.#underWay);
    return {
      attempts: this.#attempts,
      answered: this.#answered,
      failures: this.#failures,
      examples: this.#examples,
      failedAfterMs: this.#failedAfterMs,
      seconds,
      slowestMs: this.#slowestMs,
      byTarget: this.#byTarget,
    };
  }

  /** Starts as many exchanges as are due: a timer that fires late makes none of them get lost. */
  #catchUp(): void {
    const due = Math.floor((performance.now() - this.#start) * this.#perSecond / 1000);
    while (this.#attempts < due) {
      const target = this.#targets[this.#attempts++ % this.#targets.length];
      if (target === undefined) return;
      const attempt = this.#attempt(target).finally(() => this.#underWay.delete(attempt));
      this.#underWay.add(attempt);
    }
  }

  async #attempt(target: LoadTarget): Promise<void> {
    const start = performance.now();
    const answer = await probe(target, this.#timeoutMs, { sendsOnce: this.#sendsOnce });
    const ms = performance.now() - start;
    if (answer.kind === "answered") {
      const { name } = answer.by;
      const counts = this.#byTarget[targetText(target)] ??= {};
      counts[name] = (counts[name] ?? 0) + 1;
      if (target.expect.length === 0 || target.expect.includes(name)) {
        this.#answered++;
        this.#slowestMs = Math.max(this.#slowestMs, ms);
        return;
      }
    }
    this.#failures++;
    const when = Math.round(start - this.#start);
    (this.#failedAfterMs[targetText(target)] ??= []).push(when);
    if (this.#examples.length >= 20) return;
    this.#examples.push(`${targetText(target)} after ${when} ms: ${JSON.stringify(answer)}`);
  }
}

/** The state that is kept between requests. */
class Client {
  readonly #lines = new Map<string, Line>();
  #load: Load | undefined;

  async answer(request: ProbeRequest): Promise<unknown> {
    switch (request.do) {
      case "probe":
        return await probe(request.target, request.timeoutMs);
      case "probe-all":
        return await Promise.all(
          request.targets.map((target) => probe(target, request.timeoutMs)),
        );
      case "open":
        this.#lines.set(
          request.id,
          await openLine(request.target, { ...request, timeoutMs: 20_000 }),
        );
        return {};
      case "talk":
        return await Promise.all(request.ids.map((id) => this.#talk(id, request.timeoutMs)));
      case "close":
        this.#lines.get(request.id)?.close();
        this.#lines.delete(request.id);
        return {};
      case "load":
        this.#load = new Load(request);
        return {};
      case "stop":
        return await this.#load?.stop();
    }
  }

  async #talk(id: string, timeoutMs: number): Promise<ProbeAnswer> {
    const line = this.#lines.get(id);
    if (line === undefined) return { kind: "failed", reason: `nothing is open as '${id}'` };
    try {
      return { kind: "answered", by: await withTimeout((giveUp) => line.talk(giveUp), timeoutMs) };
    } catch (error) {
      return answerOfError(error);
    }
  }
}

async function serveRequests(): Promise<void> {
  const client = new Client();
  let rest = "";
  for await (const text of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const request = JSON.parse(line) as ProbeRequest;
      const answer = await client.answer(request).catch((error) => ({ error: String(error) }));
      // deno-lint-ignore no-console -- the answer
      console.log(JSON.stringify(answer));
    }
  }
}

if (import.meta.main) {
  await serveRequests();
  Deno.exit(0);
}
