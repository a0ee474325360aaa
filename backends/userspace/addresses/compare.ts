/**
 * Compares the addresses and routes that were found with the record and plan of a process. Pure.
 *
 * Only recorded objects count; other addresses of `lo` are no difference.
 *
 * @module
 */
import { type Cidr, hostCidr } from "../../../lib/net/cidr.ts";
import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { DataPlaneDifference } from "../../../lib/proxy/data_plane_difference.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { serviceAddresses } from "../listeners.ts";
import type { AddressRecord } from "./address_store.ts";
import { addressLine, routeLine } from "../../iproute/ip_text.ts";
import { addAddressLine, localRouteLine } from "./addresses.ts";

/** The addresses and routes of one IP family that were found. */
export interface FoundAddresses {
  /** The prefix lengths of each address of `lo`. */
  readonly addresses: ReadonlyMap<IpAddress, readonly number[]>;
  /** Local routes by range: the device that each is for. */
  readonly routes: ReadonlyMap<Cidr, string>;
}

interface AddressComparisonInput {
  readonly plan: ProxyPlan;
  readonly record: Pick<AddressRecord, "addresses" | "routes">;
  readonly found: FoundAddresses;
  /** Only these ServicePorts, and the shared objects. @default {all} */
  readonly keys?: ReadonlySet<ServicePortKey> | undefined;
}

/** The differences, and the lines for `ip -batch -` that repair them. */
export interface AddressComparison {
  readonly differences: readonly DataPlaneDifference[];
  readonly lines: readonly string[];
}

/** Compares. */
export function compareAddresses(
  { plan, record, found, keys }: AddressComparisonInput,
): AddressComparison {
  const owners = ownersOf(plan);
  const differences: DataPlaneDifference[] = [];
  const lines: string[] = [];
  for (const address of record.addresses) {
    const owner = owners.get(address);
    if (owner !== undefined && keys !== undefined && !keys.has(owner)) continue;
    const outcome = compareAddress(address, { isWanted: owner !== undefined, found });
    if (outcome === undefined) continue;
    differences.push({ ...outcome.difference, ...(owner !== undefined && { key: owner }) });
    lines.push(...outcome.lines);
  }
  for (const range of record.routes) {
    const outcome = compareRoute(range, found);
    if (outcome === undefined) continue;
    differences.push(outcome.difference);
    lines.push(...outcome.lines);
  }
  return { differences, lines };
}

interface Outcome {
  readonly difference: DataPlaneDifference;
  readonly lines: readonly string[];
}

function compareAddress(
  address: IpAddress,
  { isWanted, found }: { readonly isWanted: boolean; readonly found: FoundAddresses },
): Outcome | undefined {
  const whole = hostCidr(address);
  const length = Number(whole.slice(whole.indexOf("/") + 1));
  const lengths = found.addresses.get(address) ?? [];
  const others = lengths.filter((each) => each !== length);
  const common = { object: "address", name: `${address} on lo` };
  const wanted = `${whole} dev lo`;
  const there = lengths.map((each) => `${address}/${each} dev lo`).join("\n");
  const remove = (some: readonly number[]) =>
    some.map((prefixLength) => addressLine("del", { address, device: "lo", prefixLength }));
  if (!isWanted) {
    // A removed object may remain in the record.
    if (lengths.length === 0) return undefined;
    return { difference: { ...common, kind: "extra", found: there }, lines: remove(lengths) };
  }
  if (lengths.length === 0) {
    return { difference: { ...common, kind: "missing", wanted }, lines: [addAddressLine(address)] };
  }
  if (others.length === 0) return undefined;
  const add = lengths.includes(length) ? [] : [addAddressLine(address)];
  // The right one first: the address stays local all the time. IPv6 has an address once in a device.
  const lines = address.includes(":") ? [...remove(others), ...add] : [...add, ...remove(others)];
  return { difference: { ...common, kind: "altered", wanted, found: there }, lines };
}

function compareRoute(range: Cidr, { routes }: FoundAddresses): Outcome | undefined {
  const device = routes.get(range);
  if (device === "lo") return undefined;
  const common = { object: "route", name: `local ${range}` };
  const wanted = `local ${range} dev lo`;
  const lines = [localRouteLine("add", range)];
  if (device === undefined) return { difference: { ...common, kind: "missing", wanted }, lines };
  const there = `local ${range} dev ${device}`;
  return {
    difference: { ...common, kind: "altered", wanted, found: there },
    lines: [routeLine("del", { type: "local", destination: range, device }), ...lines],
  };
}

/** The ServicePort that needs an address. Node ports use addresses that the node has already. */
function ownersOf({ services, shared }: ProxyPlan): ReadonlyMap<IpAddress, ServicePortKey> {
  const owners = new Map<IpAddress, ServicePortKey>();
  for (const [key, plan] of services) {
    for (const { address, role } of serviceAddresses(plan, shared)) {
      if (role !== "NodePort" && !owners.has(address)) owners.set(address, key);
    }
  }
  return owners;
}
