import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../net/ip_address.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import { pool } from "../../tests/support/builders/routed_objects.ts";
import type { AnnouncedService } from "./announced_service.ts";
import { Layer2Addresses } from "./layer2_addresses.ts";

const WEB = "default/web" as ServiceKey;
const API = "default/api" as ServiceKey;

function service(address: string, ...nodes: readonly string[]): AnnouncedService {
  const endpointNodes = nodes.length === 0 ? {} : { endpointNodes: new Set(nodes) };
  return {
    addresses: [
      { address: parseIpAddress(address), kind: "loadBalancerIps", ...endpointNodes },
      { address: parseIpAddress("10.96.0.1"), kind: "clusterIps" },
    ],
    switches: {},
  };
}

/** Records what the owners receive, as text. */
function stage() {
  const received: string[] = [];
  const addresses = new Layer2Addresses(
    {
      owners: {
        setAddress: (address, wanted) => {
          const nodes = wanted?.endpointNodes && [...wanted.endpointNodes].join(" ");
          received.push(`${address}: ${wanted ? nodes ?? "any" : "none"}`);
        },
      },
    },
    [
      pool("a", ["192.0.2.0/24"]),
      pool("b", ["198.51.100.0/24"], { announce: "bgp" }),
    ],
  );
  return { addresses, take: () => received.splice(0) };
}

Deno.test("Layer2Addresses follows load balancer addresses of pools with layer 2", () => {
  const { addresses, take } = stage();
  addresses.setService(WEB, service("192.0.2.1"));
  addresses.setService(API, service("198.51.100.1"));
  assertEquals(take(), ["192.0.2.1: any"]);
  addresses.setService(WEB, service("192.0.2.2", "a"));
  assertEquals(take(), ["192.0.2.1: none", "192.0.2.2: a"]);
  assertEquals(addresses.servicesAt(parseIpAddress("192.0.2.2")), [WEB]);
  addresses.setService(WEB, undefined);
  assertEquals(take(), ["192.0.2.2: none"]);
});

Deno.test("Layer2Addresses needs endpoints of all Services that share an address", () => {
  const { addresses, take } = stage();
  addresses.setService(WEB, service("192.0.2.1", "a", "b"));
  addresses.setService(API, service("192.0.2.1", "b", "c"));
  assertEquals(take(), ["192.0.2.1: a b", "192.0.2.1: b"]);
  addresses.setService(WEB, undefined);
  assertEquals(take(), ["192.0.2.1: b c"]);
});
