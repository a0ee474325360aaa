/**
 * Addresses that this node answers for by ARP and neighbour discovery.
 *
 * Each address is on an interface of the node with a lifetime of seconds, which is renewed while
 * the node owns it. The kernel removes it when kube-relay has been killed or hangs, so no record of
 * them is needed, and a node that stopped renewing does not answer together with the next owner.
 *
 * @module
 */
import type {
  CleanupReport,
  DataPlaneEdges,
  Quarantined,
  SyncReport,
} from "../../../lib/engine/data_plane.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../../lib/net/ip_address.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import type { Timer } from "../../../lib/os/clock.ts";
import type { NodeLink } from "../../../lib/routing/layer2_member.ts";
import { IpRunner } from "../../iproute/ip_runner.ts";
import { addressLine, type DeviceAddress } from "../../iproute/ip_text.ts";
import { Announcer, type HeldAddress } from "./announcer.ts";
import { chooseDevice, isOwn, LIFETIME_SECONDS, nodeLinks } from "./choose_device.ts";

/** Time between two renewals: two may fail before an address is lost. */
const RENEW_MS = 600;
/** Time limit of a batch. After it, the addresses would have expired. */
const TIMEOUT_MS = LIFETIME_SECONDS * 1_000;

/** The number of addresses that are asked about at the same time. */
const ASKED_TOGETHER = 16;

/** Holds the addresses of one IP family. */
export class Layer2DataPlane implements AsyncDisposable {
  readonly family: IpFamily;
  readonly #edges: Omit<DataPlaneEdges, "random">;
  readonly #ip: IpRunner;
  readonly #announcer: Announcer;
  readonly #turns = new OneAtATime();
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

