import type { Dependencies } from "../../../app/dependencies.ts";
import { TraceError } from "../../../proxy/packet_trace.ts";
import { askControl } from "../../control/control_client.ts";
import { parseFrom, parseTo } from "../../explain/packet_ends.ts";
import { createForwarderTrace } from "../../trace/forwarder_watch.ts";
import { runTrace } from "../../trace/run_trace.ts";
import { traceView } from "../../trace/trace_report.ts";
import { type CommandContext, printAnswer } from "./command.ts";
import { MODE_TRAITS } from "../../../proxy/backend.ts";

const DEFAULT_WAIT_MS = 30_000;
/** The exit code if the path differs from that of `explain`. */
const DIFFERS = 3;
/** Exit code if the packet was sent but not seen. */
const NOT_TRACED = 1;

/**
 * Sends one packet, or waits for one, and prints its path. Acts in this process with the rights of its
 * caller; the serving process is only asked.
 */
export async function traceVerb(
  dependencies: Dependencies,
  { operands = [], flags, configuration, endInOrder }: CommandContext,
): Promise<number> {
  const { clock, random, packetTraces, complain, process } = dependencies;
  const [from = "", to = ""] = operands;
  // Checked here, so that a wrong operand is wrong use.
  parseFrom(from);
  parseTo(to);
  const { controlSocket } = configuration.relay;
  const explain = (ends: { readonly from: string; readonly to: string }) =>
    askControl(controlSocket, "/explain", { ...ends, brief: "" });
  const explained = await explain({ from, to });
  const start = MODE_TRAITS[explained.mode].forwardsItself
    ? createForwarderTrace(
      clock,
      controlSocket,
      `${process.pid}-${Math.floor(random() * 2 ** 32)}`,
    )
    : packetTraces?.[explained.mode];
  if (start === undefined) {
    throw new TraceError(
      `Cannot trace in mode '${explained.mode}': this release cannot trace in it`,
    );
  }
  const { wait: waitMs = DEFAULT_WAIT_MS } = flags;
  const onWaiting = (words: string) =>
    complain(`Waiting for ${words}, at most ${waitMs / 1000} s\n`);
  const signal = endInOrder();
  const options = { explain, start, waitMs, signal, onWaiting };
  const report = await runTrace(dependencies, explained, options).catch((error: unknown) => {
    if (!signal.aborted) throw error;
    throw new TraceError("Cannot trace: ended by a signal before the packet was seen");
  });
  printAnswer(dependencies, { flags }, () => report, () => traceView(report));
  if (report.outcome.kind === "not seen") return NOT_TRACED;
  return report.comparison?.differences.length ? DIFFERS : 0;
}
