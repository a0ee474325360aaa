import { cidrContains, hostCidr, parseCidr, prefixLengthOf } from "../../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../../lib/net/ip_address.ts";
import { linkText, type NodeLink } from "../../../lib/routing/layer2_member.ts";
import { IPVS_DEVICE } from "../../iproute/dummy_devices.ts";
import type { DeviceAddress } from "../../iproute/ip_text.ts";

/**
 * The kernel removes an address of kube-relay after this time unless it is renewed: a process that
 * was killed does not answer for longer.
 */
export const LIFETIME_SECONDS = 2;

/** The device that answers for an address, or the reason why none can. */
export type ChosenDevice =
  | { readonly device: string; readonly isHeld: boolean }
  | { readonly reason: string };

/**
 * Chooses the device that answers for an address. `interfaces`: those that may, best first; empty = those
 * whose network has the address. `found`: every address of the machine.
 */
export function chooseDevice(
  address: IpAddress,
  interfaces: readonly string[],
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
  const links = nodeLinks(found, ipFamilyOf(address), interfaces)
    .filter(({ network }) => cidrContains(network, address));
  const usable = links.filter(({ obstacle }) => obstacle === undefined);
  const { device } = usable.find((each) => held.has(each.device)) ?? usable[0] ?? {};
  if (device !== undefined) return { device, isHeld: held.has(device) };
  if (interfaces.length === 0 && links.length > 0) {
    return { reason: `no interface can answer for ${address}: ${links.map(linkText).join(", ")}` };
  }
  return {
    reason: interfaces.length === 0
      ? `no interface has a network with ${address}; add one, or name interfaces for the pool`
      : `none of the interfaces ${interfaces.join(", ")} can answer: ` +
        links.map(linkText).join(", "),
  };
}

/** Every address of a family. */
const WHOLE = { IPv4: parseCidr("0.0.0.0/0"), IPv6: parseCidr("::/0") };

/**
 * Returns the networks in which a machine can answer, the smallest first. Interfaces that were named
 * answer for any address.
 */
export function nodeLinks(
  found: readonly DeviceAddress[],
  family: IpFamily,
  interfaces: readonly string[],
): readonly NodeLink[] {
  const own = found.filter((each) => ipFamilyOf(each.address) === family && !isOwn(each));
  if (interfaces.length > 0) {
    return interfaces.map((device) => {
      const existing = own.find((each) => each.device === device);
      const obstacle = existing ? existing.obstacle : "absent";
      return { network: WHOLE[family], device, ...(obstacle && { obstacle }) };
    });
  }
  const links = new Map<string, NodeLink>();
  for (const each of own) {
    const { address, prefixLength, device, obstacle, hasNoArp } = each;
    if (prefixLength === undefined || isVirtual(each) || device === "lo" || hasNoArp) continue;
    const network = parseCidr(`${address}/${prefixLength}`);
    if (network === hostCidr(address) || isLinkLocal(address)) continue;
    links.set(`${network} ${device}`, { network, device, ...(obstacle && { obstacle }) });
  }
  return [...links.values()].sort((a, b) => prefixLengthOf(b.network) - prefixLengthOf(a.network));
}

function isLinkLocal(address: IpAddress): boolean {
  return /^fe[89ab]/.test(address);
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
