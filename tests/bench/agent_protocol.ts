/**
 * The protocol between the benchmark and its agent in a network namespace, one line of JSON for
 * each message.
 *
 * @module
 */

/** A request to an agent. */
export type AgentRequest =
  | { readonly kind: "run"; readonly program: string; readonly args: readonly string[] }
  | { readonly kind: "connect"; readonly addresses: readonly string[]; readonly rounds: number }
  /** Datagrams of one socket. */
  | { readonly kind: "send"; readonly address: string; readonly datagrams: number };

/** The time that a tool took. */
export interface ToolRun {
  readonly wallMs: number;
  readonly cpuMs: number;
  /** Most resident memory of any tool that this agent has run. */
  readonly peakMiB: number;
}

/** The answer of an agent. */
export type AgentAnswer =
  | { readonly kind: "ran"; readonly run: ToolRun }
  /** Microseconds of each connection, by address. */
  | { readonly kind: "connected"; readonly times: Readonly<Record<string, readonly number[]>> }
  | { readonly kind: "sent"; readonly microsecondsEach: number }
  | { readonly kind: "failed"; readonly reason: string }
  /** Still at work. */
  | { readonly kind: "patience" };

/** The port that every address of the benchmark is asked on, and every endpoint listens on. */
export const BENCH_PORT = 8080;
