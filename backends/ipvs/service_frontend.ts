import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Endpoint } from "../../lib/proxy/endpoint.ts";
import type { FrontendRole } from "../../lib/proxy/service_plan.ts";
import type { SetId } from "./ipset_table.ts";
import type { Port } from "../../lib/net/port.ts";
import type { ServerAddress, ServerKey } from "../netfilter/virtual_servers.ts";

/** An entry of a set. */
export type SetEntry = readonly [set: SetId, entry: string];

/** A frontend of a ServicePort, with its objects in the kernel. */
export interface ServiceFrontend extends ServerAddress {
  readonly role: FrontendRole;
  readonly port: Port;
  readonly server: ServerKey;
  /**
   * Scheduler, persistence and flags as arguments of `ipvsadm`. Without `-p` an edit ends persistence;
   * without `-b` it removes flags.
   */
  readonly setup: string;
  /** Its real servers. */
  readonly endpoints: readonly Endpoint[];
  readonly entries: readonly SetEntry[];
  /** The address that the device needs for it; `undefined` = it is an address of the node already. */
  readonly bound?: IpAddress;
  /** Rule of `KUBE-FROM-CLUSTER`, without the chain. */
  readonly rule?: string;
}

/** All objects that a ServicePort needs. */
export interface ServiceParts {
  /** Each has a different virtual server. */
  readonly frontends: readonly ServiceFrontend[];
  /** Entries that belong to no single address. */
  readonly entries: readonly SetEntry[];
}
