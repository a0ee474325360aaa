/**
 * What a backend that writes rules needs to know of the node beside the plan.
 *
 * @module
 */
import type { Node } from "../api/objects.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../net/ip_address.ts";
import type { NodePortAddresses } from "../proxy/node_port_addresses.ts";
import type { PlanSettings } from "./plan_settings.ts";

/** What is known of the node in one family. */
export interface NodeSettings {
  readonly nodePortAddresses: NodePortAddresses;
  /** Absent while the Node has not been seen, or has no address of the family. */
  readonly nodeIp?: IpAddress;
}

/** Reads it from the settings and the own Node; `undefined` = its object has not been seen. */
export function nodeSettingsOf(
  settings: PlanSettings,
  { family, node }: { readonly family: IpFamily; readonly node?: Node | undefined },
): NodeSettings {
  const state = settings.nodeState(node);
  const { nodePortAddresses } = settings.planOptions(family, state);
  const nodeIp = state.addresses.find((address) => ipFamilyOf(address) === family);
  return { nodePortAddresses, ...(nodeIp !== undefined && { nodeIp }) };
}
