/**
 * Addresses that this node answers for by ARP and neighbour discovery.
 *
 * Each address is on an interface of the node with a lifetime of seconds, which is renewed while
 * the node owns it. The kernel removes it when kube-relay has been killed or hangs, so no record of
 * them is needed, and a node that stopped renewing does not answer together with the next owner.
 *
 * @module
 */
import { IPVS_DEVICE } from "../../iproute/dummy_devices.ts";
import { addressLine, type DeviceAddress, IpRunner } from "../../iproute/ip_runner.ts";
import { tryTool } from "../../netfilter/probe/try_tool.ts";
import type {
  CleanupReport,
  DataPlaneEdges,
  Quarantined,
  SyncReport,
} from "../../../lib/engine/data_plane.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { cidrContains, hostCidr, parseCidr, prefixLengthOf } from "../../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../../lib/net/ip_address.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import type { Timer } from "../../../lib/os/clock.ts";
import { linkText, type NodeLink } from "../../../lib/routing/layer2_member.ts";

/**
 * The kernel removes an address of kube-relay after this time unless it is renewed: a process that
 * was killed does not answer for longer. It is also the time limit of a batch.
 */
const LIFETIME_SECONDS = 2;
/** Time between two renewals: two may fail before an address is lost. */
const RENEW_MS = 600;
/** Times of the announcements of a new address, in milliseconds after it was added. */
const BURST_MS = [0, 500, 1_000, 2_000, 4_000, 8_000];
/** Most addresses announced in one turn, so that a node with many does not flood its link. */
const MOST_PER_TURN = 32;
/** The most programs that run at the same time: `arping` waits for a second after its packet. */
const PARALLEL = 16;
/** Maximum number of neighbours that are notified of an IPv6 address; routers come first. */
const MOST_NEIGHBOURS = 16;
const ANNOUNCE_TIMEOUT_MS = 2_000;
/** The most answers that are read, if many machines or interfaces answer for one address. */
const MOST_ANSWERS = 64;
/** As `arping` and `ndisc6` print it. */
const LINK_ADDRESS = /\b[0-9a-f]{2}(?::[0-9a-f]{2}){5,19}\b/gi;

/** An address, the device that answers for it, and its announcements. */
interface HeldAddress {
  readonly address: IpAddress;
  readonly device: string;
  /** The number of announcements made of the burst. */
  made: number;
  dueAt: number;
  readonly since: number;
}

/**
 * Holds the addresses of one IP family, and announces each several times after a change and then
 * periodically: gratuitous ARP by `arping`, and for IPv6 neighbour solicitations that carry the node's
 * link-layer address, by `ndisc6`.
 */
export class Layer2DataPlane implements AsyncDisposable {
  readonly family: IpFamily;
  readonly #edges: Omit<DataPlaneEdges, "random">;
  readonly #ip: IpRunner;
  readonly #periodMs: number;
  readonly #turns = new OneAtATime();
  readonly #held = new Map<IpAddress, HeldAddress>();
  readonly #refused = new Map<IpAddress, Quarantined<IpAddress>>();
  #timer: Timer | undefined;
  #interfaces: readonly string[] = [];
  /** Whether every address of the plan is compared by the next sync. */
  #isFull = true;
  #isRenewalFailing = false;
  #renewedAt = -Infinity;
  #isStopped = false;
  /** The index of the address that is asked about next. */
  #nextAsked = 0;
  /** The devices that carried packets when they were read last. */
  #carrying: ReadonlySet<string> | undefined;
  /** The reason why nothing is announced; `undefined` = it is announced, or was not tried yet. */
  #announceProblem: string | undefined;
  #announcing: Promise<void> | undefined;

