import { assertEquals } from "@std/assert";
import { defaultConfiguration } from "./configuration_schema.ts";
import { effectiveConfiguration } from "./effective_configuration.ts";

Deno.test("effectiveConfiguration() fills in the mode, and node ports on one address in mode nftables", () => {
  const configuration = defaultConfiguration();
  const of = (mode: "iptables" | "nftables", nodePortAddresses: readonly string[] = []) => {
    const effective = effectiveConfiguration({ ...configuration, nodePortAddresses }, mode);
    return [effective.mode, effective.nodePortAddresses];
  };
  assertEquals(of("iptables"), ["iptables", []]);
  assertEquals(of("nftables"), ["nftables", ["primary"]]);
  assertEquals(of("nftables", ["10.0.0.0/8"]), ["nftables", ["10.0.0.0/8"]]);
});
