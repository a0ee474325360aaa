/**
 * What listening on every address means on this machine.
 *
 * Go's "tcp" listens on `[::]` for both families, also where `0.0.0.0` is asked for, and sets
 * IPV6_V6ONLY as it needs it. Deno cannot set it (neither Deno.listen nor `ipv6Only` of node:net
 * do), so the machine's `net.ipv6.bindv6only` decides what `[::]` takes.
 *
 * @module
 */
import type { Network } from "./network.ts";

/** Whether `[::]` takes both families, IPv6 alone, or cannot be had. */
export type Wildcard = "both" | "ipv6-only" | "none";

/**
 * Tries it out on a port that nobody has: `/proc/sys/net/ipv6/bindv6only` could be read only with
 * all permissions.
 */
export function probeWildcard(network: Pick<Network, "listenTcp">): Wildcard {
  let ipv6;
  try {
    ipv6 = network.listenTcp({ hostname: "::", port: 0 });
  } catch {
    return "none";
  }
  try {
    network.listenTcp({ hostname: "0.0.0.0", port: ipv6.addr.port }).close();
    return "ipv6-only";
  } catch {
    return "both";
  } finally {
    ipv6.close();
  }
}

/** The addresses to listen on so that both families are served, as far as the machine has them. */
export function wildcardHostnames(wildcard: Wildcard): readonly string[] {
  if (wildcard === "both") return ["::"];
  return wildcard === "none" ? ["0.0.0.0"] : ["::", "0.0.0.0"];
}
