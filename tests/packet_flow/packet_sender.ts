/**
 * Sends the rows of the packet-flow table as real packets in a cluster of network namespaces, with
 * any proxy on the node. The servers report who answered and which client they saw.
 */
import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import { formatHostPort } from "../../lib/net/port.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import type { ClusterTopology } from "../support/stages/cluster_topology.ts";
import { ProbeClient, startEchoServer } from "../support/drivers/echo_network.ts";
import type { EchoGreeting } from "../support/drivers/echo_server.ts";
import type { Namespace } from "../support/stages/netns.ts";
import { TARGET_PORTS } from "./cases.ts";
import type { ProbeAnswer, ProbeTarget } from "../support/drivers/probe_protocol.ts";
import {
  type PacketFlowCase,
  packetOrigin,
  type PacketOutcome,
  type PacketSource,
} from "./packet_flow_case.ts";

/** An exchange in namespaces takes a millisecond or two; where none is expected, this is silence. */
const SILENCE_MS = 150;
/**
 * The time limit for an expected answer on a busy machine. A refusal may need it too: with IPv6,
 * Linux 6.18 handles the first ICMP error of a TCP handshake only after it has repeated the SYN.
 */
const ANSWER_MS = 5_000;
/** The number of requests for each endpoint that shows whether they take turns. */
const ROUNDS = 2;
/** Chance may pick some of them again and again, but not so often. */
const MOST_ROUNDS = 20;
/** Without affinity, one in a thousand clients would reach the same of two endpoints this often. */
const STICKY_ROUNDS = 10;
/**
 * Each client has its own endpoint. This number of clients sees all of them, except for one time in
 * a million.
 */
const MOST_CLIENTS = 20;

/** An answer, and how long it took where that is known. */
type TimedAnswer = ProbeAnswer & { readonly ms?: number };

/** Sends the packets. It holds servers and clients that end with the cluster. */
export class PacketSender {
  readonly #cluster: ClusterTopology;
  readonly #clients: Readonly<Record<PacketSource, ProbeClient>>;
  /** Every address of the node: a peer that is one of them was masqueraded. */
  readonly #nodeAddresses: ReadonlySet<string>;

