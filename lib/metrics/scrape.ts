/**
 * The text of a scrape, rendered once for many clients, plain and compressed: Prometheus requests
 * gzip, and kube-proxy supports it.
 *
 * @module
 */
import type { Clock } from "../os/clock.ts";

/** The rendered text. A large text comes in pieces: a string of 5 MB takes 20 ms to encode. */
export interface MetricsAnswer {
  readonly contentType: string;
  readonly body: string | Pieces;
}

type Pieces = readonly Uint8Array<ArrayBuffer>[];

/** Compressed at a time: 64 KiB take 2 ms, which block the event loop. */
const PIECE_BYTES = 65_536;
/** Rendering for clients may take a fifth of the time, and a second of it in advance. */
const RENDER_SHARE = 0.2;
const MOST_CREDIT_MS = 1000;

/** A text that can be sent repeatedly. */
export class Scrape {
  readonly #contentType: string;
  readonly #plain: Pieces;
  #compressed: Promise<Pieces> | undefined;

  constructor({ contentType, body }: MetricsAnswer) {
    this.#contentType = contentType;
    this.#plain = typeof body === "string" ? [new TextEncoder().encode(body)] : body;
  }

  /** Answers in an encoding that the request accepts. Responses share the text. */
  async answer({ headers }: Pick<Request, "headers">): Promise<Response> {
    const isCompressed = acceptsGzip(headers.get("accept-encoding") ?? "");
    const pieces = isCompressed ? await (this.#compressed ??= gzip(this.#plain)) : this.#plain;
    return new Response(ReadableStream.from(pieces), {
      headers: {
        "content-type": this.#contentType,
        "content-length": String(pieces.reduce((sum, { length }) => sum + length, 0)),
        ...(isCompressed && { "content-encoding": "gzip" }),
        "vary": "accept-encoding",
        "x-content-type-options": "nosniff",
      },
    });
  }
}

/**
 * Clients that ask during rendering share its result. If rendering would take more than a fifth of
 * the time, clients get the last text again, so that frequent requests stay cheap.
 */
export class SharedScrape {
  #underWay: Promise<Scrape> | undefined;
  #last: Scrape | undefined;
  #creditMs = MOST_CREDIT_MS;
  #creditAt = 0;

  constructor(
    private readonly edges: { readonly clock: Clock },
    private readonly render: () => Promise<MetricsAnswer>,
  ) {}

  /** Returns the text to send. Rejects as `render` does. */
  get(): Promise<Scrape> {
    const now = this.edges.clock.now();
    const earned = (now - this.#creditAt) * RENDER_SHARE;
    this.#creditMs = Math.min(MOST_CREDIT_MS, this.#creditMs + earned);
    this.#creditAt = now;
    if (this.#creditMs <= 0 && this.#last) return Promise.resolve(this.#last);
    return this.#underWay ??= this.#make(now).finally(() => this.#underWay = undefined);
  }

  async #make(startedAt: number): Promise<Scrape> {
    try {
      return this.#last = new Scrape(await this.render());
    } finally {
      this.#creditMs -= this.edges.clock.now() - startedAt;
    }
  }
}

/** RFC 9110, 12.5.3: a weight of 0 refuses an encoding; only `*` accepts unnamed ones. */
function acceptsGzip(acceptEncoding: string): boolean {
  const weights = new Map<string, number>();
  for (const item of acceptEncoding.toLowerCase().split(",")) {
    const [coding = "", weight = "q=1"] = item.split(";").map((part) => part.trim());
    weights.set(coding, Number(weight.replace(/^q=/, "")));
  }
  return (weights.get("gzip") ?? weights.get("x-gzip") ?? weights.get("*") ?? 0) > 0;
}

async function gzip(pieces: Pieces): Promise<Pieces> {
  const small = function* () {
    for (const piece of pieces) {
      for (let at = 0; at < piece.length; at += PIECE_BYTES) {
        yield piece.subarray(at, at + PIECE_BYTES);
      }
    }
  };
  const stream = ReadableStream.from<BufferSource>(small());
  return await Array.fromAsync(stream.pipeThrough(new CompressionStream("gzip")));
}
