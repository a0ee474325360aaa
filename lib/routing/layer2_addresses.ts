import type { IpAddress } from "../net/ip_address.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import { type AddressPool, poolOf } from "./address_pool.ts";
import type { AnnouncedService, ServiceAddress } from "./announced_service.ts";
import type { Layer2Owners } from "./layer2_owner.ts";

/** Gives the owners the addresses of Services that are in pools with layer 2. */
export class Layer2Addresses {
  readonly #owners: Pick<Layer2Owners, "setAddress">;
  #pools: readonly AddressPool[] = [];
  readonly #services = new Map<ServiceKey, AnnouncedService>();
  readonly #holders = new Map<IpAddress, Map<ServiceKey, ServiceAddress>>();

  constructor(
    { owners }: { readonly owners: Pick<Layer2Owners, "setAddress"> },
    pools: readonly AddressPool[],
  ) {
    this.#owners = owners;
    this.setPools(pools);
  }

  /** Takes other pools. The caller then sets every Service again. */
  setPools(pools: readonly AddressPool[]): void {
    this.#pools = pools.filter(({ announce }) => announce === "layer2");
  }

  /** Every address of layer 2. */
  get addresses(): Iterable<IpAddress> {
    return this.#holders.keys();
  }

  /** The Services that have an address of layer 2. */
  servicesAt(address: IpAddress): readonly ServiceKey[] {
    return [...this.#holders.get(address)?.keys() ?? []];
  }

  /** Takes the addresses of a Service, or that it is gone. */
  setService(key: ServiceKey, service: AnnouncedService | undefined): void {
    const before = addressesOf(this.#services.get(key));
    const after = addressesOf(service).filter(({ address }) => poolOf(this.#pools, address));
    if (service) this.#services.set(key, service);
    else this.#services.delete(key);
    for (const { address } of before) this.#holders.get(address)?.delete(key);
    for (const found of after) {
      this.#holders.getOrInsertComputed(found.address, () => new Map()).set(key, found);
    }
    for (const address of new Set([...before, ...after].map((each) => each.address))) {
      this.#announce(address);
    }
  }

  #announce(address: IpAddress): void {
    const holders = this.#holders.get(address);
    if (!holders) return;
    if (holders.size === 0) {
      this.#holders.delete(address);
      this.#owners.setAddress(address, undefined);
      return;
    }
    const nodeSelector = poolOf(this.#pools, address)?.nodeSelector;
    // Services that share an address with policy Local have the same endpoints, but perhaps not yet.
    const local = [...holders.values()].flatMap(({ endpointNodes }) => endpointNodes ?? []);
    const endpointNodes = local.reduce<ReadonlySet<string> | undefined>(
      (all, nodes) => all ? all.intersection(nodes) : nodes,
      undefined,
    );
    this.#owners.setAddress(address, {
      ...(nodeSelector && { nodeSelector }),
      ...(endpointNodes && { endpointNodes }),
    });
  }
}

function addressesOf(service: AnnouncedService | undefined): readonly ServiceAddress[] {
  return service?.addresses.filter(({ kind }) => kind === "loadBalancerIps") ?? [];
}
