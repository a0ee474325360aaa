/**
 * The protocol between a test and `probe_client.ts`: one JSON object a line, each answered by one.
 */
import type { EchoGreeting } from "./echo_server.ts";

/** The destination of a probe. */
export interface ProbeTarget {
  readonly protocol: "TCP" | "UDP";
  readonly address: string;
  readonly port: number;
}

/** A target that is probed again and again, and the servers that may answer. */
export interface LoadTarget extends ProbeTarget {
  /** Names of the servers; an answer of any other one is a failure. Empty: all may. */
  readonly expect: readonly string[];
}

/** The result of one probe. */
export type ProbeAnswer =
  | { readonly kind: "answered"; readonly by: EchoGreeting }
  /** The port is closed. Only for TCP: an unconnected datagram socket gets no error. */
  | { readonly kind: "refused" }
  /** Silence until the time-out. */
  | { readonly kind: "silent" }
  | { readonly kind: "failed"; readonly reason: string };

/** A request to a client. */
export type ProbeRequest =
  /** One exchange on a new socket. */
  | { readonly do: "probe"; readonly target: ProbeTarget; readonly timeoutMs: number }
  /** One exchange with each target, all at the same time. */
  | {
    readonly do: "probe-all";
    readonly targets: readonly ProbeTarget[];
    readonly timeoutMs: number;
  }
  /** A TCP connection, or a UDP socket with one peer, that is kept. */
  | {
    readonly do: "open";
    readonly id: string;
    readonly target: ProbeTarget;
    /** UDP only: the socket also sends on its own, at this interval, and ignores the answers. */
    readonly everyMs?: number;
  }
  /** One exchange on each of these sockets, all at the same time. */
  | { readonly do: "talk"; readonly ids: readonly string[]; readonly timeoutMs: number }
  | { readonly do: "close"; readonly id: string }
  /** New exchanges at a fixed rate, round robin over the targets, whether or not earlier ones are done. */
  | {
    readonly do: "load";
    readonly targets: readonly LoadTarget[];
    readonly perSecond: number;
    readonly timeoutMs: number;
    /** A lost datagram is not sent again, so each one counts. @default {false} */
    readonly sendsOnce?: boolean;
  }
  /** Ends the load, waits for pending attempts, and reports. */
  | { readonly do: "stop" };

/** The result of a load. Every attempt is counted: `attempts` is `answered` plus `failures`. */
export interface LoadReport {
  readonly attempts: number;
  readonly answered: number;
  readonly failures: number;
  /** The first failures, each as `TCP 10.96.0.1:80 after 1234 ms: refused`. */
  readonly examples: readonly string[];
  /** When the failed attempts on a target began, in milliseconds since the start of the load. */
  readonly failedAfterMs: Readonly<Record<string, readonly number[]>>;
  readonly seconds: number;
  /** The longest that an answered exchange took. */
  readonly slowestMs: number;
  /** Answers of each server, by target (`TCP 10.96.0.1:80`). */
  readonly byTarget: Readonly<Record<string, Readonly<Record<string, number>>>>;
}

/** The text form of a target. */
export function targetText({ protocol, address, port }: ProbeTarget): string {
  return `${protocol} ${address.includes(":") ? `[${address}]` : address}:${port}`;
}
