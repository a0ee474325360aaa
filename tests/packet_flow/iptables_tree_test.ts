/** Packets through trees of chains that are several levels deep. */
import { assert, assertEquals } from "@std/assert";
import { renderIptables } from "../../backends/iptables/render.ts";
import { walkIptables } from "../support/walk/iptables_walk.ts";
import type { WalkedPacket } from "../support/walk/walked_packet.ts";
import { IP_FAMILIES, type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import { formatHostPort, parsePort } from "../../lib/net/port.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { defaultRenderOptions } from "../support/builders/iptables_render_options.ts";
import { testProxyPlan, testServicePlan } from "../support/builders/service_plans.ts";
import { FakeIptables } from "../support/fakes/fake_iptables.ts";

const COUNT = 600;

/** Spread over 16 bits, each number to another one. */
function spread(number: number): number {
  return Math.imul(number, 40_503) & 0xffff;
}

function serviceAddress(number: number, family: IpFamily): string {
  const low = spread(number);
  return family === "IPv4"
    ? `172.30.${low >> 8}.${low & 255}`
    : parseIpAddress(`fd00:172:30::${low.toString(16)}`);
}

function endpoint(number: number, family: IpFamily): string {
  const address = family === "IPv4"
    ? `10.1.${number >> 8}.${number & 255}`
    : parseIpAddress(`fd00:10::${number.toString(16)}`);
  return formatHostPort(address, 8080);
}

/** Every fifth has no endpoint; all have a node port. */
function service(number: number, family: IpFamily): ServicePlan {
  return testServicePlan({
    name: `service-${number}`,
    clusterIp: serviceAddress(number, family),
    nodePort: 20_000 + 17 * number,
    to: number % 5 === 0 ? [] : [endpoint(number, family)],
  });
}

for (const family of IP_FAMILIES) {
  Deno.test(`${COUNT} Services of ${family}: each packet finds its own, by a short way`, () => {
    const numbers = Array.from({ length: COUNT }, (_, index) => index + 1);
    const plan = testProxyPlan(numbers.map((number) => service(number, family)), { family });
    const tool = new FakeIptables();
    const { lines } = renderIptables(plan, defaultRenderOptions(family));
    tool.restore(lines.join("\n"));
    const { client, localPodClient, node } = ADDRESSES[family];
    const host = { isLocal: (address: string) => address === node, isListed: () => false };
    const trace = (packet: Pick<WalkedPacket, "destination" | "port">) => {
      const whole = { ...packet, source: client, protocol: "TCP", inInterface: "eth0" } as const;
      const [outcome, ...others] = walkIptables(
        (table, chain) => tool.table(table).get(chain),
        whole,
        host,
      );
      assertEquals(others, []);
      assert(
        outcome && outcome.path.length <= 16,
        outcome?.path.map(({ text }) => text).join("\n"),
      );
      return outcome.endpoint
        ? formatHostPort(outcome.endpoint.address, outcome.endpoint.port)
        : outcome.verdict;
    };
    for (const number of numbers) {
      const { clusterIp, port, nodePort = parsePort(1) } = service(number, family);
      const expected = number % 5 === 0 ? "REJECT" : endpoint(number, family);
      assertEquals(trace({ destination: clusterIp, port }), expected);
      assertEquals(trace({ destination: node, port: nodePort }), expected);
      assertEquals(trace({ destination: clusterIp, port: 81 }), "ACCEPT");
      assertEquals(trace({ destination: node, port: nodePort + 1 }), "ACCEPT");
    }
    assertEquals(trace({ destination: localPodClient, port: 80 }), "ACCEPT");
    const chains = lines.filter((line) => line.startsWith(":"));
    assert(chains.length > 50, "there is a tree at all");
  });
}
