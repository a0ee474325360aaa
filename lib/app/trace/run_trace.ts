import { messageOf } from "../../log/message_of.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import { formatHostPort } from "../../net/port.ts";
import type { Clock } from "../../os/clock.ts";
import type { CommandRunner } from "../../os/command_runner.ts";
import { type ConntrackEntry, findConntrackEntry } from "../../os/conntrack_entry.ts";
import type { Network } from "../../os/network.ts";
import {
  type PacketWatch,
  type StartPacketWatch,
  type TracedPath,
  TraceError,
  type WatchedPacket,
} from "../../proxy/packet_trace.ts";
import type { ExplainedPacket, ExplainReport } from "../explain/explain_report.ts";
import { choosePacket, type ChosenPacket, seenFrom } from "./choose_packet.ts";
import { compareWithExplanation } from "./compare_with_explanation.ts";
import { NO_ROUTE, preparePacket, type ReadyPacket } from "./send_packet.ts";
import { outcomeOf } from "./trace_outcome.ts";
import type { TraceOrigin, TraceReport } from "./trace_report.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";

/** The edges of a trace. */
interface TraceDependencies {
  readonly clock: Clock;
  readonly network: Network;
  readonly commands: CommandRunner;
}

/** What is traced. */
interface TraceOptions {
  /** What the running kube-relay says of the packets that may be meant. */
  readonly report: ExplainReport;
  /** Asks it for another packet. */
  readonly explain: (
    ends: { readonly from: string; readonly to: string },
  ) => Promise<ExplainReport>;
  readonly start: StartPacketWatch;
  /** How long a packet of somebody else's is waited for. */
  readonly waitMs: number;
  readonly signal: AbortSignal;
  /** Told when a packet is waited for, with what for. */
  readonly onWaiting: (words: string) => void;
}

/** Everything that was seen. */
interface Sighting {
  readonly watched: WatchedPacket;
  readonly origin: TraceOrigin;
  readonly way: string;
  readonly path: TracedPath;
}

/** Throws a TraceError, a PacketEndsError, or what `explain` throws. */
export async function runTrace(
  dependencies: TraceDependencies,
  options: TraceOptions,
): Promise<TraceReport> {
  const chosen = choosePacket(options.report);
  const sighting = await watch(dependencies, {
    ...options,
    chosen,
    service: chosen.explained.service?.key,
  });
  const { entry, problem } = await entryOf(dependencies, sighting);
  const explained = await explainSeen(options, { chosen, sighting });
  const nodeAddresses = dependencies.network.interfaceAddresses().map(({ address }) => address);
  const { report } = options;
  return reportOf({ ...sighting, report, explained, entry, problem, nodeAddresses });
}

/** Sets the watch, lets the packet come by, and takes the watch away. */
async function watch(
  dependencies: TraceDependencies,
  options: TraceOptions & {
    readonly chosen: ChosenPacket;
    readonly service: string | undefined;
  },
): Promise<Sighting> {
  const { chosen: { watched }, start, signal, service } = options;
  const isSent = watched.comesFrom === "this machine";
  using ready = isSent ? preparePacket(dependencies, watched) : undefined;
  const exact = ready ? { ...watched, sourcePort: ready.sourcePort } : watched;
  await using set = await start(exact, { signal });
  const origin = ready
    ? await send(set, { ready, signal })
    : await wait(dependencies, set, { ...options, watched });
  const isUnsent = origin.kind === "sent" && origin.result === NO_ROUTE;
  const path = await set.path({ service, isUnsent });
  if (path.ending === "not seen" && path.steps.length === 0 && ready === undefined) {
    throw new TraceError("Cannot trace: the packet was seen, but its path was not");
  }
  return { watched: exact, origin, way: set.way, path };
}

/** A packet that was dropped is not waited for any longer. */
async function send(
  set: PacketWatch,
  { ready, signal }: { readonly ready: ReadyPacket; readonly signal: AbortSignal },
): Promise<TraceOrigin> {
  const dropped = new AbortController();
  void set.seen.then(() => set.path({})).then(({ ending }) => {
    if (ending === "dropped") dropped.abort();
  }, () => {});
  const origin = await ready.send(AbortSignal.any([signal, dropped.signal]));
  signal.throwIfAborted();
  return origin;
}

