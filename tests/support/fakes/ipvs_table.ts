/**
 * An IPVS table in memory: its content can be queried, and an operation has the same effect, and
 * meets the same refusals, as in the kernel. Pure except for its own state.
 *
 * @module
 */
import type { IpvsOperation } from "../texts/ipvs_operation.ts";
import type {
  RealServer,
  RealServerKey,
  ServerKey,
  VirtualServer,
} from "../../../backends/ipvs/virtual_server.ts";

interface Entry {
  server: VirtualServer;
  readonly reals: Map<RealServerKey, RealServer>;
}

/** Virtual servers with their real ones. */
export class IpvsTable {
  readonly #entries = new Map<ServerKey, Entry>();

  /** The virtual server of a key. */
  getServer(key: ServerKey): VirtualServer | undefined {
    return this.#entries.get(key)?.server;
  }

  /** All virtual servers, in the order in which they came. */
  getServers(): readonly VirtualServer[] {
    return [...this.#entries.values()].map(({ server }) => server);
  }

  /** The real servers of a virtual one, in the order in which they came. */
  getReals(key: ServerKey): readonly RealServer[] {
    return [...this.#entries.get(key)?.reals.values() ?? []];
  }

  /**
   * Applies an operation. If the kernel would refuse it, throws an Error in the words of `ipvsadm`
   * and changes nothing.
   */
  apply(operation: IpvsOperation): void {
    switch (operation.kind) {
      case "flush":
        this.#entries.clear();
        break;
      case "addServer": {
        const { server } = operation;
        if (this.#entries.has(server.key)) throw new Error("Service already exists");
        this.#entries.set(server.key, { server, reals: new Map() });
        break;
      }
      case "editServer":
        this.#entry(operation.server.key).server = operation.server;
        break;
      case "deleteServer":
        this.#entry(operation.key);
        this.#entries.delete(operation.key);
        break;
      default:
        this.#applyToReal(operation);
    }
  }

  /** The operations that make this table, from nothing. */
  *operations(): Generator<IpvsOperation> {
    for (const { server, reals } of this.#entries.values()) {
      yield { kind: "addServer", server };
      for (const real of reals.values()) yield { kind: "addReal", server: server.key, real };
    }
  }

  #applyToReal(
    operation: Extract<IpvsOperation, { kind: "addReal" | "deleteReal" | "editReal" }>,
  ): void {
    const { reals } = this.#entry(operation.server);
    const key = operation.kind === "deleteReal" ? operation.key : operation.real.key;
    const isThere = reals.has(key);
    if (operation.kind === "addReal" && isThere) throw new Error("Destination already exists");
    if (operation.kind !== "addReal" && !isThere) throw new Error("No such destination");
    if (operation.kind === "deleteReal") reals.delete(key);
    else reals.set(key, operation.real);
  }

  #entry(key: ServerKey): Entry {
    const entry = this.#entries.get(key);
    if (entry === undefined) throw new Error("No such service");
    return entry;
  }
}
