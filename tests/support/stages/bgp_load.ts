/**
 * Requests of clients behind routers, and how many of them were lost.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { ProbeClient } from "../drivers/echo_network.ts";
import type { LoadReport, LoadTarget } from "../drivers/probe_protocol.ts";
import type { Namespace } from "./netns.ts";

/** Requests a second of each client: half of them over TCP, half of them datagrams. */
const REQUESTS_PER_SECOND = 100;
/** A busy machine may delay a server; a lost datagram is never answered. */
const TIMEOUT_MS = 10_000;
/** The requests during an event. */
export interface Loss {
  readonly requests: number;
  readonly lost: number;
  /** Those of them that were datagrams. */
  readonly lostDatagrams: number;
  /** Connections that began after the event had its effect, and were lost nevertheless. */
  readonly lostAfterwards: number;
  readonly examples: readonly string[];
  /** The servers that answered. */
  readonly servers: readonly string[];
}

/** Clients that send requests to one address. */
export class BgpLoad {
  readonly #clients: readonly ProbeClient[];
  readonly #targets: readonly LoadTarget[];

  private constructor(clients: readonly ProbeClient[], targets: readonly LoadTarget[]) {
    this.#clients = clients;
    this.#targets = targets;
  }

  /** Starts a client in each namespace. */
  static start(namespaces: readonly Namespace[], address: string, port = 80): BgpLoad {
    const targets = (["TCP", "UDP"] as const).map((protocol) => ({
      ...{ protocol, address, port, expect: [] },
    }));
    return new BgpLoad(namespaces.map((each) => ProbeClient.start(each)), targets);
  }

  /**
   * Sends requests during an event, and prints what came of them. The event calls a function at the
   * moment from which no new connection may be lost.
   */
  async during(what: string, event: (onEffect: () => void) => Promise<unknown>): Promise<Loss> {
    const options = { perSecond: REQUESTS_PER_SECOND, timeoutMs: TIMEOUT_MS, sendsOnce: true };
    const start = performance.now();
    for (const client of this.#clients) await client.startLoad(this.#targets, options);
    let reports: readonly LoadReport[];
    let effectAfterMs = Infinity;
    try {
      await event(() => effectAfterMs = performance.now() - start);
    } finally {
      reports = await Promise.all(this.#clients.map((client) => client.stopLoad()));
    }
    const loss = lossOf(reports, effectAfterMs);
    const seconds = Math.max(...reports.map((report) => report.seconds));
    // deno-lint-ignore no-console -- the figures
    console.log(
      `${what}: ${loss.lost} of ${loss.requests} requests lost in ${seconds.toFixed(1)} s`,
    );
    return loss;
  }

  /** Lets the clients send requests for a time. */
  async goOn(ms: number): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, ms));
  }

  /** As {@linkcode during}; fails if a request was lost. */
  async losesNothing(what: string, event: () => Promise<unknown>): Promise<Loss> {
    const loss = await this.during(what, event);
    assertEquals(loss.lost, 0, loss.examples.join("\n"));
    return loss;
  }
}

/**
 * Fails if more was lost than connections that were open while routers moved them to another node. A
 * busy machine has many of them open.
 */
export function assertOnlyMoved({ lostDatagrams, lostAfterwards, examples }: Loss): void {
  assertEquals(
    { lostDatagrams, lostAfterwards },
    { lostDatagrams: 0, lostAfterwards: 0 },
    examples.join("\n"),
  );
}

function lossOf(reports: readonly LoadReport[], effectAfterMs: number): Loss {
  const sum = (field: "attempts" | "failures") =>
    reports.reduce((total, report) => total + report[field], 0);
  const servers = reports.flatMap(({ byTarget }) =>
    Object.values(byTarget).flatMap((counts) => Object.keys(counts))
  );
  const failedAfterMs = (protocol: "TCP" | "UDP") =>
    reports.flatMap((report) => Object.entries(report.failedAfterMs))
      .flatMap(([target, times]) => target.startsWith(protocol) ? times : []);
  return {
    requests: sum("attempts"),
    lost: sum("failures"),
    lostDatagrams: failedAfterMs("UDP").length,
    lostAfterwards: failedAfterMs("TCP").filter((ms) => ms > effectAfterMs).length,
    examples: reports.flatMap(({ examples }) => examples),
    servers: [...new Set(servers)].sort(),
  };
}