  constructor(
    edges: Omit<DataPlaneEdges, "random">,
    { family, announceIntervalMs }: {
      readonly family: IpFamily;
      readonly announceIntervalMs: number;
    },
  ) {
    this.family = family;
    this.#edges = edges;
    this.#ip = new IpRunner(edges.commands, { family, timeoutMs: TIMEOUT_MS });
    this.#announcer = new Announcer(edges, family, announceIntervalMs);
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
      const { held } = this.#announcer;
      const full = this.#isFull || `${interfaces}` !== `${this.#interfaces}`;
      this.#interfaces = interfaces;
      // A recheck that is requested meanwhile is for the next sync.
      this.#isFull = false;
      try {
        const removed = await this.#remove(
          [...held.keys(), ...this.#refused.keys()].filter((each) => !addresses.has(each)),
        );
        const added = await this.#add([...addresses].filter((each) => full || !held.has(each)));
        this.#renewLater();
        this.#announcer.announceDue();
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
  inspect(): { readonly held: readonly HeldAddress[]; readonly announcing: string | undefined } {
    const held = [...this.#announcer.held.values()];
    return {
      held: held.map(({ address, device }) => ({ address, device })),
      announcing: this.#announcer.problem,
    };
  }

  /**
   * Returns the networks in which this node can answer now. Announces the addresses of a device again
   * that carries packets again: switches and neighbours may have forgotten them.
   */
  async links(interfaces: readonly string[]): Promise<readonly NodeLink[]> {
    const found = await this.#ip.allAddresses();
    const carrying = new Set(found.flatMap(({ device, obstacle }) => obstacle ? [] : device));
    for (const held of this.#carrying ? this.#announcer.held.values() : []) {
      if (carrying.has(held.device) && !this.#carrying?.has(held.device)) this.#announcer.add(held);
    }
    this.#carrying = carrying;
    this.#announcer.announceDue();
    return nodeLinks(found, this.family, interfaces);
  }

  /**
   * Asks who else answers for held addresses: the link-layer address of another machine, or `undefined`.
   * Asks about a few in turn, and about all of them once there is an answer: a search takes a second.
   */
  async findConflicts(): Promise<ReadonlyMap<IpAddress, string | undefined>> {
    const held = [...this.#announcer.held.values()];
    const found = new Map<IpAddress, string | undefined>();
    for (let asked = 0; asked < held.length; asked += ASKED_TOGETHER) {
      const from = this.#nextAsked % held.length;
      this.#nextAsked = from + ASKED_TOGETHER;
      const some = [...held.slice(from), ...held.slice(0, from)]
        .slice(0, Math.min(ASKED_TOGETHER, held.length - asked));
      const answers = await this.#announcer.findConflicts(some);
      for (const each of answers) found.set(...each);
      if ([...answers.values()].every((each) => each === undefined)) break;
    }
    return found;
  }

  /** Removes the addresses of this family that any run added. */
  async cleanup({ dryRun } = { dryRun: false }): Promise<CleanupReport> {
    const own = (await this.#ip.allAddresses()).filter((each) =>
      isOwn(each) && ipFamilyOf(each.address) === this.family
    );
    const toLine = (each: DeviceAddress) => addressLine("del", each);
    const failures = dryRun ? new Map() : await this.#ip.batch(own, toLine);
    const failed = [...failures].filter(([, { kind }]) => kind !== "absent");
    return {
      removed: own.filter((each) => !failures.has(each)).map(describe),
      failed: failed.map(([each, { message }]) => `${describe(each)}: ${message}`),
      ...(dryRun && { commands: own.map((each) => `ip ${toLine(each)}\n`) }),
    };
  }

  /** Stops renewing. Remaining addresses expire. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopped = true;
    this.#timer?.cancel();
    await this.#turns.run(() => this.#announcer.ended());
  }

  async #remove(addresses: readonly IpAddress[]): Promise<number> {
    for (const address of addresses) this.#refused.delete(address);
    const leaving = addresses.flatMap((address) => this.#announcer.held.get(address) ?? []);
    const failures = await this.#ip.batch(leaving, (each) => addressLine("del", each));
    // An address whose removal failed is renewed no more, so it expires.
    for (const each of leaving) this.#announcer.delete(each.address);
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
    const own = new Map(found.filter(isOwn).map((each) => [each.address, each]));
    const wanted: HeldAddress[] = [];
    const lost: DeviceAddress[] = [];
    for (const address of addresses) {
      this.#refused.delete(address);
      const chosen = chooseDevice(address, this.#interfaces, found);
      if ("reason" in chosen) {
        this.#refuse(address, chosen.reason);
        const present = own.get(address);
        if (present) lost.push(present);
      } else if (!chosen.isHeld || this.#announcer.held.get(address)?.device !== chosen.device) {
        wanted.push({ address, device: chosen.device });
      }
    }
    await this.#ip.batch(lost, (each) => addressLine("del", each));
    const moving = wanted.flatMap(({ address, device }) => {
      const held = this.#announcer.held.get(address);
      return held === undefined || held.device === device ? [] : held;
    });
    await this.#ip.batch(moving, (each) => addressLine("del", each));
    if (this.#announcer.held.size === 0) this.#renewedAt = this.#edges.clock.now();
    const failures = await this.#ip.batch(wanted, renewLine);
    for (const [{ address, device }, { message }] of failures) {
      this.#refuse(address, `cannot add ${address} to ${device}: ${message}`);
    }
    const added = wanted.filter((each) => !failures.has(each));
    for (const each of added) this.#announcer.add(each);
    return added.length;
  }

  #refuse(address: IpAddress, reason: string): void {
    this.#announcer.delete(address);
    this.#refused.set(address, { key: address, reason });
  }

  #renewLater(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#isStopped || this.#announcer.held.size === 0) return;
    this.#timer = this.#edges.clock.setTimer(RENEW_MS, () => void this.#renew());
  }

  /** Never throws: an address that cannot be renewed is tried again until it has expired. */
  async #renew(): Promise<void> {
    await this.#turns.run(async () => {
      const { clock } = this.#edges;
      // A device that was deleted may be back with another link-layer address.
      const mayHaveExpired = clock.now() - this.#renewedAt > TIMEOUT_MS || this.#isRenewalFailing;
      this.#renewedAt = clock.now();
      // Neighbours may have found another owner meanwhile.
      const held = [...this.#announcer.held.values()];
      for (const each of mayHaveExpired ? held : []) this.#announcer.add(each);
      try {
        const failures = await this.#ip.batch(held, renewLine);
        this.#renewed(
          [...failures].map(([{ address, device }, { message }]) =>
            `${address} on ${device}: ${message}`
          ),
        );
      } catch (error) {
        this.#renewed([messageOf(error)]);
      }
      this.#renewLater();
    });
    this.#announcer.announceDue();
  }

  #renewed(problems: readonly string[]): void {
    const isFailing = problems.length > 0;
    if (isFailing) this.#isFull = true;
    if (isFailing && !this.#isRenewalFailing) {
      this.#edges.logger.error("Cannot renew addresses; they are lost until it works", {
        ...{ ipFamily: this.family, problems: problems.slice(0, 5), count: problems.length },
      });
    }
    this.#isRenewalFailing = isFailing;
  }
}

function renewLine({ address, device }: HeldAddress): string {
  return addressLine("replace", { address, device, lifetimeSeconds: LIFETIME_SECONDS });
}

function describe({ address, device }: DeviceAddress): string {
  return `address ${address} on ${device}`;
}
