import ipaddr from "ipaddr.js";
import { type Cidr, cidrContains } from "../../../lib/net/cidr.ts";
import { type IpAddress, parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { Network } from "../../../lib/os/network.ts";
import type { AddressLedger } from "./address_ledger.ts";
import { type LoDevice, type Removal, removalOf } from "./lo_device.ts";
import { canBind } from "./local_check.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { rangeConflict } from "./route_guard.ts";

/** The edges and the ledger that the routes work with. */
interface AnyIpDependencies {
  readonly device: LoDevice;
  readonly ledger: AddressLedger;
  readonly network: Network;
}

/** Adds and removes local routes, with the ledger ahead of the first and behind the second. */
export class AnyIpRoutes {
  readonly #device: LoDevice;
  readonly #ledger: AddressLedger;
  readonly #network: Network;
  #active: ReadonlySet<Cidr> = new Set();

  constructor({ device, ledger, network }: AnyIpDependencies) {
    this.#device = device;
    this.#ledger = ledger;
    this.#network = network;
  }

  /** The ranges that are local by a route and shall stay so. */
  get active(): ReadonlySet<Cidr> {
    return this.#active;
  }

  /** Whether an {@linkcode active} route makes an address local. */
  covers(address: IpAddress): boolean {
    return anyContains(this.#active, address);
  }

  /** Whether an inactive route, which will be removed, makes an address local. */
  isLeaving(address: IpAddress): boolean {
    return anyContains(this.#ledger.routes, address) && !this.covers(address);
  }

  /**
   * Makes ranges local and returns those that failed with the reason. Other ranges are no longer
   * {@linkcode active}, but their routes stay until {@linkcode dropInactive}.
   */
  async activate(ranges: readonly Cidr[]): Promise<ReadonlyMap<Cidr, string>> {
    const active = new Set<Cidr>();
    const refused = new Map<Cidr, string>();
    for (const range of ranges) {
      const reason = this.#active.has(range) ? undefined : await this.#add(range);
      if (reason === undefined) active.add(range);
      else refused.set(range, reason);
    }
    this.#active = active;
    return refused;
  }

  /** Adds a route that is not needed and removes it again. Resolves to why that does not work, or to undefined. */
  async tryRange(range: Cidr): Promise<string | undefined> {
    const reason = await this.#add(range);
    if (this.#ledger.routes.has(range)) await this.#delete([range]);
    await this.restoreNonlocalBind();
    return reason;
  }

  /** Removes our routes that are not active. */
  dropInactive(): Promise<Removal<Cidr>> {
    return this.#delete([...this.#ledger.routes].filter((range) => !this.#active.has(range)));
  }

  /**
   * Puts the switch for IPv6 binds back if we set it and no route is left that needs it. Resolves to
   * the value it has now, or to undefined when there was nothing to do. Rejects when it cannot be set.
   */
  async restoreNonlocalBind(): Promise<string | undefined> {
    const previous = this.#ledger.previousNonlocalBind;
    if (previous === undefined || this.#active.size > 0) return undefined;
    await this.#device.setNonlocalBind(previous);
    await this.#ledger.setPreviousNonlocalBind(undefined);
    return previous;
  }

  /** Resolves to why it could not be added, or to undefined. */
  async #add(range: Cidr): Promise<string | undefined> {
    const known = this.#ledger.routes.has(range);
    try {
      const conflict = rangeConflict(range, {
        routes: await this.#device.routes(),
        nodeAddresses: this.#nodeAddresses(),
      });
      if (conflict !== undefined) return conflict;
      await this.#ledger.intend({ routes: [range] });
    } catch (error) {
      return messageOf(error);
    }
    const failure = (await this.#device.addRoutes([range])).get(range);
    // A foreign route works as well, but must not be removed.
    if (failure && !known) await this.#ledger.forget({ routes: [range] });
    if (failure && failure.kind !== "exists") return failure.message;
    const reason = await this.#ensureBind(range);
    if (reason !== undefined && this.#ledger.routes.has(range)) await this.#delete([range]);
    return reason;
  }

  async #delete(ranges: readonly Cidr[]): Promise<Removal<Cidr>> {
    const removal = removalOf(ranges, await this.#device.deleteRoutes(ranges));
    await this.#ledger.forget({ routes: ranges.filter((range) => !removal.failures.has(range)) });
    return removal;
  }

  /** An IPv6 bind asks for an address on an interface, unless a switch of the kernel lets it do without. */
  async #ensureBind(range: Cidr): Promise<string | undefined> {
    const address = someAddressOf(range);
    if (canBind(this.#network, address)) return undefined;
    const refused = `its route exists, but a socket cannot be bound to ${address}`;
    if (!range.includes(":")) return refused;
    try {
      await this.#allowNonlocalBind();
    } catch (error) {
      return `${refused}: ${messageOf(error)}`;
    }
    return canBind(this.#network, address) ? undefined : refused;
  }

  async #allowNonlocalBind(): Promise<void> {
    const previous = await this.#device.nonlocalBind();
    if (previous === "1") return;
    await this.#ledger.setPreviousNonlocalBind(previous);
    try {
      await this.#device.setNonlocalBind("1");
    } catch (error) {
      await this.#ledger.setPreviousNonlocalBind(undefined);
      throw error;
    }
  }

  #nodeAddresses(): IpAddress[] {
    return this.#network.interfaceAddresses().map(({ address }) => address)
      .filter((address) => !this.#ledger.addresses.has(address));
  }
}

function anyContains(ranges: Iterable<Cidr>, address: IpAddress): boolean {
  for (const range of ranges) if (cidrContains(range, address)) return true;
  return false;
}

/** An address of the range that is neither its first (the router anycast address of IPv6) nor beyond it. */
function someAddressOf(range: Cidr): IpAddress {
  const [network, length] = ipaddr.parseCIDR(range);
  const bytes = network.toByteArray();
  const last = bytes.length - 1;
  if (length < bytes.length * 8) bytes[last] = (bytes[last] ?? 0) | 1;
  return parseIpAddress(ipaddr.fromByteArray(bytes).toString());
}
