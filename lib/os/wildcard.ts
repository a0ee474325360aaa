import type { Network } from "./network.ts";

/** Whether `[::]` covers both families, only IPv6, or cannot be bound. */
export type Wildcard = "both" | "ipv6-only" | "none";

/**
 * Tests it with a free port: Deno opens `/proc/sys/net/ipv6/bindv6only` only with all permissions.
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

/**
 * Returns the addresses to listen on so that both families are served, as far as the machine has
 * them.
 */
export function wildcardHostnames(wildcard: Wildcard): readonly string[] {
  if (wildcard === "both") return ["::"];
  return wildcard === "none" ? ["0.0.0.0"] : ["::", "0.0.0.0"];
}
