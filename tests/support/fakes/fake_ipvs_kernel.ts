/**
 * The parts of a kernel that the ipvs mode writes to, in memory: virtual servers, sets, addresses
 * on the device and the rules of single Services. Accepts the tools' own text, line by line, and
 * refuses the same lines as they do.
 */
import {
  type RealServerKey,
  type ServerKey,
  serverKey,
} from "../../../backends/netfilter/virtual_servers.ts";
import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { Protocol } from "../../../lib/net/port.ts";

/** The destination of a packet from outside. */
export interface FakePacket {
  readonly protocol: Protocol;
  readonly address: IpAddress;
  readonly port: number;
}

/**
 * The result for a packet. `away`: the address is not one of this node. `node`: a process of the
 * node receives it on that port.
 */
export type FakeOutcome = "away" | "drop" | "node" | "reject" | readonly string[];

/** Of one IP family, IPv4. */
export class FakeIpvsKernel {
  readonly table = new IpvsTable();
  readonly sets = new Map<string, Set<string>>();
  /** Type and options of sets, as they were created. */
  readonly setOptions = new Map<string, string>();
  readonly addresses = new Set<string>();
  #hasDevice = false;

  /** Returns the result for the first packet of a connection. */
  fate({ protocol, address, port }: FakePacket): FakeOutcome {
    if (!this.addresses.has(address)) return "away";
    const entry = `${address},${protocol.toLowerCase()}:${port}`;
    const isIn = (set: string) => this.sets.get(`KUBE-${set}`)?.has(entry) ?? false;
    if (isIn("NO-LOCAL-INTERNAL") || isIn("NO-LOCAL-EXTERNAL")) return "drop";
    if (isIn("LOAD-BALANCER-FW")) {
      const ranges = this.sets.get("KUBE-LOAD-BALANCER-SOURCE-CIDR") ?? [];
      if (![...ranges].some((each) => each.startsWith(`${entry},`))) return "drop";
    }
    if (!isIn("SERVED")) return this.sets.get("KUBE-IPVS-IPS")?.has(address) ? "reject" : "node";
    const key = serverKey({ protocol, address, port });
    if (this.table.getServer(key) === undefined) return "node";
    const reals = this.table.getReals(key).filter(({ weight }) => weight > 0);
    return reals.length === 0 ? "reject" : reals.map((real) => real.key).sort();
  }

  /** Everything, sorted. Real servers that drain are left out. */
  dump(): string {
    const servers = this.table.getServers().map(({ key, scheduler, persistenceSeconds }) => {
      const reals = this.table.getReals(key).filter(({ weight }) => weight > 0);
      const names = reals.map((real) => real.key).sort().join(" ");
      return `${key} ${scheduler} ${persistenceSeconds ?? ""} -> ${names}`;
    });
    const sets = [...this.sets].map(([name, entries]) =>
      `${name}: ${[...entries].sort().join(" ")}`
    );
    return [...servers, ...sets, [...this.addresses].sort().join(" ")].sort().join("\n");
  }

  /** Whether there is a device. Without one there are no addresses. */
  get hasDevice(): boolean {
    return this.#hasDevice;
  }

  set hasDevice(isThere: boolean) {
    this.#hasDevice = isThere;
    if (!isThere) this.addresses.clear();
  }

  /** Takes one line of a tool's input; throws in the words of the tool. */
  take(tool: "ip" | "ipset" | "ipvsadm", line: string): void {
    if (tool === "ipvsadm") {
      this.table.take(line);
    } else if (tool === "ip") this.#takeAddress(line.split(" "));
    else this.#takeSet(line.split(" "));
  }

