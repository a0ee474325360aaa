/** The section of a dump for the controller of addresses and routes. */
import * as v from "valibot";
import { cidr, fields, flag, ipAddress, list, number, optional, plainText } from "./dump_value.ts";

/** The section; paths of files are not in it. */
export const DUMPED_ROUTING = fields({
  loadBalancerClass: plainText,
  defaultLoadBalancerClass: flag,
  leaseDurationSeconds: number,
  pools: list(fields({
    name: plainText,
    ranges: list(plainText),
    autoAssign: flag,
    announce: v.picklist(["layer2", "bgp", "none"], "has to be layer2, bgp or none"),
  })),
  bgp: optional(fields({
    mesh: flag,
    peers: list(fields({ name: plainText, address: ipAddress, as: number })),
    externalIpRanges: list(cidr),
  })),
});
