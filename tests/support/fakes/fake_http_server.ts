/**
 * A web server for tests: HTTP/2 over TLS as API servers speak it, or plain HTTP/1.1. It can be killed and
 * started again at the same port.
 *
 * A limit: now and then Deno 2.9's `node:http2` server ends the process with a failed assertion of nghttp2
 * ("find_stream_on_goaway_func") when a client says goodbye after megabytes of answers. It was never seen
 * with the few hundred KB of the tests; a client that needs more should exit without closing (its own side
 * of the connection is not concerned: that list of closed streams is kept by servers only).
 */
import { createServer as createPlainServer, type Server } from "node:http";
import {
  createSecureServer,
  type Http2SecureServer,
  type Http2ServerRequest,
  type ServerHttp2Session,
} from "node:http2";
import type { Socket } from "node:net";
import type { PemPair } from "../../conformance/server.ts";
import {
  createTestCertificateAuthority,
  type TestCertificateAuthority,
} from "../builders/test_certificates.ts";

/** The options of the server. */
export interface FakeHttpServerOptions {
  /** `http` serves plain HTTP/1.1. @default {"https"} */
  readonly scheme?: "https" | "http";
  /** DNS names of its certificate. @default {["localhost"]} */
  readonly dnsNames?: readonly string[];
  /** IPv4 addresses of its certificate. @default {["127.0.0.1"]} */
  readonly ipv4?: readonly string[];
}

/** The part of a request that HTTP/1.1 and HTTP/2 share. */
export interface FakeHttpRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: {
    readonly authorization?: string | undefined;
    readonly "content-type"?: string | undefined;
  };
  readonly stream?: Http2ServerRequest["stream"];
  on(event: "data", listener: (chunk: Uint8Array) => void): unknown;
  on(event: "end" | "error", listener: () => void): unknown;
}

/** See {@linkcode FakeHttpRequest}. */
export interface FakeHttpResponse {
  setHeader(name: string, value: string): unknown;
  writeHead(status: number, headers: Record<string, string>): unknown;
  write(text: string): boolean;
  end(text: string): unknown;
  flushHeaders?(): void;
  on(event: "close" | "error", listener: () => void): unknown;
}

/** A server and its CA. */
export class FakeHttpServer {
  readonly scheme: "https" | "http";
  readonly #options: FakeHttpServerOptions;
  readonly #handle: (request: FakeHttpRequest, response: FakeHttpResponse) => void;
  readonly #sessions = new Set<ServerHttp2Session>();
  readonly #sockets = new Set<Socket>();
  #authority: TestCertificateAuthority | undefined;
  #server: Http2SecureServer | Server | undefined;
  #port = 0;

  constructor(
    handle: (request: FakeHttpRequest, response: FakeHttpResponse) => void,
    options: FakeHttpServerOptions,
  ) {
    this.#handle = handle;
    this.#options = options;
    this.scheme = options.scheme ?? "https";
  }

  /** 0 before the first {@linkcode start}. */
  get port(): number {
    return this.#port;
  }

  /** The CA of its certificate, PEM. */
  get ca(): string {
    return this.#authority?.cert ?? "";
  }

  /** HTTP/2 connections open now. */
  get connections(): number {
    return this.#sessions.size;
  }

  /** Listens at 127.0.0.1: at any free port the first time, at the same one after that. */
  async start(): Promise<void> {
    const server = this.scheme === "http"
      ? createPlainServer((request, response) => this.#handle(request, response))
      : await this.#createSecureServer();
    await new Promise<void>((resolve) => server.listen(this.#port, "127.0.0.1", resolve));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("The server has no port");
    this.#port = address.port;
    this.#server = server;
  }

  /** Ends every connection at once, as kill -9 does. */
  async kill(): Promise<void> {
    const server = this.#server;
    if (!server) return;
    this.#server = undefined;
    const closed = new Promise((resolve) => server.close(resolve));
    for (const session of this.#sessions) session.destroy();
    // One in its handshake has no session yet.
    for (const socket of this.#sockets) socket.destroy();
    if ("closeAllConnections" in server) server.closeAllConnections();
    await closed;
  }

  /** Sends GOAWAY on every connection; open streams continue. */
  goaway(): void {
    for (const session of this.#sessions) session.goaway(0);
  }

  /** A client certificate of the server's own CA. */
  async issueClientCertificate(commonName: string): Promise<PemPair> {
    return await this.#authority!.issue({ commonName });
  }

  async #createSecureServer(): Promise<Http2SecureServer> {
    this.#authority ??= await createTestCertificateAuthority();
    const { dnsNames = ["localhost"], ipv4 = ["127.0.0.1"] } = this.#options;
    const leaf = await this.#authority.issue({ commonName: "kube-apiserver", dnsNames, ipv4 });
    const tls = { ...leaf, ca: [this.ca], requestCert: true, rejectUnauthorized: false };
    const server = createSecureServer(tls, (request, response) => this.#handle(request, response));
    server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
    server.on("session", (session) => {
      this.#sessions.add(session);
      session.on("error", () => {});
      session.on("close", () => this.#sessions.delete(session));
    });
    return server;
  }
}

/** Common name of the client certificate of a request, where the CA of the server has signed it. */
export function clientNameOf(request: FakeHttpRequest): string | undefined {
  // The types of node:http2 leave out that the socket is one of node:tls.
  const socket = request.stream?.session?.socket as unknown as {
    readonly authorized?: boolean;
    getPeerCertificate?(): { readonly subject?: { readonly CN?: string } } | undefined;
  } | undefined;
  return socket?.authorized ? socket.getPeerCertificate?.()?.subject?.CN : undefined;
}