  #takeAddress([object = "", verb = "", address = ""]: readonly string[]): void {
    if (object === "link") {
      if (this.#hasDevice) throw new Error("ip: RTNETLINK answers: File exists");
      this.#hasDevice = true;
      return;
    }
    if (!this.#hasDevice) throw new Error('ip: Cannot find device "kube-ipvs0"');
    const plain = address.replace(/\/\d+$/, "");
    if (verb === "replace") this.addresses.add(plain);
    else if (!this.addresses.delete(plain)) throw new Error("ip: Cannot assign requested address");
  }

  #takeSet([verb = "", name = "", entry = "", ...rest]: readonly string[]): void {
    if (verb === "create") {
      const options = [entry, ...rest].filter((word) => word !== "-exist").join(" ");
      const there = this.setOptions.get(name) ?? options;
      if (this.sets.has(name) && there !== options) {
        throw new Error("Set cannot be created: set with the same name already exists");
      }
      if (!this.sets.has(name)) this.sets.set(name, new Set());
      this.setOptions.set(name, options);
      return;
    }
    const set = this.sets.get(name);
    if (set === undefined) throw new Error("ipset: The set with the given name does not exist");
    const excepted = `${entry} nomatch`;
    if (verb === "add" || verb === "del") {
      for (const each of [entry, excepted]) set.delete(each);
    }
    if (verb === "add") set.add(rest.includes("nomatch") ? excepted : entry);
    else if (verb === "del") return;
    else if (verb === "flush") set.clear();
    else if (verb === "destroy") {
      this.sets.delete(name);
      this.setOptions.delete(name);
    } else if (verb === "swap") this.#swapSets(name, entry);
    else throw new Error(`ipset: cannot read '${verb}'`);
  }

  #swapSets(one: string, other: string): void {
    const [options = "", otherOptions = ""] = [one, other].map((name) => this.setOptions.get(name));
    const [set, otherSet] = [one, other].map((name) => this.sets.get(name));
    const kindOf = (text: string) => /^\S+(?: family \S+)?/.exec(text)?.[0];
    if (!set || !otherSet || kindOf(options) !== kindOf(otherOptions)) {
      throw new Error("The sets cannot be swapped: their type does not match");
    }
    this.sets.set(one, otherSet).set(other, set);
    this.setOptions.set(one, otherOptions).set(other, options);
  }
}

/** A virtual server. */
interface FakeServer {
  readonly key: ServerKey;
  readonly scheduler: string;
  readonly flags?: string;
  readonly persistenceSeconds?: number;
}

/** A real server. */
interface FakeReal {
  readonly key: RealServerKey;
  readonly forwarding: "-g" | "-i" | "-m";
  readonly weight: number;
}

const LINE = /^(-[AEDaed]) ((?:-t|-u|--sctp-service) \S+:\d+)( .*)?$/;

/** A table of IPVS, which takes lines of `ipvsadm` and refuses the same ones as the kernel. */
class IpvsTable {
  readonly #entries = new Map<
    string,
    { server: FakeServer; readonly reals: Map<string, FakeReal> }
  >();

  /** The virtual server of a key. */
  getServer(key: ServerKey): FakeServer | undefined {
    return this.#entries.get(key)?.server;
  }

  /** All virtual servers, in the order in which they came. */
  getServers(): readonly FakeServer[] {
    return [...this.#entries.values()].map(({ server }) => server);
  }

  /** The real servers of a virtual one, in the order in which they came. */
  getReals(key: ServerKey): readonly FakeReal[] {
    return [...this.#entries.get(key)?.reals.values() ?? []];
  }

  clear(): void {
    this.#entries.clear();
  }

  /** Throws an Error in the words of the tool, and changes nothing, if the kernel would refuse it. */
  take(line: string): void {
    const [, verb, key = "", rest = ""] = LINE.exec(line) ?? [];
    const option = (name: string) => new RegExp(` ${name} (\\S+)`).exec(rest)?.[1];
    const entry = this.#entries.get(key);
    if (verb === undefined) throw new Error(`ipvsadm: cannot read '${line}'`);
    if (verb === "-A" && entry) throw new Error("Service already exists");
    if (verb !== "-A" && !entry) throw new Error("No such service");
    const real = option("-r");
    if (verb === "-D") this.#entries.delete(key);
    else if (verb === "-A" || verb === "-E") {
      const [flags, seconds] = [option("-b"), option("-p")];
      const server = {
        key: key as ServerKey,
        scheduler: option("-s") ?? "wlc",
        ...(flags && { flags }),
        ...(seconds && { persistenceSeconds: Number(seconds) }),
      };
      if (entry) entry.server = server;
      else this.#entries.set(key, { server, reals: new Map() });
    } else if (real === undefined) throw new Error(`ipvsadm: cannot read '${line}'`);
    else if (verb === "-a" && entry!.reals.has(real)) throw new Error("Destination already exists");
    else if (verb !== "-a" && !entry!.reals.has(real)) throw new Error("No such destination");
    else if (verb === "-d") entry!.reals.delete(real);
    else {
      const forwarding = / (-[gim])\b/.exec(rest)?.[1] as FakeReal["forwarding"] ?? "-g";
      const weight = Number(option("-w") ?? 1);
      entry!.reals.set(real, { key: real as RealServerKey, forwarding, weight });
    }
  }
}
