/**
 * Informs neighbours that this node now answers for an address: gratuitous ARP by `arping`, and for
 * IPv6 neighbour solicitations that carry the node's link-layer address, by `ndisc6`.
 *
 * @module
 */
import type { DataPlaneEdges } from "../../../lib/engine/data_plane.ts";
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import { IpRunner } from "../../iproute/ip_runner.ts";
import { nodeLinks } from "./choose_device.ts";
import { tryTool } from "../../netfilter/probe/try_tool.ts";

/** An address and the device that answers for it. */
export interface HeldAddress {
  readonly address: IpAddress;
  readonly device: string;
}

/** Times of the announcements of a new address, in milliseconds after it was added. */
const BURST_MS = [0, 500, 1_000, 2_000, 4_000, 8_000];
/** Most addresses announced in one turn, so that a node with many does not flood its link. */
const MOST_PER_TURN = 32;
/** The most programs that run at the same time: `arping` waits for a second after its packet. */
const PARALLEL = 16;
/** Maximum number of neighbours that are notified of an IPv6 address; routers come first. */
const MOST_NEIGHBOURS = 16;
const TIMEOUT_MS = 2_000;
/** The most answers that are read, if many machines or interfaces answer for one address. */
const MOST_ANSWERS = 64;
/** As `arping` and `ndisc6` print it. */
const LINK_ADDRESS = /\b[0-9a-f]{2}(?::[0-9a-f]{2}){5,19}\b/gi;

interface Schedule extends HeldAddress {
  /** The number of announcements made of the burst. */
  made: number;
  dueAt: number;
  readonly since: number;
}

/** Announces the addresses of one family, several times after a change and then periodically. */
export class Announcer {
  readonly #edges: Omit<DataPlaneEdges, "random">;
  readonly #family: IpFamily;
  readonly #periodMs: number;
  readonly #schedules = new Map<IpAddress, Schedule>();
  #problem: string | undefined;
  #running: Promise<void> | undefined;

  /**
   * `intervalMs`: time between later announcements, because a switch or router may lose what it has
   * learned; 0 = none.
   */
  constructor(edges: Omit<DataPlaneEdges, "random">, family: IpFamily, intervalMs: number) {
    this.#edges = edges;
    this.#family = family;
    this.#periodMs = intervalMs === 0 ? Infinity : intervalMs;
  }

  /** The addresses that are announced. */
  get held(): ReadonlyMap<IpAddress, HeldAddress> {
    return this.#schedules;
  }

  /** The reason why nothing is announced; `undefined` = it is announced, or was not tried yet. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Begins to announce an address, or begins again. */
  add({ address, device }: HeldAddress): void {
    const since = this.#edges.clock.now();
    this.#schedules.set(address, { address, device, made: 0, since, dueAt: since });
  }

  /** Announces an address no longer. */
  delete(address: IpAddress): void {
    this.#schedules.delete(address);
  }

  /** Starts the announcements that are due, unless earlier ones are still running. */
  announceDue(): void {
    this.#running ??= this.#announceDue().finally(() => this.#running = undefined);
  }

  /** Resolves when no announcement is running. */
  async ended(): Promise<void> {
    await this.#running;
  }

  async #announceDue(): Promise<void> {
    const now = this.#edges.clock.now();
    const due = [...this.#schedules.values()].filter(({ dueAt }) => dueAt <= now)
      .sort((a, b) => a.dueAt - b.dueAt).slice(0, MOST_PER_TURN);
    for (const each of due) {
      const next = BURST_MS[++each.made];
      each.dueAt = next === undefined ? now + this.#periodMs : each.since + next;
    }
    await inParallel(due, (held) => this.#announce(held));
  }

  /**
   * Asks who else answers for addresses. Returns the link-layer address of another machine for each of
   * them; `undefined` = there is none.
   */
  async findConflicts(
    held: readonly HeldAddress[],
  ): Promise<ReadonlyMap<IpAddress, string | undefined>> {
    const ip = new IpRunner(this.#edges.commands);
    const found = new Map<IpAddress, string | undefined>();
    const own = await ip.linkAddresses();
    // For IPv4, the node itself answers by each of its other interfaces on the link: `-D` would end at
    // its answer. So all answers of a second are read.
    const question = this.#family === "IPv4"
      ? ["-b", "-c", `${MOST_ANSWERS}`, "-w", "1", "-s", "0.0.0.0", "-I"]
      : ["-q", "-1", "-r", "1", "-w", "300"];
    await inParallel(held, async ({ address, device }) => {
      const answer = await this.#run(
        this.#family === "IPv4"
          ? ["arping", ...question, device, address]
          : ["ndisc6", ...question, address, device],
      );
      const answers = [...answer?.out.matchAll(LINK_ADDRESS) ?? []].map(([text]) =>
        text.toLowerCase()
      );
      found.set(address, answers.find((each) => !own.has(each)));
    });
    return found;
  }

  async #announce({ address, device }: HeldAddress): Promise<void> {
    if (this.#family === "IPv4") {
      await this.#run(["arping", "-q", "-U", "-c", "1", "-I", device, address]);
      return;
    }
    // One after the other, because addresses are announced in parallel: hundreds of programs at a time
    // would delay the renewals. The solicitation changes the cache of the neighbour, answered or not.
    for (const target of await this.#neighbours(device)) {
      await this.#run(["ndisc6", "-q", "-1", "-r", "1", "-w", "1", "-s", address, target, device]);
    }
  }

  /**
   * The routers and other neighbours of a device, and of others in the same network: the device may have
   * just taken the address over from one of them.
   */
  async #neighbours(device: string): Promise<readonly IpAddress[]> {
    const ip = new IpRunner(this.#edges.commands, { family: this.#family });
    try {
      const found = await ip.allAddresses();
      const links = nodeLinks(found, this.#family, []);
      const own = new Set(links.flatMap((each) => each.device === device ? each.network : []));
      const siblings = links.flatMap((each) => own.has(each.network) ? each.device : []);
      const neighbours = new Set<IpAddress>();
      for (const each of new Set([device, ...siblings])) {
        for (const neighbour of await ip.neighbours(each)) neighbours.add(neighbour);
      }
      return [...neighbours].slice(0, MOST_NEIGHBOURS);
    } catch (error) {
      this.#edges.logger.warn("Cannot list IPv6 neighbours; addresses are not announced", {
        device,
        error,
      });
      return [];
    }
  }

  async #run(line: readonly [string, ...string[]]): Promise<{ readonly out: string } | undefined> {
    const answer = await tryTool(this.#edges, line, { timeoutMs: TIMEOUT_MS });
    const problem = answer.kind === "ended"
      ? /permitted/.test(answer.err) ? answer.err.trim() : undefined
      : answer.reason;
    if (problem !== this.#problem && problem !== undefined) {
      this.#edges.logger.warn(
        "Cannot announce addresses: neighbours learn of a move only by their own time-outs",
        { ipFamily: this.#family, reason: problem },
      );
    }
    this.#problem = problem;
    return answer.kind === "ended" ? answer : undefined;
  }
}

/** Runs an action for each item, at most {@linkcode PARALLEL} at a time. */
async function inParallel<T>(
  items: readonly T[],
  action: (item: T) => Promise<void>,
): Promise<void> {
  const iterator = items.values();
  const worker = async () => {
    for (const item of iterator) await action(item);
  };
  await Promise.all(Array.from({ length: Math.min(PARALLEL, items.length) }, worker));
}
