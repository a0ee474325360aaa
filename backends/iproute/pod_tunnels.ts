/**
 * Tunnels that end in pods of this node, for direct server return: in its network namespace a pod gets
 * a device that takes packets out of IP in IP, with the addresses to which they were sent.
 *
 * A namespace is found by the address of its pod, among those that containerd and CRI-O keep in
 * `/run/netns`; `ip` enters it. No socket of a runtime is needed. The device and its alias are the whole
 * record: they go with the pod, and a later run finds them.
 *
 * @module
 */
import { messageOf } from "../../lib/log/message_of.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import { reasonOfExit } from "../netfilter/probe/try_tool.ts";
import { addressLine, deleteLinkLine, IpRunner, type Link } from "./ip_runner.ts";

/** The device in a pod. */
export const POD_TUNNELS = { IPv4: "kr-dsr4", IPv6: "kr-dsr6" } as const;
const KINDS = { IPv4: "type ipip", IPv6: "type ip6tnl mode ip6ip6" } as const;
/** Begins the alias: the pod's device, and its former arp_ignore and arp_announce. */
const ALIAS = "kube-relay:dsr";
const TIMEOUT_MS = 30_000;
/** What IPv6 needs at least: a pod that lowers its own would slow down its neighbours. */
const LEAST_MTU = 1_280;
/** Names of devices in pods that may be part of a setting. */
const PLAIN_NAME = /^[\w.-]{1,15}$/;
/** Namespaces that are read at the same time. */
const PARALLEL = 8;

/** Devices of a pod, and addresses of each, that are looked at by every sync: a hostile pod may have any number. */
const MOST_OF_POD = 64;

/** A pod that can be set up. */
export interface PodPlace {
  /** The device of the node that leads to it. */
  readonly device: string;
  /** That of the pod's own device, bytes. */
  readonly mtu: number;
}

/** Some pods could not be set up; all others of the batch were. */
export class PodFailure extends Error {
  override name = "PodFailure";
  readonly reasons: ReadonlyMap<IpAddress, string>;

  constructor(reasons: ReadonlyMap<IpAddress, string>) {
    super(`Cannot set up the tunnel of DSR: ${[...reasons.values()].join("; ")}`);
    this.reasons = reasons;
  }
}

/** The tunnels of one IP family. Every method throws an Error with the failed tool and its message. */
export class PodTunnels {
  readonly #commands: CommandRunner;
  readonly #family: IpFamily;
  /** The devices in each namespace. */
  readonly #namespaces = new Map<string, readonly Link[]>();
  readonly #hostDevices = new Map<IpAddress, string>();
  /** Why a namespace could not be read the last time. */
  #unread: string | undefined;

  constructor(commands: CommandRunner, family: IpFamily) {
    this.#commands = commands;
    this.#family = family;
  }

