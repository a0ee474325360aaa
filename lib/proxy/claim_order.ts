/**
 * Who gets an address and port that several ServicePorts claim. Every node has to come to the same
 * answer, in every mode and after every restart. Pure.
 *
 * @module
 */
import type { ServicePlan } from "./service_plan.ts";

/** What decides. */
type Claimant = Pick<ServicePlan, "createdAt" | "key">;

/**
 * The rank of a claim, as text that sorts: the first has the address. A cluster IP goes before what a
 * user may write into `externalIPs` (CVE-2020-8554), then the older Service before the newer, so that
 * nobody takes over what another one serves, then the name decides.
 */
export function claimOrder(
  { createdAt = "", key }: Claimant,
  { isClusterIp }: { readonly isClusterIp: boolean },
): string {
  return `${isClusterIp ? 0 : 1} ${createdAt} ${key}`;
}
