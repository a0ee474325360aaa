/**
 * ServicePorts and endpoints of nftables mode with colliding hashes, so that one gets another
 * number.
 *
 * @module
 */
import { SlotAllocator } from "../../../backends/nftables/slots.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { testServicePlan } from "./service_plans.ts";

/** The first two texts to which something gives the same number. */
function firstTwo(
  textOf: (index: number) => string,
  numberOf: (text: string) => number,
): readonly [string, string] {
  const seen = new Map<number, string>();
  for (let index = 0;; index++) {
    const text = textOf(index);
    const other = seen.get(numberOf(text));
    if (other !== undefined) return [other, text];
    seen.set(numberOf(text), text);
  }
}

function slotOf(name: string, endpoint: string): number {
  const [slot] = new SlotAllocator().slotsOf(testServicePlan({ name, to: [endpoint] })).values();
  return slot!;
}

/** Two of IPv4 with session affinity, two endpoints each, whose numbers would be the same. */
export function collidingServices(): readonly [ServicePlan, ServicePlan] {
  const to = firstTwo(
    (index) => `10.1.${index >> 8}.${index & 255}:8080`,
    (endpoint) => slotOf("web", endpoint),
  );
  const names = firstTwo((index) => `web-${index}`, (name) => slotOf(name, to[0]));
  const [left, right] = names.map((name, index) =>
    testServicePlan({
      name,
      to,
      clusterIp: `172.30.0.${index + 1}`,
      nodePort: 30_001 + index,
      affinityTimeoutSeconds: 600,
    })
  );
  return [left!, right!];
}
