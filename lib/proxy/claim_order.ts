/**
 * Decides which ServicePort owns an address and port that several claim. Every node must reach the
 * same result, in every mode and after every restart. Pure.
 *
 * @module
 */
import type { ServicePlan } from "./service_plan.ts";

type Claimant = Pick<ServicePlan, "createdAt" | "key">;

/**
 * The rank of a claim, as text that sorts: the first owns the address. A cluster IP precedes an
 * entry of `externalIPs`, which a user may write (CVE-2020-8554). Next the older Service precedes
 * the newer one, so that no Service takes over an address in use. Then the name decides.
 */
export function claimOrder(
  { createdAt = "", key }: Claimant,
  { isClusterIp }: { readonly isClusterIp: boolean },
): string {
  return `${isClusterIp ? 0 : 1} ${createdAt} ${key}`;
}
