import type { Machine } from "../../../app/run/run_tools.ts";
import { askControl } from "../../control/control_client.ts";
import { explanationReport } from "../../explain/explanation_view.ts";
import { parseFrom, parsePodName, parseSni, parseTo } from "../../explain/packet_ends.ts";
import { type CommandContext, namesObjects, printAnswer } from "./command.ts";

/** Asks the running process about a packet, and explains everything else here. */
export async function explainVerb(machine: Machine, context: CommandContext): Promise<number> {
  const { flags, operands: [from = "", to = ""] = [], configuration: { relay } } = context;
  const isPacket = flags.policies === undefined && from !== "address" && from !== "bgp";
  if (isPacket) {
    // Checked here, so that a wrong operand is wrong use with every source.
    if (parsePodName(from) === undefined) parseFrom(from);
    parseTo(to);
    if (flags.sni !== undefined) parseSni(flags.sni);
  }
  if (!isPacket || flags.from !== undefined || namesObjects(flags)) {
    const { explainHere } = await import("../planning_verbs.ts");
    return await explainHere(await machine.loadAll(), context);
  }
  const report = await askControl(relay.controlSocket, "/explain", {
    ...{ from, to },
    ...(flags.sni !== undefined && { sni: flags.sni }),
  });
  printAnswer(machine, context, () => report, () => explanationReport(report));
  return 0;
}