  private constructor(cluster: ClusterTopology, nodeAddresses: ReadonlySet<string>) {
    this.#cluster = cluster;
    this.#nodeAddresses = nodeAddresses;
    this.#clients = {
      node: ProbeClient.start(cluster.node),
      localPod: ProbeClient.start(cluster.localPods[0]),
      localPodClient: ProbeClient.start(cluster.localPodClient),
      remotePodClient: ProbeClient.start(cluster.remotePodClient),
      client: ProbeClient.start(cluster.client),
      blockedClient: ProbeClient.start(cluster.blockedClient),
    };
  }

  /** Starts servers and clients. */
  static async start(cluster: ClusterTopology): Promise<PacketSender> {
    const pods = [
      { namespace: cluster.localPods[0], of: "localPods" },
      { namespace: cluster.remotePods[0], of: "remotePods" },
    ] as const;
    await Promise.all(pods.map(({ namespace, of }) => {
      const addresses = [ADDRESSES.IPv4[of][0], ADDRESSES.IPv6[of][0]];
      const listen = addresses.flatMap((address) =>
        TARGET_PORTS.map((port) => ({ address, port }))
      );
      return startEchoServer(namespace, { name: of, listen });
    }));
    return new PacketSender(cluster, await addressesOf(cluster.node));
  }

  /** Carries one row out. */
  async execute(packet: PacketFlowCase): Promise<PacketOutcome> {
    const { protocol, to: address, port } = packet;
    if (protocol === "SCTP") throw new TypeError("Cannot send SCTP: Deno has no such socket");
    const target = { protocol, address, port };
    if (typeof packet.verdict === "string") return await this.#expectNone(packet, target);
    const answers = await this.#ask(packet, target);
    // With a single endpoint, affinity cannot be observed.
    const sticky = namesOf(answers).size === 1 && (packet.verdict.length > 1 || packet.sticky);
    const senders = new Set<string>([packetOrigin(packet.from, packet.family).address]);
    if (sticky && packet.sticky) await this.#askAsOthers(packet, { target, answers, senders });
    const outcome = this.#outcomeOf(answers, { sticky, packet, senders });
    if (answers.every(({ kind }) => kind === "answered")) return outcome;
    return { ...outcome, trace: [...outcome.trace ?? [], ...await this.#lookAround(packet)] };
  }

  /** Returns the node's flows and neighbours, as evidence of why there was no answer. */
  async #lookAround({ family, to, from }: PacketFlowCase): Promise<string[]> {
    const flag = family === "IPv4" ? "-4" : "-6";
    const looks = [
      [this.#cluster.node, `conntrack -L -f ${family.toLowerCase()} -d ${to}`],
      [this.#cluster.node, `ip ${flag} neigh`],
      [this.#namespaceOf(from), `ip ${flag} neigh`],
      [this.#namespaceOf(from), `ip ${flag} route`],
    ] as const;
    return await Promise.all(looks.map(async ([namespace, command]) => {
      const [program = "", ...args] = command.split(" ");
      const { stdout, stderr } = await namespace.run(program, args);
      return `${namespace.name}: ${command}\n${stdout}${stderr}`;
    }));
  }

  /** Asks until every endpoint has answered, or it is clear that affinity keeps to one. */
  async #ask(packet: PacketFlowCase, target: ProbeTarget): Promise<TimedAnswer[]> {
    const wanted = packet.verdict.length;
    const least = packet.sticky ? STICKY_ROUNDS : wanted * ROUNDS;
    const answers: TimedAnswer[] = [];
    for (;;) {
      const startedAt = performance.now();
      const answer = await this.#clients[packet.from].probe(target, ANSWER_MS);
      answers.push({ ...answer, ms: Math.round(performance.now() - startedAt) });
      if (answer.kind !== "answered" || answers.length === wanted * MOST_ROUNDS) return answers;
      const hasSeenAll = packet.sticky || namesOf(answers).size >= wanted;
      if (answers.length >= least && hasSeenAll) return answers;
    }
  }

  /** Refused or silent; a server that answers nevertheless is named. */
  async #expectNone(packet: PacketFlowCase, target: ProbeTarget): Promise<PacketOutcome> {
    const client = this.#clients[packet.from];
    const ms = packet.verdict === "REJECT" ? ANSWER_MS : SILENCE_MS;
    const [isRefused, answer] = await Promise.all([
      target.protocol === "UDP" && isUdpRefused(this.#namespaceOf(packet.from), target, ms),
      client.probe(target, target.protocol === "UDP" ? SILENCE_MS : ms),
    ]);
    if (isRefused) return { verdict: "REJECT", masquerade: false, sticky: false };
    return this.#outcomeOf([answer], { sticky: false, packet });
  }

  #outcomeOf(
    answers: readonly TimedAnswer[],
    { sticky, packet, senders }: {
      readonly sticky: boolean;
      readonly packet: PacketFlowCase;
      readonly senders?: ReadonlySet<string>;
    },
  ): PacketOutcome {
    const trace = answers.map((answer) => JSON.stringify(answer));
    const verdicts = new Set(answers.map(verdictOf));
    const [word] = verdicts;
    if (verdicts.size === 1 && word !== undefined && word !== "forwarded") {
      // A Service that drops and an unused address look the same.
      const isNobodys = word === "DROP" && packet.verdict === "UNCLAIMED";
      return { verdict: isNobodys ? "UNCLAIMED" : word, masquerade: false, sticky, trace };
    }
    const greetings = greetingsOf(answers);
    // Some attempts failed: no verdict of the table is like that.
    if (greetings.length < answers.length) return { verdict: [], masquerade: false, sticky, trace };
    const unexpected = greetings.filter(({ peer }) =>
      !this.#nodeAddresses.has(peer) && !senders?.has(peer)
    );
    if (unexpected.length > 0) {
      throw new Error(`Cannot tell who the endpoint saw: neither node nor sender: ${trace}`);
    }
    return {
      verdict: [...namesOf(answers)],
      masquerade: greetings.every(({ peer }) => this.#nodeAddresses.has(peer)),
      sticky,
      trace,
    };
  }

  /** Asks from further addresses of the sender until every endpoint has answered. */
  async #askAsOthers(
    { from, family, verdict }: PacketFlowCase,
    { target, answers, senders }: {
      readonly target: ProbeTarget;
      readonly answers: TimedAnswer[];
      readonly senders: Set<string>;
    },
  ): Promise<void> {
    const namespace = this.#namespaceOf(from);
    const { address } = packetOrigin(from, family);
    for (let n = 1; n <= MOST_CLIENTS && namesOf(answers).size < verdict.length; n++) {
      const other = addressAfter(address, n);
      senders.add(other);
      const restore = await useAddress(namespace, { family, address: other });
      try {
        answers.push(await this.#clients[from].probe(target, ANSWER_MS));
      } finally {
        await restore();
      }
    }
  }

  #namespaceOf(source: PacketSource): Namespace {
    return source === "localPod" ? this.#cluster.localPods[0] : this.#cluster[source];
  }
}

function greetingsOf(answers: readonly ProbeAnswer[]): EchoGreeting[] {
  return answers.flatMap((answer) => answer.kind === "answered" ? [answer.by] : []);
}

function namesOf(answers: readonly ProbeAnswer[]): Set<string> {
  return new Set(
    greetingsOf(answers).map(({ local, localPort }) => formatHostPort(local, localPort)),
  );
}

function verdictOf(answer: ProbeAnswer): "forwarded" | "REJECT" | "DROP" | "UNCLAIMED" {
  switch (answer.kind) {
    case "answered":
      return "forwarded";
    case "refused":
      return "REJECT";
    case "silent":
      return "DROP";
    case "failed":
      // A sender on the node itself gets an error from its own rules.
      if (/not permitted/i.test(answer.reason)) return "DROP";
      // Routers that send a packet to and fro, or know no way, say so.
      return /unreachable|no route/i.test(answer.reason) ? "UNCLAIMED" : "REJECT";
  }
}

async function addressesOf(namespace: Namespace): Promise<ReadonlySet<string>> {
  const text = await namespace.ip("-o addr show");
  return new Set([...text.matchAll(/inet6? ([^/ ]+)/g)].map(([, address]) => address ?? ""));
}

/**
 * Whether the kernel answers a datagram with "port unreachable". Only a connected socket hears of
 * that, and Deno has none; bash has.
 */
async function isUdpRefused(
  namespace: Namespace,
  { address, port }: ProbeTarget,
  ms: number,
): Promise<boolean> {
  const script = `exec 3<>/dev/udp/${address}/${port}
    echo x >&3
    read -r -t ${ms / 1000} -u 3`;
  const { stderr } = await namespace.run("env", ["LC_ALL=C", "bash", "-c", script]);
  return stderr.includes("Connection refused");
}

/** The address whose last number is larger by this offset. */
function addressAfter(address: IpAddress, more: number): string {
  const base = address.includes(":") ? 16 : 10;
  return address.replace(/[^.:]+$/, (last) => (parseInt(last, base) + more).toString(base));
}

/** Gives a client another address, by which it goes out until the result is called. */
async function useAddress(
  namespace: Namespace,
  { family, address }: { readonly family: IpFamily; readonly address: string },
): Promise<() => Promise<void>> {
  const flag = family === "IPv4" ? "-4" : "-6";
  const own = `${address}/${family === "IPv4" ? 32 : 128}`;
  const route = (await namespace.ip(`${flag} route show default`)).trim().split("\n")[0] ?? "";
  const plain = route.replace(/ (metric|pref|proto|src) \S+/g, "");
  // Without "nodad" an IPv6 address is not usable at first.
  const flags = family === "IPv6" ? " nodad" : "";
  await namespace.ip(`addr add ${own} dev eth0${flags}`);
  await namespace.ip(`${flag} route replace ${plain} src ${address}`);
  return async () => {
    await namespace.ip(`${flag} route replace ${plain}`);
    await namespace.ip(`addr del ${own} dev eth0`);
  };
}
