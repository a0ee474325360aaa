/** Runs the packet-flow table against one way of carrying out a plan. */
import { assert, assertEquals } from "@std/assert";
import { PACKET_FLOW_CASES } from "./cases.ts";
import type {
  PacketFlowCase,
  PacketFlowScenario,
  PacketOutcome,
  PacketVerdict,
} from "./packet_flow_case.ts";

/** Rows of the table, and why they are something special; said where it is tested. */
interface PacketFlowException {
  readonly reason: string;
  /** Names of rows, or a test of a row. */
  readonly cases: readonly string[] | ((packet: PacketFlowCase) => boolean);
}

/** Rows that an executor cannot do. */
export type PacketFlowSkip = PacketFlowException;

/** Rows with another meaning for an executor, with the expected result in place of the table's. */
export interface PacketFlowAdaptation extends PacketFlowException {
  readonly expect: Partial<Pick<PacketFlowCase, "verdict" | "masquerade">>;
}

/** The executor, and the rows to run. */
export interface PacketFlowOptions {
  /** The tested mode, e.g. `nftables`. */
  readonly name: string;
  /** Sends one packet and returns its outcome. */
  readonly execute: (packet: PacketFlowCase) => PacketOutcome | Promise<PacketOutcome>;
  /** Sets the scenario of the next packets up; disposed of after the last of them. */
  readonly prepare?: (scenario: PacketFlowScenario) => Promise<AsyncDisposable>;
  /** @default {the table as it stands} */
  readonly cases?: readonly PacketFlowCase[];
  readonly skip?: readonly PacketFlowSkip[];
  readonly adapt?: readonly PacketFlowAdaptation[];
}

/** Registers one test for each scenario, with one step for each packet. */
export function runPacketFlowSuite(options: PacketFlowOptions): void {
  for (const packets of scenariosOf(options)) {
    Deno.test(`${options.name}: ${packets[0]?.scenario.name}`, async (t) => {
      await runScenario(t, { packets, options });
    });
  }
}

/** Runs the table inside of one test, with a step for each scenario. */
export async function runPacketFlowSteps(
  t: Deno.TestContext,
  options: PacketFlowOptions,
): Promise<void> {
  for (const packets of scenariosOf(options)) {
    await t.step(`${options.name}: ${packets[0]?.scenario.name}`, async (t) => {
      await runScenario(t, { packets, options });
    });
  }
}

/** The rows, grouped by scenario. */
function scenariosOf(options: PacketFlowOptions): Iterable<readonly PacketFlowCase[]> {
  const { cases = PACKET_FLOW_CASES, skip = [], adapt = [] } = options;
  assertAllMatch([...skip, ...adapt], cases);
  return Map.groupBy(cases, ({ scenario }) => scenario).values();
}

async function runScenario(
  t: Deno.TestContext,
  { packets, options }: {
    readonly packets: readonly PacketFlowCase[];
    readonly options: PacketFlowOptions;
  },
): Promise<void> {
  const { execute, prepare, skip = [] } = options;
  const wanted = packets.find((packet) => findFor(packet, skip) === undefined);
  await using _prepared = wanted && await prepare?.(wanted.scenario);
  for (const packet of packets) {
    const reason = findFor(packet, skip)?.reason;
    const name = reason === undefined ? packet.name : `${packet.name} (skipped: ${reason})`;
    await t.step({
      name,
      ignore: reason !== undefined,
      fn: async () => {
        // The first adaptation of each field counts.
        const row = options.adapt ? adapted(packet, options.adapt) : packet;
        checkOutcome(row, await execute(row));
      },
    });
  }
}

function adapted(
  packet: PacketFlowCase,
  adaptations: readonly PacketFlowAdaptation[],
): PacketFlowCase {
  return adaptations.filter((adaptation) => matches(packet, adaptation))
    .reduceRight((row, { expect }) => ({ ...row, ...expect }), packet);
}

/** An exception that matches no row is a leftover, or a slip of the pen that would hide nothing. */
function assertAllMatch(
  exceptions: readonly PacketFlowException[],
  rows: readonly PacketFlowCase[],
): void {
  for (const { cases, reason } of exceptions) {
    const unmatched = typeof cases === "function"
      ? rows.some(cases) ? [] : [reason]
      : cases.filter((name) => !rows.some((packet) => packet.name === name));
    assertEquals(unmatched, [], "Cannot make an exception for rows that do not exist");
  }
}

function findFor<T extends PacketFlowException>(
  packet: PacketFlowCase,
  exceptions: readonly T[],
): T | undefined {
  return exceptions.find((exception) => matches(packet, exception));
}

function matches(packet: PacketFlowCase, { cases }: PacketFlowException): boolean {
  return typeof cases === "function" ? cases(packet) : cases.includes(packet.name);
}

/** Throws an AssertionError that names the row if an outcome differs from the expected one. */
export function checkOutcome(
  packet: PacketFlowCase,
  { trace = [], ...outcome }: PacketOutcome,
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
  assertEquals(outcome.masquerade, masquerade, `masquerade: ${message}`);
}

/** A data plane may refuse packets of no Service. */
function sameVerdict(found: PacketVerdict, expected: PacketVerdict): boolean {
  if (expected === "UNCLAIMED") return found === "UNCLAIMED" || found === "REJECT";
  return text(found) === text(expected);
}

function text(verdict: PacketVerdict): string {
  return typeof verdict === "string" ? verdict : [...verdict].sort().join(", ");
}
