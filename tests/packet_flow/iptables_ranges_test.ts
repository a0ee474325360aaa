/**
 * Packets of random Services, once with a rule for each range of cluster IPs and once with a mark
 * rule for each Service.
 */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { renderIptables } from "../../backends/iptables/render.ts";
import { allowsRanges } from "../../backends/iptables/render_options.ts";
import { walkIptables } from "../support/walk/iptables_walk.ts";
import type { WalkedPacket } from "../support/walk/walked_packet.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { randomServicePlan } from "../support/builders/random_service_plan.ts";
import { testProxyPlan } from "../support/builders/service_plans.ts";
import { FakeIptables } from "../support/fakes/fake_iptables.ts";
import { planOptions } from "./iptables_executor.ts";
import { endpointText } from "./traced_verdict.ts";

const { client, localPodClient, localPods, node, podCidr } = ADDRESSES.IPv4;
/** The cluster IP of no random Service. */
const EXTERNAL_IN_RANGE = parseIpAddress("172.30.0.250");

/** Some have an external address in the range of cluster IPs. */
const service = fc.tuple(randomServicePlan, fc.constantFrom(true, ...Array(9).fill(false)))
  .map(([plan, isInRange]): ServicePlan => ({
    ...plan,
    externalIps: isInRange ? [...plan.externalIps, EXTERNAL_IN_RANGE] : plan.externalIps,
  }));

const SENDERS: readonly Pick<WalkedPacket, "inInterface" | "source">[] = [
  { source: client, inInterface: "eth0" },
  { source: localPodClient, inInterface: "cni0" },
  { source: localPods[0], inInterface: "cni0" },
  { source: node },
];

function packetsTo(plans: Iterable<ServicePlan>): WalkedPacket[] {
  return [...plans].flatMap((plan) => {
    const { clusterIp, endpoints, externalIps, loadBalancerVips, nodePort, port } = plan;
    const own = endpoints.slice(0, 1).map(({ address }) => ({ source: address }));
    const places = [clusterIp, ...externalIps, ...loadBalancerVips]
      .map((destination) => ({ destination, port }));
    if (nodePort !== undefined) places.push({ destination: node, port: parsePort(nodePort) });
    return places.flatMap((place) =>
      [...SENDERS, ...own].map((sender) => ({ ...sender, ...place, protocol: "TCP" as const }))
    );
  });
}

/** Every end of every packet. */
function endsOf(plan: ProxyPlan, masqueradesRanges: boolean): string[] {
  const tool = new FakeIptables();
  const { lines } = renderIptables(plan, planOptions(plan, { masqueradesRanges }));
  tool.restore(lines.join("\n"));
  const host = { isLocal: (address: string) => address === node, isListed: () => false };
  return packetsTo(plan.services.values()).flatMap((packet) =>
    walkIptables((table, chain) => tool.table(table).get(chain), packet, host).map((outcome) => {
      const { probability, verdict, masquerade, mark } = outcome;
      const { source, destination, port } = packet;
      return `${source} to ${destination}:${port}: ${verdict} ${endpointText(outcome)} ` +
        `${probability.toFixed(6)} masqueraded: ${masquerade}, mark ${mark}`;
    })
  );
}

Deno.test("a rule for each range of cluster IPs masquerades what a mark for each Service does", () => {
  let allowed = 0;
  fc.assert(
    fc.property(
      fc.array(service, { minLength: 1, maxLength: 12 }),
      fc.constantFrom("172.30.0.0/24", "172.30.0.0/25"),
      (made, range) => {
        const services = [...new Map(made.map((each) => [each.key, each])).values()];
        const serviceCidrs = [parseCidr(range)];
        const localTraffic = { kind: "byCidr", cidr: podCidr } as const;
        const plan = testProxyPlan(services, { shared: { serviceCidrs, localTraffic } });
        const isAllowed = allowsRanges(plan);
        if (isAllowed) allowed++;
        assertEquals(endsOf(plan, isAllowed), endsOf(plan, false));
      },
    ),
    { numRuns: 60 },
  );
  assert(allowed > 10, `only ${allowed} of 60 plans had rules for ranges`);
});
