/**
 * An IPVS table in memory, which takes lines of `ipvsadm` and refuses the same ones as the kernel.
 *
 * @module
 */
import type { RealServerKey, ServerKey } from "../../../backends/netfilter/virtual_servers.ts";

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

/** Virtual servers with their real ones. */
export class IpvsTable {
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
