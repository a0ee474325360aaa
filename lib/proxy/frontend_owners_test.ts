import { assertEquals } from "@std/assert";
import {
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { ownedAddresses, type ServicePlan } from "./service_plan.ts";
import { contestedItems, FrontendOwners } from "./frontend_owners.ts";
import type { ServicePortKey } from "./service_port_name.ts";

const [OLD, NEW] = ["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"];
const ADDRESS = "203.0.113.1";
const NODE = parseIpAddress("192.168.0.2");

/**
 * Returns the frontends that each Service lacks after each update, and the ServicePorts that each
 * update affects.
 */
function updates(...steps: readonly (readonly TestServicePlan[])[]) {
  const owners = new FrontendOwners();
  owners.setNodeAddresses({ interfaceAddresses: [NODE], nodePortAddresses: [NODE] });
  let plans = new Map<ServicePortKey, ServicePlan>();
  return steps.map((services) => {
    const claimants = new Map(
      services.map((options) => testServicePlan(options)).map((plan) => [plan.key, plan]),
    );
    for (const key of new Set([...plans.keys(), ...claimants.keys()])) {
      owners.update(key, claimants.get(key));
    }
    const affected = [...owners.decide()].sort();
    plans = new Map([...claimants].map(([key, plan]) => {
      const { nodePort: _, ...rest } = plan;
      return [key, {
        ...rest,
        ...ownedAddresses(plan, owners.contestedOf(plan)),
      }];
    }));
    const lost = [...plans.values()].flatMap(({ name, contested = [] }) =>
      contested.map(({ role, address = "*", port, owner, why }) =>
        `${name.name}: ${role} ${address}:${port} is of ${owner} by ${why}`
      )
    );
    return { affected, lost: lost.sort() };
  });
}

function lost(...steps: readonly (readonly TestServicePlan[])[]): readonly (readonly string[])[] {
  return updates(...steps).map((step) => step.lost);
}

Deno.test("FrontendOwners gives an address to the oldest Service, then to the first by name", () => {
  const at = (name: string, createdAt: string) => ({
    ...{ name, createdAt, clusterIp: `10.96.0.${name.charCodeAt(0)}` },
    loadBalancerVips: [ADDRESS],
  });
  const [a, b, c] = [at("a", NEW), at("b", NEW), at("c", OLD)];
  const isOf = (name: string, owner: string) =>
    `${name}: LoadBalancer ${ADDRESS}:80 is of ns/${owner}/TCP`;
  assertEquals(lost([b, a], [b, a, c], [a, b], [b], []), [
    [`${isOf("b", "a")} by name`],
    [`${isOf("a", "c")} by age`, `${isOf("b", "c")} by age`],
    [`${isOf("b", "a")} by name`],
    [],
    [],
  ]);
});

Deno.test("FrontendOwners gives a cluster IP to its Service, whichever comes first", () => {
  const owner = { name: "owner", clusterIp: ADDRESS, createdAt: NEW };
  const guest = { name: "guest", clusterIp: "10.96.0.9", externalIps: [ADDRESS], createdAt: OLD };
  const taken = [`guest: ExternalIP ${ADDRESS}:80 is of ns/owner/TCP by cluster IP`];
  assertEquals(
    lost([owner, guest], [guest], [guest, owner], [owner], [owner, guest]),
    [taken, [], taken, [], taken],
  );
  assertEquals(lost([owner, guest], [{ ...owner, clusterIp: "10.96.0.3" }, guest]), [taken, []]);
});

Deno.test("FrontendOwners gives a node port of two Services to one, and to none if an address has it", () => {
  const a = { name: "a", clusterIp: "10.96.0.1", nodePort: 30_080 };
  const b = { name: "b", clusterIp: "10.96.0.2", nodePort: 30_080 };
  const c = { name: "c", clusterIp: "10.96.0.3", externalIps: [NODE], port: 30_080 };
  const [whole, single] = ["*", NODE].map((address) => `NodePort ${address}:30080 is of`);
  assertEquals(lost([b, a], [b], [b, c], [b]), [
    [`b: ${whole} ns/a/TCP by name`],
    [],
    [`b: ${single} ns/c/TCP by address`],
    [],
  ]);
});

Deno.test("contestedItems() names the frontend and its owner", () => {
  const plan = testServicePlan({
    contested: [{
      role: "ExternalIP",
      address: parseIpAddress("2001:db8::1"),
      port: testServicePlan().port,
      owner: testServicePlan({ name: "b" }).key,
      why: "age",
    }],
  });
  const [item] = contestedItems(plan);
  assertEquals(item?.address, "[2001:db8::1]:80/TCP");
  const reason = "belongs to ns/b/TCP: the Service that was there first keeps it";
  assertEquals(item?.reason, `[2001:db8::1]:80/TCP ${reason}`);
});

Deno.test("contestedItems() names a node port on every address, because the rest of the ServicePort works", () => {
  const { port } = testServicePlan({ port: 30_080 });
  const plan = testServicePlan({
    contested: [{ role: "NodePort", port, owner: testServicePlan({ name: "b" }).key, why: "name" }],
  });
  assertEquals(contestedItems(plan).map(({ address }) => address), [":30080/TCP"]);
});
