/**
 * Chooses the IP families that run on this host.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import { IP_FAMILIES, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { CommandRunner } from "../../os/command_runner.ts";
import type { Network } from "../../os/network.ts";
import { createSysctl } from "../../os/sysctl.ts";

/** The machine to examine. */
interface FamilyChoiceDependencies {
  readonly network: Pick<Network, "interfaceAddresses">;
  readonly commands: CommandRunner;
  readonly logger: Logger;
}

const DISABLE_IPV6 = "net.ipv6.conf.all.disable_ipv6";

/**
 * Returns both families if the kernel has both, whatever the cluster uses, as kube-proxy does; only
 * IPv4 if IPv6 is off. On a host without `sysctl`, the addresses decide.
 */
export async function chooseFamilies(
  dependencies: FamilyChoiceDependencies,
): Promise<readonly IpFamily[]> {
  const reason = await whyNoIpv6(dependencies);
  if (reason === undefined) return IP_FAMILIES;
  dependencies.logger.info("Skipping an IP family", { ipFamily: "IPv6", reason });
  return ["IPv4"];
}

/**
 * kube-proxy looks for `/proc/net/if_inet6`, which this process may not open. But a kernel with IPv6
 * always has `::1` on `lo`, and only such a kernel knows the setting.
 */
async function whyNoIpv6(
  { network, commands }: FamilyChoiceDependencies,
): Promise<string | undefined> {
  const hasIpv6 = network.interfaceAddresses().some(({ address }) =>
    ipFamilyOf(address) === "IPv6"
  );
  if (!hasIpv6) return "no interface has an IPv6 address, not even lo";
  const { values } = await createSysctl(commands).read([DISABLE_IPV6]);
  return values.get(DISABLE_IPV6) === "1" ? `${DISABLE_IPV6} is 1` : undefined;
}
