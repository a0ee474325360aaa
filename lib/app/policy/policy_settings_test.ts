import { assertEquals } from "@std/assert";
import { defaultConfiguration } from "../../config/configuration.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { policySettings } from "./policy_settings.ts";

Deno.test("policySettings() names interfaces with an address in a pod range of the Node, each once", () => {
  const { networkPolicy } = defaultConfiguration();
  const addresses = [
    ["cni0", "10.42.0.1"],
    ["cni0", "fd00:42::1"],
    ["docker0", "172.17.0.1"],
    ["eth0", "192.168.1.2"],
    ['br"0', "10.42.0.2"],
    ["br*", "10.42.0.3"],
  ].map(([interfaceName, address]) => ({
    interfaceName: interfaceName!,
    address: parseIpAddress(address!),
  }));
  const linksOf = (podCIDRs: string[]) => {
    const node = { metadata: { name: "n1" }, spec: { podCIDRs }, status: {} };
    return policySettings(networkPolicy, { family: "IPv4", node, addresses }).podLinks;
  };
  assertEquals(linksOf(["10.42.0.0/24", "fd00:42::/64"]), ["cni0"]);
  assertEquals(linksOf(["10.43.0.0/24"]), []);
  assertEquals(linksOf([]), []);
});