async function wait(
  { clock }: TraceDependencies,
  set: PacketWatch,
  { watched, waitMs, signal, onWaiting }: TraceOptions & { readonly watched: WatchedPacket },
): Promise<TraceOrigin> {
  const { protocol, from = "anybody", to, port } = watched;
  const words = `a new ${protocol} connection or flow from ${from} to ${formatHostPort(to, port)}`;
  onWaiting(words);
  const late = new AbortController();
  const timer = clock.setTimer(waitMs, () => late.abort());
  const ended = AbortSignal.any([signal, late.signal]);
  const end = new Promise<never>((_, reject) =>
    ended.addEventListener("abort", () => {
      const seconds = waitMs / 1000;
      reject(
        signal.aborted ? signal.reason : new TraceError(
          `Cannot trace: no packet was seen within ${seconds} s; ${words} was waited for`,
        ),
      );
    }, { once: true })
  );
  try {
    await Promise.race([set.seen, end]);
    return { kind: "waited for" };
  } finally {
    timer.cancel();
  }
}

/** What the kernel tracks; asked only for what was not refused: that is never tracked. */
async function entryOf(
  { commands }: TraceDependencies,
  { watched, path: { header, ending } }: Sighting,
): Promise<{ entry: ConntrackEntry | undefined; problem?: string }> {
  const from = header?.source ?? watched.from;
  if (ending === "rejected" || ending === "dropped") return { entry: undefined };
  const { family, protocol, to, port } = watched;
  const sourcePort = header?.sourcePort ?? watched.sourcePort;
  const query = {
    ...{ family, protocol, to, port },
    ...(from && { from }),
    ...(sourcePort && { sourcePort }),
  };
  try {
    return { entry: await findConntrackEntry(commands, query) };
  } catch (error) {
    return { entry: undefined, problem: messageOf(error) };
  }
}

/** Who sent it, and by which interface it came, is known for certain now. */
async function explainSeen(
  { explain, report: { from } }: TraceOptions,
  { chosen: { watched, explained }, sighting: { path: { header } } }: {
    readonly chosen: ChosenPacket;
    readonly sighting: Sighting;
  },
): Promise<ExplainedPacket> {
  if (watched.comesFrom === "this machine" || header === undefined) return explained;
  const { source: address, arrivedBy } = header;
  const { packets: [packet] } = await explain({
    from: seenFrom(from, { address, arrivedBy }),
    to: `${formatHostPort(watched.to, watched.port)}/${watched.protocol}`,
  });
  return packet ?? explained;
}

function reportOf(
  { watched, origin, way, path, report, explained, entry, problem, nodeAddresses }: Sighting & {
    readonly report: ExplainReport;
    readonly explained: ExplainedPacket;
    readonly entry: ConntrackEntry | undefined;
    readonly problem: string | undefined;
    readonly nodeAddresses: readonly IpAddress[];
  },
): TraceReport {
  const { mode, nodeName, assumptions } = report;
  const outcome = outcomeOf(path, { entry, origin, isInKernel: !MODE_TRAITS[mode].forwardsItself });
  const { service } = explained;
  const { family, to, port, protocol } = watched;
  const sourcePort = path.header?.sourcePort ?? watched.sourcePort;
  const from = path.header?.source ?? entry?.original.source ?? watched.from;
  const sender = from ?? explained.packet.from.address;
  return {
    mode,
    node: nodeName,
    packet: {
      family,
      from: from ?? "anybody",
      ...(sourcePort !== undefined && { sourcePort }),
      ...{ to, port, protocol },
    },
    origin,
    way,
    ...(service && { service: { key: service.key, role: service.role } }),
    steps: path.steps,
    outcome,
    ...(entry && { conntrack: entry }),
    ...(outcome.kind !== "not seen" && {
      comparison: compareWithExplanation(explained, { outcome, nodeAddresses, sender }),
    }),
    notes: [
      ...path.notes,
      ...(report.from === "outside" ? [] : assumptions),
      ...(problem === undefined ? [] : [`Connection tracking could not be asked: ${problem}`]),
    ],
  };
}
