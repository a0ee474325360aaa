/**
 * Measures how long an address takes to another node, by the frames of the link.
 *
 * @module
 */
import type { LinkFrame } from "../drivers/link_capture.ts";
import { eventually } from "../eventually.ts";
import type { FailoverCluster, FailoverNode } from "./failover_cluster.ts";
import type { FailoverService } from "./failover_objects.ts";

/** A cause for which addresses of the first node move to the second one. */
export interface FailoverCause {
  readonly name: string;
  readonly service: FailoverService;
  /** Longest time until the second node serves. */
  readonly limitMs: number;
  readonly cause: (cluster: FailoverCluster, node: FailoverNode) => Promise<unknown>;
  /** Brings everything back. */
  readonly restore: (cluster: FailoverCluster, node: FailoverNode) => Promise<unknown>;
}

/** What happened to the address of one family. */
export interface FailoverFigures {
  /** From the cause to the first answer to the client by the second node. */
  readonly servedMs: number;
  /** The longest time without any answer to the client. */
  readonly silentMs: number;
  /** Answers to questions for the address between those of the other node. */
  readonly doubleAnswers: number;
  /** Of the longest row of such answers. */
  readonly doubleMs: number;
}

/** A node that answers this much later than another one does not answer together with it. */
const TOGETHER_MS = 500;
/** The frames of this time after the move are judged too. */
const AFTERWARDS_MS = 2_500;

/**
 * The causes, as docs/load_balancer.md lists them. The one that leaves connections to the API server with
 * long time-outs of TCP is the last, and the first one starts kube-relay again.
 */
export const FAILOVER_CAUSES: readonly FailoverCause[] = [
  {
    name: "kill -9 of kube-relay",
    service: "web",
    limitMs: 3_000,
    cause: (cluster, node) => cluster.relay(node).kill(),
    restore: (cluster, node) => cluster.startRelay(node),
  },
  {
    name: "SIGTERM",
    service: "web",
    limitMs: 1_000,
    cause: (cluster, node) => Promise.resolve(cluster.relay(node).terminate()),
    async restore(cluster, node) {
      await cluster.relay(node).ended();
      await cluster.startRelay(node);
    },
  },
  {
    name: "the endpoint moves",
    service: "local",
    limitMs: 1_000,
    cause: (cluster) => cluster.moveEndpoint(cluster.nodes[1]),
    restore: (cluster, node) => cluster.moveEndpoint(node),
  },
  {
    name: "the node is cut off",
    service: "web",
    limitMs: 3_000,
    cause: (cluster, node) => cluster.setConnected(node, false),
    restore: (cluster, node) => cluster.setConnected(node, true),
  },
];

/** Lets one cause happen, and brings everything back. Returns figures by family. */
export async function measureFailover(
  cluster: FailoverCluster,
  { service, cause, restore }: FailoverCause,
): Promise<Readonly<Record<"IPv4" | "IPv6", FailoverFigures>>> {
  const [first, second] = cluster.nodes;
  await cluster.servedBy(first, service);
  const since = Date.now();
  const caused = cause(cluster, first);
  const { IPv4, IPv6 } = cluster.addresses[service];
  for (const address of [IPv4, IPv6]) {
    await eventually(
      `the second node serves ${address}`,
      () => servedAt(cluster.frames(address, since), second) !== undefined,
    ).catch((error) => {
      throw new Error(cluster.nodes.map((node) => cluster.relay(node).log).join("\n----\n"), {
        cause: error,
      });
    });
  }
  await caused;
  const until = Date.now() + AFTERWARDS_MS;
  await eventually("the time afterwards is over", () => Date.now() > until);
  await restore(cluster, first);
  await cluster.servedBy(first, service, { calmMs: 1_000 });
  const figures = (address: string): FailoverFigures => {
    const frames = cluster.frames(address, since);
    return {
      servedMs: servedAt(frames, second)! - since,
      silentMs: longestSilence(frames, { since, until }),
      ...doubleAnswersOf(frames),
    };
  };
  return { IPv4: figures(IPv4), IPv6: figures(IPv6) };
}

function servedAt(frames: readonly LinkFrame[], node: FailoverNode): number | undefined {
  return frames.find(({ kind, from }) => kind === "data" && from === node.link)?.at;
}

/** The longest time in which no node answered the client. */
export function longestSilence(
  frames: readonly LinkFrame[],
  { since, until }: { readonly since: number; readonly until: number },
): number {
  const times = frames.filter(({ kind, at }) => kind === "data" && at >= since && at <= until)
    .map(({ at }) => at);
  return Math.max(...[...times, until].map((at, index) => at - (times[index - 1] ?? since)));
}

/** Answers and announcements of a node that are between those of another one. */
export function doubleAnswersOf(
  frames: readonly LinkFrame[],
): Pick<FailoverFigures, "doubleAnswers" | "doubleMs"> {
  const answers = frames.filter(({ kind }) => kind !== "data");
  const isDouble = ({ at, from }: LinkFrame) => {
    const others = answers.filter((each) =>
      each.from !== from && Math.abs(each.at - at) <= TOGETHER_MS
    );
    return others.some((each) => each.at < at) && others.some((each) => each.at > at);
  };
  const doubles = answers.filter(isDouble).map(({ at }) => at);
  let [doubleMs, begin] = [0, doubles[0] ?? 0];
  for (const [index, at] of doubles.entries()) {
    if (index > 0 && at - doubles[index - 1]! > TOGETHER_MS) begin = at;
    doubleMs = Math.max(doubleMs, at - begin);
  }
  return { doubleAnswers: doubles.length, doubleMs };
}
