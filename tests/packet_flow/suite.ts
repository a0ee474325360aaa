/**
 * Runs the packet-flow table against one way of carrying out a plan.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { PACKET_FLOW_CASES } from "./cases.ts";
import type {
  PacketFlowCase,
  PacketFlowScenario,
  PacketOutcome,
  PacketVerdict,
} from "./packet_flow_case.ts";

/** Rows that an executor cannot do, and why; said where it is tested. */
export interface PacketFlowSkip {
  readonly reason: string;
  /** Names of rows, or a test of a row. */
  readonly cases: readonly string[] | ((packet: PacketFlowCase) => boolean);
}

/** What {@linkcode runPacketFlowSuite} is told. */
export interface PacketFlowSuiteOptions {
  /** What is tested, e.g. `nftables`. */
  readonly name: string;
  /** Sends one packet and tells what became of it. */
  readonly execute: (packet: PacketFlowCase) => PacketOutcome | Promise<PacketOutcome>;
  /** Sets the scenario of the next packets up; disposed of after the last of them. */
  readonly prepare?: (scenario: PacketFlowScenario) => Promise<AsyncDisposable>;
  readonly skip?: readonly PacketFlowSkip[];
  /** Why the endpoint's view of the sender is not compared: the data plane always masquerades. */
  readonly ignoreMasquerade?: string;
}

/** Registers one test for each scenario, with one step for each packet. */
export function runPacketFlowSuite(options: PacketFlowSuiteOptions): void {
  const skips = options.skip ?? [];
  assertSkipsMatch(skips);
  for (const [scenario, packets] of Map.groupBy(PACKET_FLOW_CASES, ({ scenario }) => scenario)) {
    const wanted = packets.filter((packet) => skipReason(packet, skips) === undefined);
    Deno.test(`${options.name}: ${scenario.name}`, async (t) => {
      await using _prepared = wanted.length > 0 ? await options.prepare?.(scenario) : undefined;
      for (const packet of packets) {
        const reason = skipReason(packet, skips);
        const name = reason === undefined ? packet.name : `${packet.name} (skipped: ${reason})`;
        await t.step({
          name,
          ignore: reason !== undefined,
          fn: async () => checkOutcome(packet, await options.execute(packet), options),
        });
      }
    });
  }
}

/** A skip that matches no row is a leftover, or a slip of the pen that would hide nothing. */
function assertSkipsMatch(skips: readonly PacketFlowSkip[]): void {
  for (const { cases, reason } of skips) {
    const unmatched = typeof cases === "function"
      ? PACKET_FLOW_CASES.some(cases) ? [] : [reason]
      : cases.filter((name) => !PACKET_FLOW_CASES.some((packet) => packet.name === name));
    assertEquals(unmatched, [], "Cannot skip rows that do not exist");
  }
}

function skipReason(
  packet: PacketFlowCase,
  skips: readonly PacketFlowSkip[],
): string | undefined {
  return skips.find(({ cases }) =>
    typeof cases === "function" ? cases(packet) : cases.includes(packet.name)
  )?.reason;
}

function checkOutcome(
  packet: PacketFlowCase,
  { trace = [], ...outcome }: PacketOutcome,
  { ignoreMasquerade }: PacketFlowSuiteOptions,
): void {
  const { verdict, masquerade, sticky } = packet;
  const path = trace.length === 0 ? "" : `\n  ${trace.join("\n  ")}`;
  const message = `${packet.name}${path}`;
  assert(
    sameVerdict(outcome.verdict, verdict),
    `${message}\nexpected ${text(verdict)}, found ${text(outcome.verdict)}`,
  );
  if (typeof verdict === "string") return;
  assertEquals(outcome.sticky, sticky, `sticky: ${message}`);
  if (ignoreMasquerade === undefined) {
    assertEquals(outcome.masquerade, masquerade, `masquerade: ${message}`);
  }
}

/** A data plane may refuse what no Service claims. */
function sameVerdict(found: PacketVerdict, expected: PacketVerdict): boolean {
  if (expected === "UNCLAIMED") return found === "UNCLAIMED" || found === "REJECT";
  return text(found) === text(expected);
}

function text(verdict: PacketVerdict): string {
  return typeof verdict === "string" ? verdict : [...verdict].sort().join(", ");
}
