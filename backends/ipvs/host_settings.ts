import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { HostSettingRequest } from "../../lib/proxy/data_plane.ts";
import { isAtLeast, parseVersion } from "../netfilter/probe/tool_version.ts";

/** The facts that the settings depend on. */
interface IpvsHostContext {
  readonly family: IpFamily;
  readonly strictArp: boolean;
  /** As `uname -r` prints it. */
  readonly kernelRelease: string;
  /** Interfaces with an IPv4 address of the node's own. */
  readonly interfaces: ReadonlySet<string>;
}

/** The kernels in between answer a reused port of a client by a second of silence. */
const FIRST_WITH_REUSE_MODE = [4, 1];
const FIRST_WITH_FAST_REUSE = [5, 9];

/** All of them; those of IPVS are the same for both families, those of ARP are for IPv4. */
export function ipvsHostSettings(
  { family, strictArp, kernelRelease, interfaces }: IpvsHostContext,
): readonly HostSettingRequest[] {
  return [
    {
      name: "net.ipv4.vs.conntrack",
      value: "1",
      purpose: "masquerade packets that IPVS forwards",
    },
    ...(waitsForReuse(kernelRelease) ? [REUSE] : []),
    {
      name: "net.ipv4.vs.expire_nodest_conn",
      value: "1",
      purpose: "send clients of a removed endpoint to another one at once",
    },
    {
      name: "net.ipv4.vs.expire_quiescent_template",
      value: "1",
      purpose: "let session affinity end with its endpoint",
    },
    // Not so for IPv6, where it would end the reception of router advertisements.
    ...(family === "IPv4" ? [FORWARDING] : []),
    ...(strictArp && family === "IPv4" ? [...interfaces].sort().flatMap(strictArpOf) : []),
  ];
}

const FORWARDING: HostSettingRequest = {
  name: "net.ipv4.ip_forward",
  value: "1",
  purpose: "forward packets to pods",
};

const REUSE: HostSettingRequest = {
  name: "net.ipv4.vs.conn_reuse_mode",
  value: "0",
  purpose: "answer clients that use a port again at once (kernels before 5.9)",
};

function waitsForReuse(kernelRelease: string): boolean {
  const version = parseVersion(kernelRelease);
  return version !== undefined && isAtLeast(version, FIRST_WITH_REUSE_MODE) &&
    !isAtLeast(version, FIRST_WITH_FAST_REUSE);
}

/**
 * The kernel cannot limit ARP to single addresses, and uses the larger value of the interface and
 * of `all`. Setting `all` breaks interfaces without an address, as some pod networks have, and new
 * network namespaces inherit it (kubernetes/kubernetes#71555).
 */
function strictArpOf(name: string): readonly HostSettingRequest[] {
  // `sysctl` takes a dot in the name of an interface for a slash, and a slash for a dot.
  const prefix = `net.ipv4.conf.${name.replaceAll(".", "/")}`;
  return [
    {
      name: `${prefix}.arp_ignore`,
      value: "1",
      atLeast: true,
      purpose: "answer ARP only for addresses of the interface that is asked (strictARP)",
    },
    {
      name: `${prefix}.arp_announce`,
      value: "2",
      atLeast: true,
      purpose: "announce no Service address by ARP (strictARP)",
    },
  ];
}
