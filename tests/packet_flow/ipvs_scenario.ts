/**
 * The settings of the ipvs mode for a scenario, on the node of the address plan.
 *
 * @module
 */
import { defaultIpvsOptions, type IpvsRenderOptions } from "../../backends/ipvs/render_options.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { ADDRESSES } from "../support/address_plan.ts";

/** What is rendered with. */
export function ipvsScenarioOptions(family: IpFamily): IpvsRenderOptions {
  const { node, nodeSecond } = ADDRESSES[family];
  return {
    ...defaultIpvsOptions(family),
    nodeIp: node,
    nodeAddresses: new Set([node, nodeSecond]),
  };
}
