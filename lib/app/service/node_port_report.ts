import type { Logger } from "../../log/logger.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { StatusSource } from "../../engine/controller.ts";
import { countText } from "../../log/count_text.ts";

/** The remedy if no address of the node serves node ports. */
export const NODE_PORT_CURE =
  "name the addresses with --nodeport-addresses, or the node's own one with --bind-address";

/** Reports node ports that no address of the node serves. */
export class NodePortReport {
  readonly #logger: Logger;
  readonly #withNodePort = new Map<IpFamily, Set<ServicePortKey>>();
  readonly #problems = new Map<IpFamily, string>();

  constructor({ logger }: { readonly logger: Logger }) {
    this.#logger = logger;
  }

  synced(family: IpFamily, plan: ProxyPlan, { removed, upserted }: PlanChanges): void {
    const keys = this.#withNodePort.getOrInsertComputed(family, () => new Set());
    for (const key of removed.keys()) keys.delete(key);
    for (const key of upserted) {
      if (plan.services.get(key)?.nodePort === undefined) keys.delete(key);
      else keys.add(key);
    }
    const problem = keys.size === 0 ? undefined : problemOf(plan);
    if (problem === this.#problems.get(family)) return;
    if (problem === undefined) {
      this.#problems.delete(family);
      this.#logger.info("Node ports are served again", { ipFamily: family });
      return;
    }
    this.#problems.set(family, problem);
    this.#logger.warn("No address of this node serves node ports", {
      ...{ ipFamily: family, reason: problem, cure: NODE_PORT_CURE },
    });
  }

  /** A line of `status`, which `doctor` reports too, if there is a problem. */
  status(): readonly StatusSource[] {
    if (this.#problems.size === 0) return [];
    const problems = [...this.#problems].map(([family, reason]) => {
      const count = countText(this.#withNodePort.get(family)?.size ?? 0, "node port");
      return `${count} of ${family} on no address: ${reason}; ${NODE_PORT_CURE}`;
    });
    return [{ name: "Node ports", state: "served on no address", problems }];
  }
}

function problemOf({ shared: { nodePortAddresses, nodePortRanges } }: ProxyPlan) {
  if (nodePortAddresses.length > 0 || nodePortRanges.kind === "all") return undefined;
  const ranges = nodePortRanges.cidrs.join(", ");
  return ranges === ""
    ? "the primary address of the node is not known: it has no default route, and no Node names one"
    : `the node has no address in ${ranges}`;
}
