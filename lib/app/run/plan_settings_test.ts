import { assertEquals } from "@std/assert";
import type { RoutingConfiguration } from "../../config/routing.ts";
import { agentPortsOf } from "./plan_settings.ts";

/** Returns the reserved ports of each IP family on the node, as text. */
function reserved(healthzBindAddress: string, metricsBindAddress: string, bgp = false) {
  const routing = { enabled: true, bgp: { enabled: bgp } } as RoutingConfiguration;
  const of = (family: "IPv4" | "IPv6") =>
    agentPortsOf({ healthzBindAddress, metricsBindAddress, routing }, family)
      .map(({ address = "*", port, server }) => `${address} ${port} ${server}`);
  return [of("IPv4"), of("IPv6")];
}

Deno.test("agentPortsOf() has what other machines can reach, for each IP family", () => {
  const [health, metrics] = ["* 10256 health server", "* 10249 metrics server"];
  assertEquals(reserved("0.0.0.0:10256", "127.0.0.1:10249"), [[health], [health]]);
  assertEquals(reserved("[::]:10256", "0.0.0.0"), [[health, metrics], [health, metrics]]);
  assertEquals(reserved("", "[::1]:10249"), [[], []]);
  assertEquals(reserved("", "", true), [["* 179 BGP daemon"], ["* 179 BGP daemon"]]);
  assertEquals(reserved("192.168.0.2:81", "[fd00::2]:82"), [
    ["192.168.0.2 81 health server"],
    ["fd00::2 82 metrics server"],
  ]);
});
