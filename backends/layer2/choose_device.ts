import { cidrContains, hostCidr, parseCidr, prefixLengthOf } from "../../lib/net/cidr.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Layer2Address } from "../../lib/routing/layer2_plan.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import type { DeviceAddress } from "../iproute/ip_text.ts";

/**
 * The kernel removes an address of kube-relay after this time unless it is renewed: a process that
 * was killed does not answer for longer.
 */
export const LIFETIME_SECONDS = 2;

/** The device that answers for an address, or the reason why none can. */
export type ChosenDevice =
  | { readonly device: string; readonly isHeld: boolean }
  | { readonly reason: string };

/** Chooses the device that answers for an address. `found`: every address of the machine. */
export function chooseDevice(
  { address, interfaces }: Layer2Address & { readonly address: IpAddress },
  found: readonly DeviceAddress[],
): ChosenDevice {
  const present = found.filter((each) => each.address === address);
  const foreign = present.find((each) => !isOwn(each) && !isVirtual(each));
  if (foreign) {
    return {
      reason: `${address} is an address of ${foreign.device} that kube-relay did not add; ` +
        "remove it there or from the pool",
    };
  }
  const held = new Set(present.filter(isOwn).map(({ device }) => device));
  const devices = interfaces ?? onLinkDevices(address, found);
  const existing = new Set(found.map(({ device }) => device));
  const device = devices.find((each) => held.has(each)) ??
    devices.find((each) => existing.has(each));
  if (device !== undefined) return { device, isHeld: held.has(device) };
  return {
    reason: interfaces === undefined
      ? `no interface has a network with ${address}; add one, or name interfaces for the pool`
      : `none of the interfaces ${interfaces.join(", ")} exists or has an address`,
  };
}

/** Whether an address was added by {@linkcode Layer2DataPlane}, in this run or an earlier one. */
export function isOwn(
  { address, prefixLength, neverSource, lifetimeSeconds }: DeviceAddress,
): boolean {
  return neverSource === true && prefixLength === prefixLengthOf(hostCidr(address)) &&
    lifetimeSeconds !== undefined && lifetimeSeconds <= LIFETIME_SECONDS;
}

/** Modes of Services hold addresses on devices that answer no ARP: `kube-ipvs0` and `lo`. */
function isVirtual({ device, address, prefixLength }: DeviceAddress): boolean {
  return (device === IPVS_DEVICE || device === "lo") &&
    prefixLength === prefixLengthOf(hostCidr(address));
}

/** The devices whose network has an address, the smallest network first. */
function onLinkDevices(address: IpAddress, found: readonly DeviceAddress[]): readonly string[] {
  const networks = found.flatMap((each) => {
    const { prefixLength, device } = each;
    if (prefixLength === undefined || isVirtual(each) || device === "lo") return [];
    const network = parseCidr(`${each.address}/${prefixLength}`);
    const isHost = network === hostCidr(each.address);
    return isHost || !cidrContains(network, address) ? [] : [{ device, prefixLength }];
  });
  return networks.sort((a, b) => b.prefixLength - a.prefixLength).map(({ device }) => device);
}
