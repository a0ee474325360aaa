/** Plans without pauses. */
import * as plans from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePort } from "../../../lib/proxy/service_port.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type { Endpoint } from "../../../lib/proxy/endpoint.ts";
import { testNodeState } from "./builders.ts";

/** As `updatePlan()`, at once. */
export function updatePlan(
  plan: plans.MutableProxyPlan,
  state: plans.ProxyState,
  dirty: plans.DirtyState,
  options: plans.PlanOptions,
): plans.PlanChanges {
  const steps = plans.updatePlan(plan, state, dirty, options);
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/** What changes; the absent is as before. */
export interface TestStateChanges
  extends Partial<Pick<plans.ProxyState, "node" | "serviceCidrs" | "interfaceAddresses">> {
  readonly ports?: readonly ServicePort[];
  readonly removed?: readonly ServicePortKey[];
  readonly endpoints?: readonly (readonly [ServicePortKey, readonly Endpoint[]])[];
}

/** A state, and a plan that follows its changes at once. */
export class PlannedState {
  readonly state: plans.ProxyState & {
    readonly services: Map<ServicePortKey, ServicePort>;
    readonly endpoints: Map<ServicePortKey, readonly Endpoint[]>;
  };
  readonly plan: plans.MutableProxyPlan;
  readonly #options: plans.PlanOptions;
  #isPlanned = false;

  constructor(options: plans.PlanOptions) {
    const node = testNodeState();
    const none = { serviceCidrs: [], interfaceAddresses: [] };
    this.state = { services: new Map(), endpoints: new Map(), node, ...none };
    this.plan = plans.createProxyPlan(options);
    this.#options = options;
  }

  change(
    { ports = [], removed = [], endpoints = [], ...surroundings }: TestStateChanges = {},
  ): plans.PlanChanges {
    const { services, endpoints: lists, node } = this.state;
    for (const key of removed) services.delete(key);
    for (const port of ports) services.set(port.key, port);
    for (const [key, list] of endpoints) lists.set(key, list);
    Object.assign(this.state, surroundings);
    const everything = !this.#isPlanned || node.name !== this.state.node.name ||
      node.zone !== this.state.node.zone;
    this.#isPlanned = true;
    const shared = everything || Object.keys(surroundings).length > 0;
    const keys = new Set([
      ...removed,
      ...ports.map(({ key }) => key),
      ...endpoints.map(([key]) => key),
    ]);
    return updatePlan(this.plan, this.state, { keys, shared, everything }, this.#options);
  }
}
