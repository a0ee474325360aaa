import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { testServicePlan, testSharedPlan } from "../../tests/support/builders/service_plans.ts";
import { IpvsLayout } from "./layout.ts";
import { haveNodePortsChanged, nodePortServers } from "./node_port_servers.ts";
import { defaultIpvsOptions } from "./render_options.ts";
import { NO_NODE_PORTS } from "./server_record.ts";
import { addressOfServer } from "./virtual_server.ts";

const ADDRESSES = ["192.0.2.1", "192.0.2.2", "127.0.0.1", "fe80::1", "::1"];

function layout(): IpvsLayout {
  const nodePortAddresses = ADDRESSES.map(parseIpAddress);
  return new IpvsLayout(testSharedPlan({ nodePortAddresses }), defaultIpvsOptions("IPv4"));
}

const SERVICES = (["TCP", "UDP", "SCTP"] as const).map((protocol, number) =>
  testServicePlan({
    name: protocol.toLowerCase(),
    protocol,
    clusterIp: `172.30.0.${number}`,
    nodePort: 30_080 + number,
    to: ["10.1.0.1:8080"],
  })
);

Deno.test("nodePortServers() are the servers that a layout has on addresses of the node", () => {
  const wanted = layout();
  for (const service of SERVICES) wanted.set(service);
  assertEquals(nodePortServers(wanted), NO_NODE_PORTS, "nothing is applied yet");
  wanted.settle();
  const noted = nodePortServers(wanted);
  const found = [...noted.addresses].flatMap((address) =>
    [...noted.ports].map((port) => `${port} ${address}`)
  );
  const there = [...wanted.servers].map((key) => addressOfServer(key)!)
    .filter(({ address, protocol }) => address.startsWith("192.") && protocol !== "SCTP")
    .map(({ address, port, protocol }) => `${protocol.toLowerCase()} ${port} ${address}`);
  assertEquals(found.sort(), there.sort());
  assertEquals(found.length, 4);
});

Deno.test("nodePortServers() is nothing without node ports", () => {
  const wanted = layout();
  wanted.set(testServicePlan());
  wanted.settle();
  assertEquals(nodePortServers(wanted), NO_NODE_PORTS);
});

Deno.test("haveNodePortsChanged() until the layout is settled", () => {
  const wanted = layout();
  const [service] = SERVICES;
  wanted.set(testServicePlan());
  assertEquals(haveNodePortsChanged(wanted), false);
  wanted.set(service!);
  assertEquals(haveNodePortsChanged(wanted), true);
  wanted.settle();
  assertEquals(haveNodePortsChanged(wanted), false);
  wanted.delete(service!.key);
  assertEquals(haveNodePortsChanged(wanted), true);
});