  /**
   * `announceIntervalMs`: time between later announcements, because a switch or router may lose what it
   * has learned; 0 = none.
   */
  constructor(
    edges: Omit<DataPlaneEdges, "random">,
    { family, announceIntervalMs }: {
      readonly family: IpFamily;
      readonly announceIntervalMs: number;
    },
  ) {
    this.family = family;
    this.#edges = edges;
    this.#periodMs = announceIntervalMs === 0 ? Infinity : announceIntervalMs;
    this.#ip = new IpRunner(edges.commands, { family, timeoutMs: LIFETIME_SECONDS * 1_000 });
  }

  /**
   * Adds, removes and announces addresses. Addresses that no interface can hold are quarantined. Those
   * of an earlier run stay for their lifetime, in which the first sync takes them over.
   */
  sync(
    addresses: ReadonlySet<IpAddress>,
    interfaces: readonly string[],
  ): Promise<SyncReport<IpAddress>> {
    return this.#turns.run(async () => {
      const full = this.#isFull || `${interfaces}` !== `${this.#interfaces}`;
      this.#interfaces = interfaces;
      // A recheck that is requested meanwhile is for the next sync.
      this.#isFull = false;
      try {
        const removed = await this.#remove(
          [...this.#held.keys(), ...this.#refused.keys()].filter((each) => !addresses.has(each)),
        );
        const added = await this.#add(
          [...addresses].filter((each) => full || !this.#held.has(each)),
        );
        this.#renewLater();
        this.#announceDue();
        const operations = {
          ...(added > 0 && { addresses_added: added }),
          ...(removed > 0 && { addresses_removed: removed }),
        };
        return { full, operations, quarantined: [...this.#refused.values()] };
      } catch (error) {
        this.#isFull = true;
        throw error;
      }
    });
  }

  /** The next sync compares every address with the machine. */
  recheck(): void {
    this.#isFull = true;
  }

