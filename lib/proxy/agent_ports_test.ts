import { assertEquals } from "@std/assert";
import { testService } from "../../tests/support/builders/builders.ts";
import { PlannedState, type TestStateChanges } from "../../tests/support/builders/update_plan.ts";
import type { Service } from "../api/kinds/service.ts";
import { type IpAddress, parseIpAddress } from "../net/ip_address.ts";
import { parsePort } from "../net/port.ts";
import { type AgentPort, contestedItems } from "./frontend_owners.ts";
import type { NodePortAddresses } from "./node_state.ts";
import { servicePortsFromService } from "./service_port.ts";

const [NODE, SECOND] = [parseIpAddress("192.168.0.2"), parseIpAddress("192.168.0.3")];
const HEALTH: AgentPort = { port: parsePort(10256), server: "health server" };
const ALL: NodePortAddresses = { kind: "all" };

/** A plan on a node with these addresses, and what its changes withhold from each Service. */
class Stage {
  readonly #planned: PlannedState;

  constructor(agentPorts: readonly AgentPort[], nodePortAddresses = ALL) {
    const localTraffic = { kind: "none" } as const;
    this.#planned = new PlannedState({
      ...{ family: "IPv4", localTraffic, nodePortAddresses },
      ...{ masqueradeAll: false, agentPorts },
    });
  }

  /** Returns the ServicePorts whose plan changed. */
  change(changes: TestStateChanges): readonly string[] {
    return [...this.#planned.change(changes).upserted].sort();
  }

  addresses(...interfaceAddresses: readonly IpAddress[]): readonly string[] {
    return this.change({ interfaceAddresses });
  }

  services(...services: readonly Service[]): readonly string[] {
    const ports = services.flatMap((service) =>
      servicePortsFromService(service, { family: "IPv4" }).ports
    );
    return this.change({ ports });
  }

  /** The frontends that Services do not get, each with its owner. */
  get withheld(): readonly string[] {
    return [...this.#planned.plan.services.values()].flatMap(({ name, contested = [] }) =>
      contested.map(({ address = "*", port, owner, role }) =>
        `${name.name} ${role} ${address}:${port} ${
          typeof owner === "string" ? owner : Object.values(owner)[0]
        }`
      )
    ).sort();
  }

  get reasons(): readonly string[] {
    return [...this.#planned.plan.services.values()]
      .flatMap((plan) =>
        contestedItems(plan).map(({ address, reason }) => `${address}: ${reason}`)
      );
  }
}

/** A Service whose cluster IP follows from its name. */
function service(name: string, spec: Partial<Service["spec"]> = {}): Service {
  return testService(name, { clusterIP: `10.96.0.${name.charCodeAt(0)}`, ...spec });
}

function external(name: string, port: number, address: IpAddress = NODE): Service {
  return service(name, { externalIPs: [address], ports: [{ port }] });
}

Deno.test("a server of kube-relay on one address keeps its port there, and of node ports", () => {
  const address = SECOND;
  const nodePort = service("a", { type: "NodePort", ports: [{ port: 80, nodePort: 10256 }] });
  const stage = new Stage([{ ...HEALTH, address }]);
  stage.addresses(NODE, SECOND);
  stage.services(nodePort, external("b", 10256), external("c", 10256, SECOND));
  assertEquals(stage.withheld, [
    "a NodePort *:10256 health server",
    `c ExternalIP ${SECOND}:10256 health server`,
  ]);
  const elsewhere = new Stage([{ ...HEALTH, address }], { kind: "cidrs", cidrs: [] });
  elsewhere.addresses(NODE, SECOND);
  elsewhere.services(nodePort);
  assertEquals(elsewhere.withheld, []);
});

Deno.test("a Service does not get the health check node port of another one, while that has it", () => {
  const stage = new Stage([]);
  const checked = (healthCheckNodePort: number) =>
    service("a", {
      type: "LoadBalancer",
      externalTrafficPolicy: "Local",
      healthCheckNodePort,
    });
  stage.addresses(NODE);
  stage.services(
    external("b", 31000),
    service("c", { type: "NodePort", ports: [{ port: 80, nodePort: 31000 }] }),
    ...Array.from({ length: 9 }, (_, index) => service(`${index}`)),
  );
  const without = [`c NodePort ${NODE}:31000 ns1/b/TCP`];
  assertEquals(stage.withheld, without);
  assertEquals(stage.services(checked(31000)), ["ns1/a/TCP", "ns1/b/TCP", "ns1/c/TCP"]);
  assertEquals(stage.withheld, [
    `b ExternalIP ${NODE}:31000 health check of ns1/a`,
    "c NodePort *:31000 health check of ns1/a",
  ]);
  assertEquals(stage.services(checked(31001)), ["ns1/a/TCP", "ns1/b/TCP", "ns1/c/TCP"]);
  assertEquals(stage.withheld, without);
});

Deno.test("an address that the node gets or loses changes the plan of the Services on it alone", () => {
  const stage = new Stage([HEALTH]);
  stage.addresses(NODE);
  const many = Array.from({ length: 9 }, (_, index) => service(`${index}`));
  const third = parseIpAddress("192.168.0.4");
  const local = { type: "LoadBalancer", externalTrafficPolicy: "Local" };
  stage.services(
    external("a", 10256, SECOND),
    external("b", 81, SECOND),
    service("c", { clusterIP: third, ports: [{ port: 10256 }] }),
    service("d", { ...local, healthCheckNodePort: 31000 }),
    service("e", { clusterIP: third, ports: [{ port: 31000 }] }),
    ...many,
  );
  assertEquals(stage.withheld, []);
  const changed = ["ns1/a/TCP", "ns1/c/TCP", "ns1/e/TCP"];
  assertEquals(stage.addresses(NODE, SECOND, third), changed);
  assertEquals(stage.withheld, [
    `a ExternalIP ${SECOND}:10256 health server`,
    `c ClusterIP ${third}:10256 health server`,
    `e ClusterIP ${third}:31000 health check of ns1/d`,
  ]);
  assertEquals(stage.addresses(NODE), changed);
  assertEquals(stage.withheld, []);
});

Deno.test("a node port is not served at an address that the node gets, if a Service has it there", () => {
  const stage = new Stage([]);
  stage.addresses(NODE);
  const nodePort = service("a", { type: "NodePort", ports: [{ port: 80, nodePort: 31000 }] });
  stage.services(nodePort, external("b", 31000, SECOND));
  assertEquals(stage.withheld, []);
  assertEquals(stage.addresses(NODE, SECOND), ["ns1/a/TCP"]);
  assertEquals(stage.withheld, [`a NodePort ${SECOND}:31000 ns1/b/TCP`]);
});
