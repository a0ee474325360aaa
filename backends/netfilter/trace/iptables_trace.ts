import {
  type PacketWatch,
  type StartPacketWatch,
  TraceError,
  type TraceStep,
  type WatchedPacket,
} from "../../../lib/proxy/packet_trace.ts";
import { chooseIptables } from "../iptables/iptables_variant.ts";
import type { IptablesPrograms } from "../iptables/iptables_programs.ts";
import { tryTool } from "../probe/try_tool.ts";
import { startCounterWatch } from "./counter_watch.ts";
import type { FollowedStep } from "./nft_trace_events.ts";
import { startNftWatch, type TraceEdges } from "./nft_watch.ts";
import { lookUpRules } from "./rule_texts.ts";

/** Watches packets in a mode of iptables rules, by the best method that the machine has. */
export function createIptablesTrace(edges: TraceEdges): StartPacketWatch {
  return async (packet, { signal }) => {
    const { family } = packet;
    const choice = await chooseIptables(edges, { family, signal });
    if (choice.programs === undefined) throw new TraceError(`Cannot trace: ${choice.problem}`);
    return await startBest(edges, packet, { programs: choice.programs, signal });
  };
}

async function startBest(
  edges: TraceEdges,
  packet: WatchedPacket,
  { programs, signal }: { readonly programs: IptablesPrograms; readonly signal: AbortSignal },
): Promise<PacketWatch> {
  const { variant, save } = programs;
  const byCounters = (reason: string) =>
    startCounterWatch(edges, packet, { save, reason, describe, signal });
  if (variant === "legacy") return await byCounters("Rules of iptables-legacy report no packets");
  const tools = ["nft", "setpriv"];
  const answers = await Promise.all(
    tools.map((each) => tryTool(edges, [each, "--version"], { signal })),
  );
  const missing = tools.find((_, index) => answers[index]?.kind === "missing");
  if (missing !== undefined) {
    return await byCounters(`Single packets can't be watched without the program ${missing}`);
  }
  try {
    const lookUp = (steps: readonly FollowedStep[]) =>
      lookUpRules(edges.commands, steps, save.replace(/-save$/, ""));
    return await startNftWatch(edges, packet, { describe, lookUp, signal });
  } catch (error) {
    if (!(error instanceof TraceError) || signal.aborted) throw error;
    return await byCounters(`Single packets can't be watched here: ${error.message}`);
  }
}

/** The meaning of a rule at a place; the first matching row counts. */
interface Row {
  /** `table chain`. */
  readonly place: RegExp;
  readonly rule?: RegExp;
  readonly words: string;
}

const COMMENT = / -m comment --comment ("(?:[^"\\]|\\.)*"|\S+)/;

const ROWS: readonly Row[] = [
  {
    place: /^nat (PREROUTING|OUTPUT)$/,
    rule: /-j KUBE-SERVICES$/,
    words: "a new connection: is this an address of a Service?",
  },
  {
    place: /^nat POSTROUTING$/,
    rule: /-j KUBE-POSTROUTING$/,
    words: "leaves: does it keep its source?",
  },
  {
    place: /^filter (INPUT|FORWARD|OUTPUT)$/,
    rule: /-j KUBE-(SERVICES|EXTERNAL-SERVICES|PROXY-FIREWALL|IPVS-FILTER)$/,
    words: "is it refused?",
  },
  {
    place: / KUBE-/,
    rule: /-j KUBE-MARK-MASQ$/,
    words: "marked to leave with an address of this node as its source (masquerade)",
  },
  { place: / KUBE-MARK-MASQ$/, words: "carries the mark for it from now on" },
  { place: /^nat KUBE-/, rule: /-j DNAT /, words: "goes to this endpoint of %s" },
  { place: /^nat KUBE-/, rule: /-j KUBE-NODEPORTS$/, words: "is this a node port?" },
  { place: /^nat KUBE-/, rule: /-j KUBE-(VIP|NP|HP)-/, words: "nearer to its destination" },
  {
    place: /^nat KUBE-/,
    rule: /-j KUBE-SVC-/,
    words: "chooses among the endpoints of %s",
  },
  {
    place: /^nat KUBE-/,
    rule: /-j KUBE-SVL-/,
    words: "chooses among the endpoints of %s on this node",
  },
  { place: /^nat KUBE-/, rule: /-j KUBE-EXT-/, words: "arrives at %s from outside" },
  { place: /^nat KUBE-/, rule: /-j KUBE-FW-/, words: "may the sender use %s?" },
  {
    place: /^nat KUBE-(POSTROUTING|HAIRPIN|HP-.*)$/,
    rule: /-j MASQUERADE/,
    words: "gets an address of this node as its source (masquerade)",
  },
  {
    place: /^nat KUBE-POSTROUTING$/,
    rule: /! --mark \S+ -j RETURN$/,
    words: "keeps its source",
  },
  { place: / KUBE-/, rule: /-j REJECT/, words: "refused: the sender gets an error" },
  { place: / KUBE-/, rule: /-j DROP/, words: "dropped: the sender gets no answer" },
];

/** Describes a step in a chain of a Service proxy; `undefined` for others. */
function describe(
  { place, rule }: TraceStep,
  service = "no Service that is known",
): string | undefined {
  if (rule === undefined) return undefined;
  // A comment can contain any text.
  const bare = rule.replace(COMMENT, "");
  const row = ROWS.find((row) => row.place.test(place) && (row.rule?.test(bare) ?? true));
  return row?.words.replace("%s", () => service);
}
