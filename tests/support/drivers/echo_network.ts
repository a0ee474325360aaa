/** Echo servers and their clients in namespaces, as a test uses them. */
import type { LineProcess } from "./line_process.ts";
import type { Namespace } from "../stages/netns.ts";
import type {
  LoadReport,
  LoadTarget,
  ProbeAnswer,
  ProbeRequest,
  ProbeTarget,
} from "./probe_protocol.ts";

/** The address of an echo server, for TCP and UDP. */
export interface EchoAddress {
  readonly address: string;
  readonly port: number;
}

/** Starts an echo server of that name in a namespace; it listens when this resolves. */
export async function startEchoServer(
  namespace: Namespace,
  { name, listen }: { readonly name: string; readonly listen: readonly EchoAddress[] },
): Promise<LineProcess> {
  const file = new URL("./echo_server.ts", import.meta.url);
  const places = listen.flatMap(({ address, port }) => [address, `${port}`]);
  const server = namespace.startDeno(file, [name, ...places]);
  await server.nextLine();
  return server;
}

/** On a busy machine an answer comes late. Who expects none gives a shorter time. */
export const ANSWER_MS = 10_000;
/** Silence for this long counts as a dropped packet. */
export const SILENCE_MS = 1_700;

/** A client in a namespace. Its calls are answered in order, one at a time. */
export class ProbeClient {
  readonly #process: LineProcess;

  private constructor(process: LineProcess) {
    this.#process = process;
  }

  /** Starts a client; it ends with the namespace. */
  static start(namespace: Namespace): ProbeClient {
    return new ProbeClient(
      namespace.startDeno(new URL("./probe_client.ts", import.meta.url), []),
    );
  }

  /** One exchange on a new socket. */
  async probe(target: ProbeTarget, timeoutMs: number = ANSWER_MS): Promise<ProbeAnswer> {
    return await this.#ask({ do: "probe", target, timeoutMs }) as ProbeAnswer;
  }

  /** As {@linkcode probe}, in one word: the server's name, `refused`, `silent` or `failed: …`. */
  async who(target: ProbeTarget, timeoutMs?: number): Promise<string> {
    return wordOf(await this.probe(target, timeoutMs));
  }

  /** As {@linkcode who} for each target, all at the same time. The answers are in their order. */
  async whoAll(targets: readonly ProbeTarget[], timeoutMs: number = ANSWER_MS): Promise<string[]> {
    const answers = await this.#ask({ do: "probe-all", targets, timeoutMs });
    return (answers as readonly ProbeAnswer[]).map(wordOf);
  }

  /**
   * Opens a connection, or a UDP flow, that lasts until it is closed. With `everyMs` a UDP flow also
   * sends on its own, so the kernel sees its packets at every moment of a change.
   */
  async open(
    target: ProbeTarget,
    options: { readonly everyMs?: number } = {},
  ): Promise<KeptLine> {
    const id = crypto.randomUUID();
    await this.#ask({ do: "open", id, target, ...options });
    return {
      id,
      who: async (timeoutMs) => (await this.whoOf([id], timeoutMs))[0]!,
      close: async () => void await this.#ask({ do: "close", id }),
    };
  }

  /** One exchange on each of these open sockets, all at the same time. The answers are in their order. */
  async whoOf(ids: readonly string[], timeoutMs: number = ANSWER_MS): Promise<string[]> {
    const answers = await this.#ask({ do: "talk", ids, timeoutMs }) as readonly ProbeAnswer[];
    return answers.map(wordOf);
  }

  /** Starts a load; {@linkcode stopLoad} ends it. The client does nothing else in between. */
  async startLoad(
    targets: readonly LoadTarget[],
    { perSecond, timeoutMs = 5_000, sendsOnce = false }: {
      readonly perSecond: number;
      readonly timeoutMs?: number;
      /** A lost datagram is not sent again, so each one counts. */
      readonly sendsOnce?: boolean;
    },
  ): Promise<void> {
    await this.#ask({ do: "load", targets, perSecond, timeoutMs, sendsOnce });
  }

  /** Ends the load; resolves when every exchange has ended. */
  async stopLoad(): Promise<LoadReport> {
    return await this.#ask({ do: "stop" }) as LoadReport;
  }

  async #ask(request: ProbeRequest): Promise<unknown> {
    await this.#process.writeLine(JSON.stringify(request));
    const answer = JSON.parse(await this.#process.nextLine()) as { readonly error?: string };
    if (answer.error !== undefined) throw new Error(`Cannot ${request.do}: ${answer.error}`);
    return answer;
  }
}

/** A connection or a UDP flow that is kept open. */
export interface KeptLine {
  /** For {@linkcode ProbeClient.whoOf}. */
  readonly id: string;
  /** One exchange: the server's name, or what went wrong. */
  who(timeoutMs?: number): Promise<string>;
  close(): Promise<void>;
}

function wordOf(answer: ProbeAnswer): string {
  if (answer.kind === "answered") return answer.by.name;
  return answer.kind === "failed" ? `failed: ${answer.reason}` : answer.kind;
}
