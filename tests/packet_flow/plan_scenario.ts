/** From the objects of a packet-flow scenario to the plan that a backend is given. */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { type BackendMode, nodePortEntries } from "../../lib/proxy/backend.ts";
import { EndpointTracker } from "../../lib/proxy/endpoint_tracker.ts";
import { nodePortAddressesFor } from "../../lib/proxy/node_state.ts";
import {
  createProxyPlan,
  type PlanOptions,
  type ProxyPlan,
  type ProxyState,
} from "../../lib/proxy/proxy_plan.ts";
import { ServiceTracker } from "../../lib/proxy/service_tracker.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { testNodeState } from "../support/builders/builders.ts";
import type { PacketFlowScenario } from "./packet_flow_case.ts";
import { updatePlan } from "../support/builders/update_plan.ts";

/** The plan for a state. Every sequence of updates has to produce the same plan. */
function planProxy(state: ProxyState, options: PlanOptions): ProxyPlan {
  const plan = createProxyPlan(options);
  updatePlan(plan, state, { keys: new Set(), shared: true, everything: true }, options);
  return plan;
}

/**
 * The plan of one IP family, on the node of the address plan. A mode may take another default for the
 * addresses of node ports. @default mode: one that has none of its own
 */
export function planScenario(
  scenario: PacketFlowScenario,
  family: IpFamily,
  { mode = "iptables" }: { readonly mode?: BackendMode } = {},
): ProxyPlan {
  const { settings = {} } = scenario;
  const entries = nodePortEntries(settings.nodePortAddresses ?? [], mode);
  const node = testNodeState();
  const services = new ServiceTracker({
    family,
    allowExternalIps: settings.allowExternalIps ?? true,
  });
  const endpoints = new EndpointTracker(family, node.name, 0);
  for (const service of scenario.services) services.update(undefined, service);
  for (const slice of scenario.slices ?? []) endpoints.updateSlice(undefined, slice);
  for (const object of scenario.endpoints ?? []) endpoints.updateEndpoints(undefined, object);
  const addresses = ADDRESSES[family];
  services.drain();
  endpoints.drain();
  return planProxy({
    services: services.ports,
    endpoints: endpoints.endpoints,
    node,
    serviceCidrs: [addresses.serviceCidr],
    interfaceAddresses: [addresses.loopback, addresses.node, addresses.nodeSecond],
  }, {
    family,
    localTraffic: settings.localTraffic ?? { kind: "byCidr", cidr: addresses.podCidr },
    nodePortAddresses: nodePortAddressesFor(family, entries, node),
    masqueradeAll: settings.masqueradeAll ?? false,
  });
}