  /** Returns the addresses that the node answers for, and why moves are not announced, if so. */
  inspect(): {
    readonly held: readonly Pick<HeldAddress, "address" | "device">[];
    readonly announcing: string | undefined;
  } {
    const held = [...this.#held.values()].map(({ address, device }) => ({ address, device }));
    return { held, announcing: this.#announceProblem };
  }

  /**
   * Returns the networks in which this node can answer now. Announces the addresses of a device again
   * that carries packets again: switches and neighbours may have forgotten them.
   */
  async links(interfaces: readonly string[]): Promise<readonly NodeLink[]> {
    const found = await this.#ip.allAddresses();
    const carrying = new Set(found.flatMap(({ device, obstacle }) => obstacle ? [] : device));
    for (const held of this.#carrying ? this.#held.values() : []) {
      if (carrying.has(held.device) && !this.#carrying?.has(held.device)) this.#hold(held);
    }
    this.#carrying = carrying;
    this.#announceDue();
    return nodeLinks(found, this.family, interfaces);
  }

  /**
   * Asks who else answers for held addresses: the link-layer address of another machine, or `undefined`.
   * Asks about a few in turn, and about all of them once there is an answer: a search takes a second.
   */
  async findConflicts(): Promise<ReadonlyMap<IpAddress, string | undefined>> {
    const held = [...this.#held.values()];
    const found = new Map<IpAddress, string | undefined>();
    for (let asked = 0; asked < held.length; asked += PARALLEL) {
      const from = this.#nextAsked % held.length;
      this.#nextAsked = from + PARALLEL;
      const some = [...held.slice(from), ...held.slice(0, from)]
        .slice(0, Math.min(PARALLEL, held.length - asked));
      const own = await new IpRunner(this.#edges.commands).linkAddresses();
      await inParallel(
        some,
        async (each) => void found.set(each.address, await this.#ask(each, own)),
      );
      if (some.every(({ address }) => found.get(address) === undefined)) break;
    }
    return found;
  }

  /** Removes the addresses of this family that any run added. */
  async cleanup({ dryRun } = { dryRun: false }): Promise<CleanupReport> {
    const own = (await this.#ip.allAddresses()).filter((each) =>
      isOwn(each) && ipFamilyOf(each.address) === this.family
    );
    const failures = dryRun ? new Map() : await this.#ip.batch(own, deleteLine);
    const failed = [...failures].filter(([, { kind }]) => kind !== "absent");
    return {
      removed: own.filter((each) => !failures.has(each)).map(describe),
      failed: failed.map(([each, { message }]) => `${describe(each)}: ${message}`),
      ...(dryRun && { commands: own.map((each) => `ip ${deleteLine(each)}\n`) }),
    };
  }

  /** Stops renewing. Remaining addresses expire. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopped = true;
    this.#timer?.cancel();
    await this.#turns.run(async () => await this.#announcing);
  }

  async #remove(addresses: readonly IpAddress[]): Promise<number> {
    for (const address of addresses) this.#refused.delete(address);
    const leaving = addresses.flatMap((address) => this.#held.get(address) ?? []);
    const failures = await this.#ip.batch(leaving, deleteLine);
    // An address whose removal failed is renewed no more, so it expires.
    for (const each of leaving) this.#held.delete(each.address);
    for (const [{ address, device }, { kind, message }] of failures) {
      if (kind === "absent") continue;
      this.#edges.logger.warn("Cannot remove an address; it expires in seconds", {
        ...{ address, device, reason: message },
      });
    }
    return leaving.length;
  }

  async #add(addresses: readonly IpAddress[]): Promise<number> {
    if (addresses.length === 0) return 0;
    const found = await this.#ip.allAddresses();
    const wanted: Pick<HeldAddress, "address" | "device">[] = [];
    const leaving: Pick<HeldAddress, "address" | "device">[] = [];
    for (const address of addresses) {
      this.#refused.delete(address);
      const chosen = chooseDevice(address, this.#interfaces, found);
      const held = this.#held.get(address);
      if ("reason" in chosen) {
        this.#refuse(address, chosen.reason);
        leaving.push(...found.filter((each) => each.address === address && isOwn(each)));
      } else if (!chosen.isHeld || held?.device !== chosen.device) {
        wanted.push({ address, device: chosen.device });
        if (held && held.device !== chosen.device) leaving.push(held);
      }
    }
    await this.#ip.batch(leaving, deleteLine);
    if (this.#held.size === 0) this.#renewedAt = this.#edges.clock.now();
    const failures = await this.#ip.batch(wanted, renewLine);
    for (const [{ address, device }, { message }] of failures) {
      this.#refuse(address, `cannot add ${address} to ${device}: ${message}`);
    }
    const added = wanted.filter((each) => !failures.has(each));
    for (const each of added) this.#hold(each);
    return added.length;
  }

  #refuse(address: IpAddress, reason: string): void {
    this.#held.delete(address);
    this.#refused.set(address, { key: address, reason });
  }

  /** Begins to announce an address, or begins again. */
  #hold({ address, device }: Pick<HeldAddress, "address" | "device">): void {
    const since = this.#edges.clock.now();
    this.#held.set(address, { address, device, made: 0, since, dueAt: since });
  }

  #renewLater(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#isStopped || this.#held.size === 0) return;
    this.#timer = this.#edges.clock.setTimer(RENEW_MS, () => void this.#renew());
  }

  /** Never throws: an address that cannot be renewed is tried again until it has expired. */
  async #renew(): Promise<void> {
    await this.#turns.run(async () => {
      const now = this.#edges.clock.now();
      // A device that was deleted may be back with another link-layer address.
      const mayHaveExpired = now - this.#renewedAt > LIFETIME_SECONDS * 1_000 ||
        this.#isRenewalFailing;
      this.#renewedAt = now;
      const held = [...this.#held.values()];
      // Neighbours may have found another owner meanwhile.
      for (const each of mayHaveExpired ? held : []) this.#hold(each);
      let problems: readonly string[];
      try {
        problems = [...await this.#ip.batch(held, renewLine)].map(
          ([{ address, device }, { message }]) => `${address} on ${device}: ${message}`,
        );
      } catch (error) {
        problems = [messageOf(error)];
      }
      if (problems.length > 0) this.#isFull = true;
      if (problems.length > 0 && !this.#isRenewalFailing) {
        this.#edges.logger.error("Cannot renew addresses; they are lost until it works", {
          ...{ ipFamily: this.family, problems: problems.slice(0, 5), count: problems.length },
        });
      }
      this.#isRenewalFailing = problems.length > 0;
      this.#renewLater();
    });
    this.#announceDue();
  }

