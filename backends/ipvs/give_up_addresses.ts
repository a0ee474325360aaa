import { type IpAddress, type IpFamily, tryParseIpAddress } from "../../lib/net/ip_address.ts";
import { IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { addressLine } from "../iproute/ip_text.ts";
import { type SetId, setName } from "./ipset_table.ts";
import type { IpvsRunner } from "./ipvs_runner.ts";

/** The sets of external IPs and load balancer addresses. */
const EXTERNAL_SETS: readonly SetId[] = [
  ...["EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "LOAD-BALANCER", "LOAD-BALANCER-LOCAL"] as const,
];

/**
 * Removes external IPs and load balancer addresses of an earlier run from the device, where
 * `isForeign` says so, and returns them. Their virtual servers stay until the first sync.
 */
export async function giveUpAddresses(
  runner: Pick<IpvsRunner, "read" | "run">,
  family: IpFamily,
  isForeign: (address: IpAddress) => boolean,
): Promise<readonly IpAddress[]> {
  const { device = new Set<IpAddress>(), sets } = await runner.read();
  const addressesIn = (id: SetId) =>
    new Set(
      [...sets.get(setName(id, family))?.entries ?? []]
        .flatMap((entry) => tryParseIpAddress(entry.slice(0, entry.indexOf(","))) ?? []),
    );
  const ofClusterIps = addressesIn("CLUSTER-IP");
  const external = new Set(EXTERNAL_SETS.flatMap((id) => [...addressesIn(id)]));
  const foreign = [...external].filter((address) =>
    device.has(address) && !ofClusterIps.has(address) && isForeign(address)
  );
  if (foreign.length === 0) return [];
  const lines = foreign.map((address) => addressLine("del", { address, device: IPVS_DEVICE }));
  await runner.run({ tool: "ip", lines });
  return foreign;
}
