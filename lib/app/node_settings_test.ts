import { assertEquals } from "@std/assert";
import { testNode } from "../../tests/support/builders.ts";
import { defaultConfiguration } from "../config/configuration_schema.ts";
import { nodeSettingsOf } from "./node_settings.ts";
import { planSettingsOf } from "./plan_settings.ts";

const SETTINGS = planSettingsOf(defaultConfiguration(), { nodeName: "node-a", mode: "iptables" });

Deno.test("nodeSettingsOf() has the node's own address of the family", () => {
  const node = testNode();
  const [four, six] = node.status!.addresses!.map(({ address }) => address);
  for (const [family, address] of [["IPv4", four], ["IPv6", six]] as const) {
    const { nodeIp, nodePortAddresses } = nodeSettingsOf(SETTINGS, { family, node });
    assertEquals([nodeIp as string, nodePortAddresses.kind], [address, "all"]);
  }
});

Deno.test("nodeSettingsOf() says 'primary' by the address, where node ports are for it alone", () => {
  const configuration = { ...defaultConfiguration(), nodePortAddresses: ["primary"] };
  const settings = planSettingsOf(configuration, { nodeName: "node-a", mode: "iptables" });
  const { nodePortAddresses } = nodeSettingsOf(settings, { family: "IPv4", node: testNode() });
  assertEquals(nodePortAddresses.kind !== "all", true);
});
