import type { Service } from "../../api/kinds/service.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import { printableText } from "../../log/printable_text.ts";

/** What names are looked up in. */
export interface PacketScope {
  readonly plans: ReadonlyMap<IpFamily, ProxyPlan>;
  /** Of both families; the first of each stands for the node. */
  readonly nodeAddresses: readonly IpAddress[];
  /** Every Service, those that nothing is planned for included. Asked only where something is unknown. */
  readonly services: () => Iterable<Service>;
}

/** What was named is not there, or says too little. */
export class PacketEndsError extends Error {
  override name = "PacketEndsError";

  /** Names of objects may be part of the message. */
  constructor(message: string) {
    super(printableText(message));
  }
}
