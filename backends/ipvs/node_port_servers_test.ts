import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { testServicePlan, testSharedPlan } from "../../tests/support/builders/service_plans.ts";
import { IpvsLayout } from "./layout.ts";
import { defaultIpvsOptions } from "./render_options.ts";
import { renderService } from "./render_service.ts";
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

Deno.test("IpvsLayout.nodePorts are the servers that it has on addresses of the node", () => {
  const wanted = layout();
  for (const service of SERVICES) wanted.set(service);
  const found = [...wanted.nodePorts.addresses].flatMap((address) =>
    [...wanted.nodePorts.ports].map((port) => `${port} ${address}`)
  );
  const there = SERVICES.flatMap((service) => renderService(service, wanted).frontends)
    .map(({ server: { key } }) => addressOfServer(key)!)
    .filter(({ address, protocol }) => address.startsWith("192.") && protocol !== "SCTP")
    .map(({ address, port, protocol }) => `${protocol.toLowerCase()} ${port} ${address}`);
  assertEquals(found.sort(), there.sort());
  assertEquals(found.length, 4);
});

Deno.test("IpvsLayout.nodePorts is nothing without node ports", () => {
  const wanted = layout();
  wanted.set(testServicePlan());
  assertEquals(wanted.nodePorts, NO_NODE_PORTS);
});

Deno.test("IpvsLayout.haveNodePortsChanged until it is settled, and not by other endpoints", () => {
  const wanted = layout();
  const service = SERVICES[0]!;
  assertEquals(wanted.haveNodePortsChanged, true, "nothing is applied yet");
  wanted.settle();
  wanted.set(testServicePlan());
  assertEquals(wanted.haveNodePortsChanged, false);
  wanted.set(service);
  assertEquals(wanted.haveNodePortsChanged, true);
  wanted.settle();
  wanted.set({ ...service });
  assertEquals(wanted.haveNodePortsChanged, false);
  wanted.delete(service.key);
  assertEquals(wanted.haveNodePortsChanged, true);
});
