import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { serviceKey, type ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { WriteRoom } from "./write_room.ts";

/** Frontends of new ports of one Service in one write: entries of sets, servers and addresses. */
const MOST_NEW_FRONTENDS = 1_024;

/** New ports of Services with very many frontends, which wait for one of the next writes. */
export class PostponedServices {
  readonly #plans = new Map<ServicePortKey, ServicePlan>();
  #room = newRoom();

  get size(): number {
    return this.#plans.size;
  }

  /** The ports that wait, in the order in which they came. */
  get plans(): readonly ServicePlan[] {
    return [...this.#plans.values()];
  }

  /** Another write begins. */
  begin(): void {
    this.#room = newRoom();
  }

  /** The port is gone. */
  delete(key: ServicePortKey): void {
    this.#plans.delete(key);
  }

  /** Whether a port is written now; otherwise it waits. A port that is served never waits. */
  admits(
    plan: ServicePlan,
    { isServed, shared }: {
      readonly isServed: boolean;
      readonly shared: Pick<SharedPlan, "nodePortAddresses">;
    },
  ): boolean {
    const { externalIps, key, loadBalancerVips, name, nodePort } = plan;
    const service = serviceKey(name);
    if (!isServed && !this.#room.hasRoomFor(service)) {
      this.#plans.set(key, plan);
      return false;
    }
    const nodePorts = nodePort === undefined ? 0 : shared.nodePortAddresses.length;
    this.#room.take(service, 1 + externalIps.length + loadBalancerVips.length + nodePorts);
    this.#plans.delete(key);
    return true;
  }
}

function newRoom(): WriteRoom {
  return new WriteRoom({ ofService: MOST_NEW_FRONTENDS, together: 0 });
}
