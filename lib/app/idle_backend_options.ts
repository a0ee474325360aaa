/**
 * What a backend is made with that is only to look or to clean up.
 *
 * @module
 */
import type { LoadedConfiguration } from "../config/load.ts";
import type { IpFamily } from "../net/ip_address.ts";
import type { BackendOptions } from "./dependencies.ts";

/** Options of a backend that serves nothing: nothing is known of the node, and nothing asked. */
export function idleBackendOptions(
  { relay, proxy }: Pick<LoadedConfiguration, "proxy" | "relay">,
  family: IpFamily,
): BackendOptions {
  return {
    family,
    relay,
    iptables: proxy.iptables,
    node: () => ({ nodePortAddresses: { kind: "all" } }),
    belongsTo: () => undefined,
  };
}