  /** Finds pods. What was found is remembered. `lost`: why a pod can't be set up. */
  async find(pods: ReadonlySet<IpAddress>): Promise<{
    readonly found: ReadonlyMap<IpAddress, PodPlace>;
    readonly lost: ReadonlyMap<IpAddress, string>;
  }> {
    const found = new Map<IpAddress, PodPlace>();
    const lost = new Map<IpAddress, string>();
    try {
      if ([...pods].some((pod) => this.#placesOf(pod).length === 0)) await this.#refresh();
      const missing = [...pods].filter((pod) => !this.#hostDevices.has(pod));
      const ip = new IpRunner(this.#commands, { family: this.#family, timeoutMs: TIMEOUT_MS });
      for (const [pod, route] of await ip.chosenRoutes(missing)) {
        if ("device" in route && route.device) this.#hostDevices.set(pod, route.device);
      }
    } catch (error) {
      const reason = messageOf(error);
      return { found, lost: new Map([...pods].map((pod) => [pod, reason])) };
    }
    for (const pod of pods) {
      const device = this.#hostDevices.get(pod);
      const [place] = this.#placesOf(pod);
      if (place === undefined) {
        const unread = this.#unread === undefined ? "" : `; not all can be read: ${this.#unread}`;
        lost.set(pod, `no namespace in /run/netns has ${pod}${unread}`);
      } else if (device === undefined) lost.set(pod, `the node has no route to ${pod}`);
      else found.set(pod, { device, mtu: Math.max(LEAST_MTU, place.link.mtu) });
    }
    for (const pod of this.#hostDevices.keys()) if (!pods.has(pod)) this.#hostDevices.delete(pod);
    return { found, lost };
  }

  /** Which of these pods has lost its namespace since it was found; `undefined` = none. */
  async lostPod(pods: ReadonlySet<IpAddress>): Promise<IpAddress | undefined> {
    const before = [...pods].filter((pod) => this.#placesOf(pod).length > 0);
    if (before.length > 0) await this.#list();
    return before.find((pod) => this.#placesOf(pod).length === 0);
  }

  /**
   * Reads the tunnels of all namespaces: the addresses of each pod that has one, by one of `pods` where
   * it is among them; of a half-made one, the device. A pod may claim the address of another one, so an
   * address counts where all that have the pod's address have it.
   */
  async read(pods: ReadonlySet<IpAddress>): Promise<ReadonlyMap<IpAddress, ReadonlySet<string>>> {
    this.#namespaces.clear();
    this.#hostDevices.clear();
    await this.#refresh();
    const tunnels = new Map<IpAddress, ReadonlySet<string>>();
    for (const links of this.#namespaces.values()) {
      const tunnel = this.#tunnelOf(links);
      const own = new Set<string>(tunnel && this.#servedBy(tunnel));
      if (tunnel && own.size === 0) own.add(tunnel.device);
      const all = links.filter(isOfPod).flatMap(this.#addressesOf);
      const known = all.filter((address) => pods.has(address));
      for (const pod of known.length > 0 ? known : all.slice(0, 1)) {
        tunnels.set(pod, tunnels.get(pod)?.intersection(own) ?? own);
      }
    }
    return tunnels;
  }

  /** The namespaces with a tunnel. */
  get namespaces(): readonly string[] {
    return [...this.#namespaces].flatMap(([name, links]) => this.#tunnelOf(links) ? name : []);
  }

  /** Carries out the lines `add|del POD ADDRESS` and `close DEVICE`. Throws a {@linkcode PodFailure}. */
  async run(lines: readonly string[]): Promise<void> {
    const pods = new Map<IpAddress, Record<"add" | "del", IpAddress[]>>();
    for (const line of lines) {
      const [verb, name, address] = line.split(" ") as ["add", IpAddress, IpAddress];
      if (address === undefined) await this.close(name);
      else pods.getOrInsertComputed(name, () => ({ add: [], del: [] }))[verb].push(address);
    }
    const reasons = new Map<IpAddress, string>();
    for (const [pod, { add, del }] of pods) {
      const places = this.#placesOf(pod);
      const failures = places.length === 0 ? [`the namespace of ${pod} cannot be entered`] : [];
      for (const { name } of places) {
        const isNew = this.#tunnelOf(this.#namespaces.get(name) ?? []) === undefined;
        try {
          await this.#change(name, pod, add, del);
        } catch (error) {
          failures.push(messageOf(error));
          if (isNew) await this.#removeHalf(name);
        }
      }
      // A pod that is gone has nothing left, and one that claims the address of another can't harm it.
      const [reason] = failures;
      if (reason !== undefined && add.length > 0 && failures.length >= places.length) {
        reasons.set(pod, reason);
      }
    }
    if (reasons.size > 0) throw new PodFailure(reasons);
  }

  /** Packets from a device of the node may no longer have an address of the node as their source. */
  async close(device: string): Promise<void> {
    if (this.#family === "IPv6") return;
    // Where settings can't be written, none was opened; other changes must not wait for it.
    await this.#sysctl([], ...closing(device)).catch(() => {});
  }

  /** The commands that remove the tunnel of a namespace: last the device, whose alias is the record. */
  removalOf(
    namespace: string,
    links: readonly Link[] = this.#namespaces.get(namespace) ?? [],
  ): readonly (readonly [string, ...string[]])[] {
    const tunnel = this.#tunnelOf(links);
    if (tunnel === undefined) return [];
    const settings = formerSettings(tunnel);
    return [
      // A pod may have renamed its device.
      ...settings.length > 0
        ? [["ip", "netns", "exec", namespace, "sysctl", "-qew", ...settings] as const]
        : [],
      ["ip", "-n", namespace, ...deleteLinkLine(tunnel.device).split(" ")],
    ];
  }

  /** Removes a device that could not be completed: without an address nothing would tell of it. */
  async #removeHalf(namespace: string): Promise<void> {
    await this.#readNamespace(namespace);
    for (const [program, ...args] of this.removalOf(namespace)) {
      await this.#output(program, args).catch(() => {});
    }
    // Remembered, so that other changes need not look for this pod.
    await this.#readNamespace(namespace);
  }

  async #change(
    namespace: string,
    pod: IpAddress,
    added: readonly IpAddress[],
    removed: readonly IpAddress[],
  ): Promise<void> {
    const links = this.#namespaces.get(namespace) ?? [];
    const device = POD_TUNNELS[this.#family];
    const tunnel = this.#tunnelOf(links);
    const there = new Set(tunnel && this.#servedBy(tunnel));
    const gone = removed.filter((address) => there.has(address));
    const isUnused = gone.length === there.size;
    if (!isUnused && added.length + gone.length === 0) return;
    // Whatever happens, it is read before it is used again.
    this.#namespaces.delete(namespace);
    if (isUnused) {
      for (const [program, ...args] of this.removalOf(namespace, links)) {
        await this.#output(program, args);
      }
      if (added.length === 0) return;
    }
    const own = links.find((each) => isOfPod(each) && each.addresses.includes(pod))?.device ?? "";
    if (!PLAIN_NAME.test(own)) throw new Error(`Cannot use device '${own}' of pod ${pod}`);
    const ip = new IpRunner(this.#commands, { namespace, timeoutMs: TIMEOUT_MS });
    const sysctl = (...args: readonly string[]) =>
      this.#sysctl(["netns", "exec", namespace], ...args);
    const isIpv4 = this.#family === "IPv4";
    if (tunnel === undefined || isUnused) {
      const names = [settingOf(own, "arp_ignore"), settingOf(own, "arp_announce")];
      const before = isIpv4 ? (await sysctl("-n", ...names)).trim().split("\n") : [];
      await ip.run([
        `link add ${device} ${KINDS[this.#family]} local ${pod}`,
        `link set ${device} alias ${[ALIAS, own, ...before].join(",")}`,
        `link set ${device} up`,
      ]);
    }
    if (isIpv4 && added.length > 0) {
      const opened = this.#hostDevices.get(pod);
      if (opened !== undefined) await this.#open(opened);
      await sysctl("-qw", ...arpSettings(own, "1", "2"), `${settingOf(device, "rp_filter")}=2`);
    }
    // At the end, so that an address is the sign of all else, even if this process is killed.
    await ip.run([
      ...added.map((address) => addressLine("replace", { address, device, neverSource: true })),
      ...isUnused ? [] : gone.map((address) => addressLine("del", { address, device })),
    ]);
    await this.#readNamespace(namespace);
  }

  /**
   * Replies of pods have an address of a Service as their source, which is also one of the node: the kernel
   * would take them for forged. The rules of the mode drop all others.
   */
  async #open(device: string): Promise<void> {
    const names = ["all", device].map((each) => settingOf(each, "rp_filter"));
    const filters = (await this.#sysctl([], "-n", ...names)).trim().split("\n").map(Number);
    const loose = Math.max(...filters) === 1 ? [`${names[1]}=2`] : [];
    await this.#sysctl([], "-qw", `${settingOf(device, "accept_local")}=1`, ...loose);
  }

  #placesOf(pod: IpAddress): readonly { readonly name: string; readonly link: Link }[] {
    return [...this.#namespaces].flatMap(([name, links]) => {
      const link = links.find((each) => isOfPod(each) && each.addresses.includes(pod));
      return link ? [{ name, link }] : [];
    });
  }

  #tunnelOf(links: readonly Link[]): Link | undefined {
    return links.find(({ device }) => device === POD_TUNNELS[this.#family]);
  }

  /** None, unless it was completed: addresses come last, and no packet arrives while it is down. */
  #servedBy(tunnel: Link): readonly IpAddress[] {
    return tunnel.isUp ? this.#addressesOf(tunnel) : [];
  }

  readonly #addressesOf = ({ addresses }: Link): readonly IpAddress[] =>
    addresses.filter((each) => ipFamilyOf(each) === this.#family && !each.startsWith("fe80:"));

  /** Forgets namespaces that are gone, and returns the others. */
  async #list(): Promise<readonly string[]> {
    const text = await this.#output("ip", ["netns", "list"]);
    const names = text.split("\n").flatMap((line) => line.split(" ")[0] || []);
    for (const name of this.#namespaces.keys()) {
      if (!names.includes(name)) this.#namespaces.delete(name);
    }
    return names;
  }

  async #refresh(): Promise<void> {
    const names = (await this.#list()).filter((name) => !this.#namespaces.has(name));
    this.#unread = undefined;
    for (let at = 0; at < names.length; at += PARALLEL) {
      await Promise.all(names.slice(at, at + PARALLEL).map((name) => this.#readNamespace(name)));
    }
  }

  /** One that has no address yet, or that can't be entered, is not remembered. */
  async #readNamespace(name: string): Promise<void> {
    const ip = new IpRunner(this.#commands, { namespace: name, timeoutMs: TIMEOUT_MS });
    const links = await ip.links().catch((error) => {
      this.#unread = messageOf(error);
      return [];
    });
    const own = links.filter(isOfPod).slice(0, MOST_OF_POD)
      .map((link) => ({ ...link, addresses: link.addresses.slice(0, MOST_OF_POD) }));
    if (own.every((link) => this.#addressesOf(link).length === 0)) return;
    this.#namespaces.set(name, [...own, ...links.filter((link) => !isOfPod(link))]);
  }

  #sysctl(by: readonly string[], ...args: readonly string[]): Promise<string> {
    return by.length > 0
      ? this.#output("ip", [...by, "sysctl", ...args])
      : this.#output("sysctl", args);
  }

  async #output(program: string, args: readonly string[]): Promise<string> {
    const result = await this.#commands.run(program, args, { timeoutMs: TIMEOUT_MS });
    if (result.code === 0) return result.stdout;
    const reason = reasonOfExit(program, result);
    throw new Error(`Cannot run '${[program, ...args].join(" ")}': ${reason}`);
  }
}

/** Removes the tunnels of a family from all pods of this node, and closes devices of the node. */
export async function removePodTunnels(
  commands: CommandRunner,
  run: RemovalRun,
  family: IpFamily,
): Promise<void> {
  const tunnels = new PodTunnels(commands, family);
  try {
    await tunnels.read(new Set());
  } catch (error) {
    return run.unseen("network namespaces of pods", messageOf(error));
  }
  for (const namespace of tunnels.namespaces) {
    const what = `tunnel ${POD_TUNNELS[family]} in namespace ${namespace}`;
    for (const command of tunnels.removalOf(namespace)) {
      await run.do(what, { command, removes: command.includes("-n") ? [what] : [] });
    }
  }
}

/** No longer lets packets from a device of the node have an address of the node as their source. */
export async function closeDevice(run: RemovalRun, device: string): Promise<void> {
  const what = `setting accept_local of ${device}`;
  await run.do(what, { command: ["sysctl", ...closing(device)], removes: [what] });
}

/** A device that is gone is no failure. */
function closing(device: string): readonly string[] {
  return ["-qew", `${settingOf(device, "accept_local")}=0`];
}

/** Whether packets to the pod arrive at a device. */
function isOfPod({ device }: Link): boolean {
  return device !== "lo" && device !== POD_TUNNELS.IPv4 && device !== POD_TUNNELS.IPv6;
}

/** The settings that a pod had before its tunnel. The pod may have written the alias itself. */
function formerSettings({ alias = "" }: Link): readonly string[] {
  const [, device = "", ignore = "", announce = ""] = alias.split(",");
  const isSound = PLAIN_NAME.test(device) && /^\d,\d$/.test(`${ignore},${announce}`);
  return isSound ? arpSettings(device, ignore, announce) : [];
}

/** Slashes, since the name of a device may have dots. */
function settingOf(device: string, name: string): string {
  return `net/ipv4/conf/${device}/${name}`;
}

/** The pod answers ARP for its own address only, and asks with it: others on its link must not learn the VIP. */
function arpSettings(device: string, ignore: string, announce: string): readonly string[] {
  return [
    `${settingOf(device, "arp_ignore")}=${ignore}`,
    `${settingOf(device, "arp_announce")}=${announce}`,
  ];
}