  /** Starts the announcements that are due, unless earlier ones are still running. */
  #announceDue(): void {
    if (this.#announcing) return;
    const now = this.#edges.clock.now();
    const due = [...this.#held.values()].filter(({ dueAt }) => dueAt <= now)
      .sort((a, b) => a.dueAt - b.dueAt).slice(0, MOST_PER_TURN);
    if (due.length === 0) return;
    for (const each of due) {
      const next = BURST_MS[++each.made];
      each.dueAt = next === undefined ? now + this.#periodMs : each.since + next;
    }
    this.#announcing = inParallel(due, (held) => this.#announce(held))
      .finally(() => this.#announcing = undefined);
  }

  async #announce({ address, device }: HeldAddress): Promise<void> {
    if (this.family === "IPv4") {
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
    const ip = new IpRunner(this.#edges.commands, { family: this.family });
    try {
      const links = nodeLinks(await ip.allAddresses(), this.family, []);
      const own = new Set(links.flatMap((each) => each.device === device ? each.network : []));
      const siblings = links.flatMap((each) => own.has(each.network) ? each.device : []);
      const neighbours = new Set<IpAddress>();
      for (const each of new Set([device, ...siblings])) {
        for (const neighbour of await ip.neighbours(each)) neighbours.add(neighbour);
      }
      return [...neighbours].slice(0, MOST_NEIGHBOURS);
    } catch (error) {
      this.#edges.logger.warn("Cannot list IPv6 neighbours; addresses are not announced", {
        ...{ device, error },
      });
      return [];
    }
  }

  /**
   * Asks who answers for an address. For IPv4, the node itself answers by each of its other interfaces
   * on the link: `-D` would end at its answer. So all answers of a second are read.
   */
  async #ask(
    { address, device }: HeldAddress,
    own: ReadonlySet<string>,
  ): Promise<string | undefined> {
    const answer = await this.#run(
      this.family === "IPv4"
        ? [
          ...["arping", "-b", "-c", `${MOST_ANSWERS}`, "-w", "1", "-s", "0.0.0.0"] as const,
          ...["-I", device, address],
        ]
        : ["ndisc6", "-q", "-1", "-r", "1", "-w", "300", address, device],
    );
    const found = [...answer?.matchAll(LINK_ADDRESS) ?? []].map(([text]) => text.toLowerCase());
    return found.find((each) => !own.has(each));
  }

  async #run(line: readonly [string, ...string[]]): Promise<string | undefined> {
    const answer = await tryTool(this.#edges, line, { timeoutMs: ANNOUNCE_TIMEOUT_MS });
    const problem = answer.kind === "ended"
      ? /permitted/.test(answer.err) ? answer.err.trim() : undefined
      : answer.reason;
    if (problem !== this.#announceProblem && problem !== undefined) {
      this.#edges.logger.warn(
        "Cannot announce addresses: neighbours learn of a move only by their own time-outs",
        { ipFamily: this.family, reason: problem },
      );
    }
    this.#announceProblem = problem;
    return answer.kind === "ended" ? answer.out : undefined;
  }
}

function renewLine({ address, device }: Pick<DeviceAddress, "address" | "device">): string {
  return addressLine("replace", { address, device, lifetimeSeconds: LIFETIME_SECONDS });
}

