import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { AddressConflict } from "./address_inventory.ts";
import type { AddressPool } from "./address_pool.ts";
import { shorten } from "./address_request.ts";

/** The reason why a Service has no address, or not the requested one. */
export interface AddressRefusal {
  readonly reason:
    | "exhausted"
    | "no pool"
    | "outside of pools"
    | "not permitted"
    | "taken"
    | "not shareable"
    | "reserved"
    | "invalid"
    | "foreign";
  /** A sentence for an event on the Service. Names nothing of other namespaces. */
  readonly message: string;
}

/** No pool has the family, or the Service may use none that has it. */
export function noPool(
  family: IpFamily,
  { pools, requested }: { readonly pools: readonly AddressPool[]; readonly requested?: string },
): AddressRefusal {
  if (requested !== undefined) {
    const message = `The Service may not use pool '${
      shorten(requested)
    }', or the pool has no ${family}`;
    return { reason: "no pool", message };
  }
  const message = pools.length === 0
    ? `No pool has addresses of ${family}`
    : `No pool with addresses of ${family} assigns addresses to this Service by itself`;
  return { reason: "no pool", message };
}

/** The pools that the Service may use have no free address. */
export function exhausted(family: IpFamily, pools: readonly AddressPool[]): AddressRefusal {
  const names = pools.map(({ name }) => `'${name}'`).join(", ");
  const which = pools.length === 1 ? `Pool ${names} has` : `The pools ${names} have`;
  return { reason: "exhausted", message: `${which} no free address of ${family}` };
}

/** The requested address is in no pool. */
export function outsideOfPools(address: IpAddress): AddressRefusal {
  return { reason: "outside of pools", message: `${address} is in no pool` };
}

/** The Service may not use the pool of the requested address. */
export function notPermitted(address: IpAddress, { name }: AddressPool): AddressRefusal {
  const message = `${address} is in pool '${name}', which this Service may not use`;
  return { reason: "not permitted", message };
}

/** Another Service or program has the requested address. */
export function taken(address: IpAddress, conflict: AddressConflict): AddressRefusal {
  switch (conflict.kind) {
    case "reserved":
      return { reason: "reserved", message: `${address} is in use by ${conflict.by}` };
    case "other namespace":
      return {
        reason: "taken",
        message: `${address} is taken by a Service of another namespace`,
      };
    case "no sharing": {
      const message = `${address} is taken by ${conflict.service}, and the two Services have no ` +
        "sharing key in common";
      return { reason: "taken", message };
    }
    case "other terms": {
      const message =
        `${address} is taken by ${conflict.service}: to share it, both Services need ` +
        "externalTrafficPolicy Cluster, or Local with the same selector";
      return { reason: "not shareable", message };
    }
    case "same port": {
      const message = `${address} is taken by ${conflict.service}, which has port ` +
        `${conflict.port} too`;
      return { reason: "not shareable", message };
    }
  }
}

/** The requested addresses cannot be read. */
export function invalidRequest(message: string): AddressRefusal {
  return { reason: "invalid", message };
}

/** The status has what this allocator did not give. */
export function foreignStatus(found: string): AddressRefusal {
  const message = `The status has ${found}, which is in no pool: another controller wrote it, or ` +
    "its range was removed from the pools; it is left alone. Stop that controller or add the " +
    "range again, or remove the entry from the status to get another address";
  return { reason: "foreign", message };
}
