import { messageOf } from "../../log/message_of.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import { formatHostPort } from "../../net/port.ts";
import type { Clock } from "../../os/clock.ts";
import type { CommandRunner } from "../../os/command_runner.ts";
import { type ConntrackEntry, findConntrackEntry } from "../../os/conntrack_entry.ts";
import type { Network } from "../../os/network.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import {
  type PacketWatch,
  type StartPacketWatch,
  type TracedPath,
  TraceError,
  type WatchedPacket,
} from "../../proxy/packet_trace.ts";
import type { ExplainedPacket, ExplainReport } from "../explain/explain_report.ts";
import { PacketEndsError, parseFrom } from "../explain/packet_ends.ts";
import { preparePacket, type ReadyPacket } from "./send_packet.ts";
import {
  compareWithExplanation,
  NO_ROUTE,
  outcomeOf,
  type TraceOrigin,
  type TraceReport,
} from "./trace_outcome.ts";

interface TraceDependencies {
  readonly clock: Clock;
  readonly network: Network;
  readonly commands: CommandRunner;
}

interface TraceOptions {
  /** The explanation by the running kube-relay. */
  readonly report: ExplainReport;
  /** Asks for the explanation of another packet. */
  readonly explain: (
    ends: { readonly from: string; readonly to: string },
  ) => Promise<ExplainReport>;
  readonly start: StartPacketWatch;
  /** Longest wait for a packet of another machine. */
  readonly waitMs: number;
  readonly signal: AbortSignal;
  /** Called with the awaited packet before the wait. */
  readonly onWaiting: (text: string) => void;
}

interface Sighting {
  readonly watched: WatchedPacket;
  readonly origin: TraceOrigin;
  readonly way: string;
  readonly path: TracedPath;
}

/** Traces one packet and undoes every change to the machine. Throws a TraceError, a PacketEndsError, or as `explain`. */
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

/** Watches while the packet passes. */
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

/** Stops waiting for an answer once the packet was dropped. */
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
  const { protocol, from = "any client", to, port } = watched;
  const text = `a new ${protocol} connection or flow from ${from} to ${formatHostPort(to, port)}`;
  onWaiting(text);
  const late = new AbortController();
  const timer = clock.setTimer(waitMs, () => late.abort());
  const ended = AbortSignal.any([signal, late.signal]);
  const end = new Promise<never>((_, reject) =>
    ended.addEventListener("abort", () => {
      const seconds = waitMs / 1000;
      reject(
        signal.aborted ? signal.reason : new TraceError(
          `Cannot trace: no packet was seen within ${seconds} s; expected ${text}`,
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

/** The entry of connection tracking. A rejected or dropped packet has none. */
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

/** Explains again with the sender and the interface of the packet that was seen. */
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
      from: from ?? "any",
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

interface ChosenPacket {
  readonly watched: WatchedPacket;
  readonly explained: ExplainedPacket;
}

/** Most packets that an error names. */
const MOST_NAMED = 6;

/** Chooses the packet to watch. Throws a PacketEndsError if several match. */
export function choosePacket(
  { from: fromText, to, packets }: Pick<ExplainReport, "from" | "packets" | "to">,
): ChosenPacket {
  // If both IP families match, the first one is used.
  const candidates = packets.filter(({ family }) => family === packets[0]?.family);
  const [explained] = candidates;
  if (explained === undefined || candidates.length > 1) throw severalMeant(to, candidates);
  const { family, packet } = explained;
  const isNamed = parseFrom(fromText).kind === "address";
  const watched: WatchedPacket = {
    family,
    from: isNamed ? packet.from.address : undefined,
    to: packet.to,
    port: packet.port,
    protocol: packet.protocol,
    comesFrom: packet.from.kind === "node" ? "this machine" : "elsewhere",
  };
  return { watched, explained };
}

/** FROM of the packet that was seen, with its interface. */
export function seenFrom(
  fromText: string,
  { address, arrivedBy }: { readonly address: string; readonly arrivedBy: string | undefined },
): string {
  const sender = fromText === "outside" ? address : fromText;
  return arrivedBy === undefined || sender.includes("@") ? sender : `${sender}@${arrivedBy}`;
}

function severalMeant(to: string, packets: readonly ExplainedPacket[]): PacketEndsError {
  const named = packets.slice(0, MOST_NAMED)
    .map(({ packet: { to, port, protocol } }) => `${formatHostPort(to, port)}/${protocol}`);
  const more = packets.length > MOST_NAMED ? `, and ${packets.length - MOST_NAMED} more` : "";
  return new PacketEndsError(
    `Cannot trace several packets at once: '${to}' may be ${named.join(", ")}${more}; name one`,
  );
}