function deleteLine(held: Pick<DeviceAddress, "address" | "device" | "prefixLength">): string {
  return addressLine("del", held);
}

function describe({ address, device }: DeviceAddress): string {
  return `address ${address} on ${device}`;
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

/**
 * Chooses the device that answers for an address. `interfaces`: those that may, best first; empty = those
 * whose network has the address. `found`: every address of the machine.
 */
function chooseDevice(
  address: IpAddress,
  interfaces: readonly string[],
  found: readonly DeviceAddress[],
) {
  const present = found.filter((each) => each.address === address);
  const foreign = present.find((each) => !isOwn(each) && !isVirtual(each));
  if (foreign) {
    return {
      reason: `${address} is an address of ${foreign.device} that kube-relay did not add; ` +
        "remove it there or from the pool",
    };
  }
  const held = new Set(present.filter(isOwn).map(({ device }) => device));
  const links = nodeLinks(found, ipFamilyOf(address), interfaces)
    .filter(({ network }) => cidrContains(network, address));
  const usable = links.filter(({ obstacle }) => obstacle === undefined);
  const { device } = usable.find((each) => held.has(each.device)) ?? usable[0] ?? {};
  if (device !== undefined) return { device, isHeld: held.has(device) };
  if (interfaces.length === 0 && links.length > 0) {
    return { reason: `no interface can answer for ${address}: ${links.map(linkText).join(", ")}` };
  }
  return {
    reason: interfaces.length === 0
      ? `no interface has a network with ${address}; add one, or name interfaces for the pool`
      : `none of the interfaces ${interfaces.join(", ")} can answer: ` +
        links.map(linkText).join(", "),
  };
}

/** Every address of a family. */
const WHOLE = { IPv4: parseCidr("0.0.0.0/0"), IPv6: parseCidr("::/0") };

/**
 * Returns the networks in which a machine can answer, the smallest first. Interfaces that were named
 * answer for any address.
 */
function nodeLinks(
  found: readonly DeviceAddress[],
  family: IpFamily,
  interfaces: readonly string[],
): readonly NodeLink[] {
  const own = found.filter((each) => ipFamilyOf(each.address) === family && !isOwn(each));
  if (interfaces.length > 0) {
    return interfaces.map((device) => {
      const existing = own.find((each) => each.device === device);
      const obstacle = existing ? existing.obstacle : "absent";
      return { network: WHOLE[family], device, ...(obstacle && { obstacle }) };
    });
  }
  const links = new Map<string, NodeLink>();
  for (const each of own) {
    const { address, prefixLength, device, obstacle, hasNoArp } = each;
    if (prefixLength === undefined || isVirtual(each) || device === "lo" || hasNoArp) continue;
    const network = parseCidr(`${address}/${prefixLength}`);
    if (network === hostCidr(address) || isLinkLocal(address)) continue;
    links.set(`${network} ${device}`, { network, device, ...(obstacle && { obstacle }) });
  }
  return [...links.values()].sort((a, b) => prefixLengthOf(b.network) - prefixLengthOf(a.network));
}

function isLinkLocal(address: IpAddress): boolean {
  return /^fe[89ab]/.test(address);
}

/** Whether an address was added by {@linkcode Layer2DataPlane}, in this run or an earlier one. */
function isOwn(
  { address, prefixLength, neverSource, lifetimeSeconds }: DeviceAddress,
): boolean {
  return neverSource === true && prefixLength === prefixLengthOf(hostCidr(address)) &&
    lifetimeSeconds !== undefined && lifetimeSeconds <= LIFETIME_SECONDS;
}

/** Modes of Services hold addresses on devices that answer no ARP: `kube-ipvs0` and `lo`. */
function isVirtual({ device, address, prefixLength }: DeviceAddress): boolean {
  return (device === IPVS_DEVICE || device === "lo") &&
    prefixLength === prefixLengthOf(hostCidr(address));
}
