import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import { DEFAULT_SCHEDULER, type Scheduler } from "./scheduler.ts";

/** Extensions of iptables that a kernel may lack without that the mode cannot work. */
export interface IpvsFeatures {
  /** `MASQUERADE --random-fully`, iptables 1.6.2: fewer collisions of source ports. */
  readonly randomFully: boolean;
}

/** Settings of one IP family. */
export interface IpvsRenderOptions {
  readonly family: IpFamily;
  readonly features: IpvsFeatures;
  /** Bit of the packet mark that asks for masquerade, 0 to 31 (`iptables.masqueradeBit`). */
  readonly masqueradeBit: number;
  /** The scheduler of Services that request none. */
  readonly scheduler: Scheduler;
  /**
   * Addresses of the node's own interfaces. They are not bound again, and the node's ports on them
   * stay open, even if a Service uses such an address.
   */
  readonly nodeAddresses: ReadonlySet<IpAddress>;
}

/** kube-proxy's defaults. */
export function defaultIpvsOptions(family: IpFamily): IpvsRenderOptions {
  return {
    family,
    features: { randomFully: true },
    masqueradeBit: 14,
    scheduler: DEFAULT_SCHEDULER,
    nodeAddresses: new Set(),
  };
}

/** Value and mask of the mark that asks for masquerade, as kube-proxy spells it. */
export function masqueradeMark({ masqueradeBit }: IpvsRenderOptions): string {
  return `0x${(2 ** masqueradeBit).toString(16).padStart(8, "0")}`;
}
