import { assertEquals } from "@std/assert";
import { testService } from "../../tests/support/builders/builders.ts";
import { PlannedState, type TestStateChanges } from "../../tests/support/builders/update_plan.ts";
import type { Service } from "../api/kinds/service.ts";
import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { parsePort } from "../net/port.ts";
import { type AddressSettings, contestedItems, type KnownHost } from "./frontend_owners.ts";
import { servicePortsFromService } from "./service_port.ts";

const [MACHINE, OTHER, FREE] = [
  parseIpAddress("198.51.100.1"),
  parseIpAddress("198.51.100.2"),
  parseIpAddress("198.51.100.3"),
];
const BINDS: AddressSettings = { bindsAddresses: true };
const API: KnownHost = { owner: "the API server", ports: [parsePort(6443)] };

/** A plan with these settings, and the addresses that its Services have. */
class Stage {
  readonly #planned: PlannedState;

  constructor(addresses: AddressSettings) {
    this.#planned = new PlannedState({
      ...{ family: "IPv4", localTraffic: { kind: "none" }, nodePortAddresses: { kind: "all" } },
      ...{ masqueradeAll: false, addresses },
    });
  }

  get plan() {
    return this.#planned.plan;
  }

  /** Returns the ServicePorts whose plan changed. */
  change(changes: TestStateChanges = {}): readonly string[] {
    return [...this.#planned.change(changes).upserted];
  }

  services(...services: readonly Service[]): void {
    const ports = services.flatMap((service) =>
      servicePortsFromService(service, { family: "IPv4" }).ports
    );
    this.change({ ports });
  }

  /** External addresses with their ports. */
  get served(): readonly string[] {
    return [...this.plan.services.values()].flatMap(({ externalIps, loadBalancerVips, port }) => [
      ...externalIps.map((address) => `external ${address}:${port}`),
      ...loadBalancerVips.map((address) => `balancer ${address}:${port}`),
    ]);
  }
}

function tenant(externalIPs: readonly string[], port = 80, name = "a"): Service {
  return testService(name, { externalIPs: [...externalIPs], ports: [{ name: "", port }] });
}

Deno.test("the plan withholds addresses of machines that become local, and plans only Services that ask", () => {
  const stage = new Stage(BINDS);
  stage.services(tenant([MACHINE]), tenant([OTHER], 81, "b"));
  assertEquals(stage.plan.owners.setHost(parseIpAddress("198.51.100.9"), API), false);
  assertEquals(stage.plan.owners.setHost(MACHINE, API), true);
  assertEquals(stage.change(), ["ns1/a/TCP"]);
  assertEquals(stage.served, [`external ${OTHER}:81`]);
  // It is an address of this node now, so that it is local anyway.
  assertEquals(stage.change({ interfaceAddresses: [MACHINE] }).includes("ns1/a/TCP"), true);
  assertEquals(stage.served, [`external ${MACHINE}:80`, `external ${OTHER}:81`]);
  stage.change({ interfaceAddresses: [] });
  assertEquals(stage.served, [`external ${OTHER}:81`]);
  stage.plan.owners.setHost(MACHINE, undefined);
  assertEquals(stage.change(), ["ns1/a/TCP"]);
  assertEquals(stage.served.length, 2);
});

Deno.test("load balancer addresses of other Nodes are withheld without a report, and external IPs with one", () => {
  const stage = new Stage(BINDS);
  const node: KnownHost = { owner: "node b", isNode: true };
  stage.plan.owners.setHost(MACHINE, node);
  // A Node of k3s may be the API server, too.
  stage.plan.owners.setHost(OTHER, { ...API, isNode: true });
  const service = testService("a", { type: "LoadBalancer" });
  const ingress = [MACHINE, OTHER, FREE].map((ip) => ({ ip, ipMode: "VIP" as const }));
  stage.services({ ...service, status: { loadBalancer: { ingress } } }, tenant([MACHINE], 81, "b"));
  assertEquals(stage.served, [`balancer ${FREE}:80`]);
  const reported = [...stage.plan.services.values()].flatMap(contestedItems);
  assertEquals(reported.map(({ address }) => address), [`${MACHINE}:81/TCP`]);
});

Deno.test("the plan withholds the port of the API server in every mode, except from its own Service", () => {
  const stage = new Stage({});
  stage.plan.owners.setHost(MACHINE, API);
  stage.services(tenant([MACHINE], 6443), tenant([MACHINE], 80, "b"));
  assertEquals(stage.served, [`external ${MACHINE}:80`]);
  stage.services(tenant([MACHINE], 6443, "default/kubernetes"));
  assertEquals(stage.served, [`external ${MACHINE}:80`, `external ${MACHINE}:6443`]);
});

Deno.test("the plan withholds external IPs outside of the ranges, and no load balancer address", () => {
  const stage = new Stage({ externalIpRanges: [parseCidr("198.51.100.2/31")] });
  const service = tenant([MACHINE, OTHER]);
  const status = { loadBalancer: { ingress: [{ ip: MACHINE, ipMode: "VIP" as const }] } };
  const balanced = { ...service, spec: { ...service.spec, type: "LoadBalancer" }, status };
  // A Service that may not have the address keeps it from no other one.
  for (const others of [[], [tenant([MACHINE], 80, "0")]]) {
    stage.services(balanced, ...others);
    assertEquals(stage.served, [`external ${OTHER}:80`, `balancer ${MACHINE}:80`]);
  }
});
