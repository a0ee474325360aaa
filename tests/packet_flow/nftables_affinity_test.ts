/**
 * Session affinity through the text of nftables mode: one memory for all frontends of a ServicePort.
 */
import { assertEquals } from "@std/assert";
import { type NftOutcome, walkNft } from "../support/walk/nft_walk.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { formatHostPort, parsePort, PROTOCOLS } from "../../lib/net/port.ts";
import { ADDRESSES, OTHER_NODE, THIS_NODE } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import type { FakeNftTable } from "../support/fakes/fake_nft.ts";
import { nftScenarioTable } from "./nft_executor.ts";
import type { PacketFlowCase } from "./packet_flow_case.ts";
import { endpointText, tracedPacket } from "./traced_verdict.ts";

/** The node port of one port of the Service, and another port. */
const NODE_PORT = 30_080;

/** A frontend: an address and a port. */
type Frontend = Pick<PacketFlowCase, "port" | "to">;

/** A Service with two ports, and a client outside of the cluster. */
class AffinityTable {
  readonly #table: FakeNftTable;
  readonly #packet: Pick<PacketFlowCase, "family" | "protocol">;

  constructor(
    packet: Pick<PacketFlowCase, "family" | "protocol">,
    externalTrafficPolicy: "Cluster" | "Local",
  ) {
    const { family, protocol } = packet;
    const { clusterIp, externalIp, loadBalancerIp, localPods, remotePods } = ADDRESSES[family];
    this.#packet = packet;
    this.#table = nftScenarioTable({
      name: "affinity",
      services: [
        testService("web", {
          type: "LoadBalancer",
          clusterIP: clusterIp,
          externalIPs: [externalIp],
          externalTrafficPolicy,
          sessionAffinity: "ClientIP",
          ports: [
            { name: "web", protocol, port: 80, nodePort: NODE_PORT },
            { name: "other", protocol, port: NODE_PORT },
          ],
        }, { ingress: [{ ip: loadBalancerIp }] }),
      ],
      slices: [
        testEndpointSlice("web", {
          addressType: family,
          endpoints: [
            { addresses: [localPods[0]], nodeName: THIS_NODE },
            { addresses: [remotePods[0]], nodeName: OTHER_NODE },
          ],
          ports: ["web", "other"].map((name) => ({ name, protocol, port: 8080 })),
        }),
      ],
    }, family);
  }

  /** Every possible end of a packet's path. */
  send(
    { to, port }: Frontend,
    affinity: NftOutcome["affinity"] = new Map(),
  ): readonly NftOutcome[] {
    const { family } = this.#packet;
    const { loopback, node, nodeSecond } = ADDRESSES[family];
    const name = "";
    const scenario = { name, services: [] };
    const expected = { verdict: [], masquerade: false, sticky: true };
    const packet = { ...this.#packet, ...expected, name, scenario, from: "client" as const };
    return walkNft(this.#table, tracedPacket({ ...packet, to, port }), {
      isLocal: (address) => [loopback, node, nodeSecond].includes(address),
      affinity,
    });
  }
}

function frontendsOf(family: IpFamily): Readonly<Record<string, Frontend>> {
  const { clusterIp, externalIp, loadBalancerIp, node, nodeSecond } = ADDRESSES[family];
  return {
    "cluster IP": { to: clusterIp, port: 80 },
    "external IP": { to: externalIp, port: 80 },
    "load balancer address": { to: loadBalancerIp, port: 80 },
    "node port": { to: node, port: NODE_PORT },
    "node port of another address": { to: nodeSecond, port: NODE_PORT },
  };
}

function endpointsOf(outcomes: readonly NftOutcome[]): readonly string[] {
  return outcomes.map(endpointText).sort();
}

for (const family of ["IPv4", "IPv6"] as const) {
  const frontends = frontendsOf(family);
  const { clusterIp, localPods, remotePods } = ADDRESSES[family];
  const here = formatHostPort(localPods[0], parsePort(8080));
  const there = formatHostPort(remotePods[0], parsePort(8080));
  for (const protocol of PROTOCOLS) {
    Deno.test(`nftables keeps the endpoint of a client at every frontend, ${family} ${protocol}`, () => {
      const table = new AffinityTable({ family, protocol }, "Cluster");
      for (const [first, from] of Object.entries(frontends)) {
        const outcomes = table.send(from);
        assertEquals(endpointsOf(outcomes), [here, there], first);
        for (const outcome of outcomes) {
          assertEquals(outcome.affinity.size, 1);
          for (const [second, to] of Object.entries(frontends)) {
            const again = table.send(to, outcome.affinity);
            assertEquals(endpointsOf(again), [endpointText(outcome)], `${first}, then ${second}`);
            assertEquals(again[0]?.affinity, outcome.affinity);
          }
          const other = table.send({ to: clusterIp, port: NODE_PORT }, outcome.affinity);
          assertEquals(endpointsOf(other), [here, there], "another port is another ServicePort");
          assertEquals(other.map(({ affinity }) => affinity.size), [2, 2]);
        }
      }
    });

    Deno.test(`nftables uses a remembered endpoint if the policy allows it, ${family} ${protocol}`, () => {
      const table = new AffinityTable({ family, protocol }, "Local");
      const outcomes = table.send(frontends["cluster IP"]!);
      assertEquals(endpointsOf(outcomes), [here, there]);
      for (const [name, frontend] of Object.entries(frontends)) {
        for (const { affinity } of outcomes) {
          if (name === "cluster IP") continue;
          const moved = table.send(frontend, affinity);
          assertEquals([endpointsOf(moved), moved[0]?.affinity.size], [[here], 1], name);
          const back = table.send(frontends["cluster IP"]!, moved[0]?.affinity);
          assertEquals(endpointsOf(back), [here], `${name}, then cluster IP`);
        }
      }
    });
  }
}
