import { type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import { type CaseAddresses, casePods } from "./policy_case.ts";

/** One address for each pod, from a range of documentation. */
export function caseAddresses(family: IpFamily): CaseAddresses {
  const [prefix, length] = family === "IPv4" ? ["192.0.2.", 32] : ["2001:db8::", 128];
  const table = new Map(
    casePods().map((pod, index) => [pod, parseIpAddress(`${prefix}${index + 1}`)]),
  );
  const addressOf = (pod: string) => table.get(pod)!;
  return {
    addressOf,
    blockOf: (pod) => `${addressOf(pod)}/${length}`,
    range: family === "IPv4" ? "192.0.2.0/24" : "2001:db8::/64",
  };
}
