import type { Cidr } from "../../../lib/net/cidr.ts";
import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import type { AddressLedger } from "./address_ledger.ts";
import type { AddressStore } from "./address_store.ts";
import type { AnyIpRoutes } from "./anyip_routes.ts";
import { NONLOCAL_BIND, type Removal } from "./lo_device.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import type { OwnAddresses } from "./own_addresses.ts";

interface AddressCleanupInput {
  readonly ledger: AddressLedger;
  readonly own: OwnAddresses;
  readonly routes: AnyIpRoutes;
  readonly store: AddressStore;
}

/**
 * Removes exactly what the ledger contains. Continues after failures; a missing object is no
 * failure. The record is removed last, if nothing remains.
 */
export async function cleanupAddresses(
  { ledger, own, routes, store }: AddressCleanupInput,
): Promise<CleanupReport> {
  const removed: string[] = [];
  const failed: string[] = [];
  const step = async (what: string, run: () => Promise<void>) => {
    try {
      await run();
    } catch (error) {
      failed.push(`${what}: ${messageOf(error)}`);
    }
  };
  const report = <T>(removal: Removal<T>, describe: (item: T) => string) => {
    for (const item of removal.removed) removed.push(describe(item));
    for (const [item, { message }] of removal.failures) {
      failed.push(`${describe(item)}: ${message}`);
    }
  };
  await routes.activate([]);
  await step("addresses on lo", async () => {
    report(await own.remove(ledger.addresses), describeAddress);
  });
  await step("local routes", async () => {
    report(await routes.dropInactive(), describeRoute);
  });
  await step(NONLOCAL_BIND, async () => {
    const value = await routes.restoreNonlocalBind();
    if (value !== undefined) removed.push(`${NONLOCAL_BIND}, which is ${value} again`);
  });
  if (failed.length === 0) await step(`record ${store.path}`, () => store.remove());
  return { removed, failed };
}

/**
 * Returns what {@linkcode cleanupAddresses} would remove according to the record; some of it may be
 * gone.
 */
export async function previewAddressCleanup(
  { ledger }: Pick<AddressCleanupInput, "ledger">,
): Promise<CleanupReport> {
  const refusal = await ledger.open();
  if (refusal !== undefined) return { removed: [], failed: [refusal] };
  return {
    removed: [
      ...[...ledger.addresses].map(describeAddress),
      ...[...ledger.routes].map(describeRoute),
    ],
    failed: [],
  };
}

function describeAddress(address: IpAddress): string {
  return `address ${address} on lo`;
}

function describeRoute(range: Cidr): string {
  return `local route for ${range}`;
}
