/**
 * Settings of the kernel that the ipvs mode needs. Pure.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { HostSettingWish } from "../../lib/proxy/host_setting.ts";

/** All of them; those of IPVS are the same for both families, those of ARP are for IPv4. */
export function ipvsHostSettings(
  { family, strictArp }: { readonly family: IpFamily; readonly strictArp: boolean },
): readonly HostSettingWish[] {
  return [
    {
      name: "net.ipv4.vs.conntrack",
      value: "1",
      purpose: "masquerade what IPVS forwards",
    },
    {
      name: "net.ipv4.vs.expire_nodest_conn",
      value: "1",
      purpose: "send clients of an endpoint that is gone to another one at once",
    },
    {
      name: "net.ipv4.vs.expire_quiescent_template",
      value: "1",
      purpose: "let session affinity end with its endpoint",
    },
    // Not so for IPv6, where it would end the reception of router advertisements.
    ...(family === "IPv4" ? [FORWARDING] : []),
    ...(strictArp && family === "IPv4" ? STRICT_ARP : []),
  ];
}

const FORWARDING: HostSettingWish = {
  name: "net.ipv4.ip_forward",
  value: "1",
  purpose: "forward packets to pods",
};

/** The kernel has no way to say so of single addresses. */
const STRICT_ARP: readonly HostSettingWish[] = [
  {
    name: "net.ipv4.conf.all.arp_ignore",
    value: "1",
    atLeast: true,
    purpose: "answer ARP only for addresses of the interface that is asked (strictARP)",
  },
  {
    name: "net.ipv4.conf.all.arp_announce",
    value: "2",
    atLeast: true,
    purpose: "announce no Service address by ARP (strictARP)",
  },
];
