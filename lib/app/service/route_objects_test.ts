import { ENDPOINT_SLICE, type EndpointSlice } from "../../api/kinds/endpoint_slice.ts";
import { ENDPOINTS, type Endpoints } from "../../api/kinds/endpoints.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
import { SERVICE, type Service } from "../../api/kinds/service.ts";
import { SERVICE_CIDR, type ServiceCidr } from "../../api/kinds/service_cidr.ts";
import type { Informer } from "../../kube/informer.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import { assertEquals } from "@std/assert";
import {
  testEndpointSlice,
  testNode,
  testService,
} from "../../../tests/support/builders/builders.ts";
import { parseCidr } from "../../net/cidr.ts";
import type { FamilyProxy } from "./family_proxy.ts";
import { routeObjects } from "./route_objects.ts";

interface Rig {
  readonly informers: {
    readonly services: Informer<Service>;
    readonly endpointSlices: Informer<EndpointSlice>;
    readonly endpoints: Informer<Endpoints>;
    readonly nodes: Informer<Node>;
    readonly serviceCidrs: Informer<ServiceCidr>;
  };
  /** The calls that the family received, in order. */
  readonly calls: string[];
}

function createRig(serviceCidrs: readonly string[] = [], { servesEarly = false } = {}): Rig {
  const calls: string[] = [];
  const family: Partial<FamilyProxy> = {
    family: "IPv4",
    openEarly: () => void calls.push("open early"),
    onService: (previous, current) => void calls.push(`service ${!!previous} ${!!current}`),
    onEndpointSlice: ({ metadata }, verb) =>
      void calls.push(`slice ${metadata.labels!["kubernetes.io/service-name"]} ${verb}`),
    onEndpoints: (_, verb) => void calls.push(`endpoints ${verb}`),
    onServiceCidrs: (cidrs) => void calls.push(`cidrs ${cidrs.join(" ")}`),
  };
  const informers = new InformerSet();
  routeObjects({
    informers,
    nodeName: "node-a",
    endpointsFallback: false,
    families: [family as FamilyProxy],
    serviceCidrs: serviceCidrs.map(parseCidr),
    onNode: ({ metadata }) => void calls.push(`node ${metadata.name}`),
    onNodeDeleted: () => void calls.push("node deleted"),
    servesEarly,
  });
  const found = {
    services: informers.of(SERVICE),
    endpointSlices: informers.of(ENDPOINT_SLICE),
    endpoints: informers.of(ENDPOINTS),
    nodes: informers.of(NODE),
    serviceCidrs: informers.of(SERVICE_CIDR),
  };
  return { informers: found, calls };
}

Deno.test("routeObjects() opens the families early if objects are served as they come", () => {
  const { informers, calls } = createRig([], { servesEarly: true });
  informers.services.upsert(testService("web"));
  assertEquals(calls, ["service false true", "open early"]);
  const { calls: later, informers: others } = createRig();
  others.services.upsert(testService("web"));
  assertEquals(later, ["service false true"]);
});

Deno.test("routeObjects() passes each change on, and the Node", () => {
  const { informers, calls } = createRig();
  const { services, endpointSlices, nodes } = informers;
  services.upsert(testService("web"));
  services.upsert(testService("web", { type: "NodePort" }));
  services.delete("ns1/web");
  endpointSlices.upsert(testEndpointSlice("web"));
  endpointSlices.delete("ns1/web-1");
  nodes.upsert(testNode());
  nodes.delete(testNode().metadata.name);
  assertEquals(calls, [
    "service false true",
    "service true true",
    "service true false",
    "slice web set",
    "slice web delete",
    `node ${testNode().metadata.name}`,
    "node deleted",
  ]);
});

Deno.test("routeObjects() removes a slice from its former Service", () => {
  const { informers, calls } = createRig();
  const { endpointSlices } = informers;
  endpointSlices.upsert(testEndpointSlice("web", { name: "slice" }));
  endpointSlices.upsert(testEndpointSlice("shop", { name: "slice" }));
  assertEquals(calls, ["slice web set", "slice web delete", "slice shop set"]);
});

Deno.test("routeObjects() passes on the API's ServiceCIDRs of the family, sorted", () => {
  const { informers, calls } = createRig();
  const { serviceCidrs } = informers;
  serviceCidrs.upsert({
    metadata: { name: "kubernetes" },
    spec: { cidrs: ["10.96.0.0/12", "fd00::/112", "nonsense"] },
  });
  serviceCidrs.upsert({ metadata: { name: "more" }, spec: { cidrs: ["10.112.0.0/16"] } });
  assertEquals(calls, ["cidrs 10.96.0.0/12", "cidrs 10.112.0.0/16 10.96.0.0/12"]);
});

Deno.test("routeObjects() uses the ranges of the command line in place of the API's", () => {
  const { informers, calls } = createRig(["10.43.0.0/16", "fd00::/112"]);
  informers.serviceCidrs.upsert({
    metadata: { name: "kubernetes" },
    spec: { cidrs: ["10.96.0.0/12"] },
  });
  assertEquals(calls, ["cidrs 10.43.0.0/16", "cidrs 10.43.0.0/16"]);
});
