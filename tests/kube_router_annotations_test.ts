/** Each row of the table of kube-router's annotations in docs/annotations.md, carried out. */
import { assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { dsrOf } from "../backends/ipvs/dsr.ts";
import { defaultIpvsOptions } from "../backends/ipvs/render_service.ts";
import { schedulingOf } from "../backends/ipvs/scheduler.ts";
import { servicePortsFromService } from "../lib/proxy/service_port.ts";
import { addressRequestOf } from "../lib/routing/address_request.ts";
import { announcedServiceOf } from "../lib/routing/announced_service.ts";
import { nodeBgpOf } from "../lib/routing/node_bgp.ts";
import { routingNodeOf } from "../lib/routing/routing_node.ts";
import { PACKET_FLOW_CASES } from "./packet_flow/cases.ts";
import { testService } from "./support/builders/builders.ts";
import { ROUTING_SETTINGS } from "./support/builders/planned_routing.ts";
import { loadBalancer, routedNode } from "./support/builders/routed_objects.ts";

const PREFIX = "kube-router.io/";

type Annotations = Readonly<Record<string, string>>;

/** What is made of an object. `problems` are sentences. */
interface Seen {
  readonly effect: unknown;
  readonly problems: readonly string[];
}

function ofService(annotations: Annotations): Seen {
  const spec = { type: "LoadBalancer", ports: [{ port: 80 }] } as const;
  const service = testService("web", spec, {
    metadata: { annotations },
    ingress: [{ ip: "192.0.2.1" }],
  });
  const { ports, problems } = servicePortsFromService(service, { family: "IPv4" });
  const [{ annotations: passed, ...port } = {}] = ports as readonly typeof ports[number][];
  const scheduling = schedulingOf(passed, "rr");
  const dsr = dsrOf(
    { ...port, annotations: passed, endpoints: [] } as never,
    defaultIpvsOptions("IPv4"),
  );
  const shared = { ...annotations, "kube-relay.io/load-balancer-sharing-key": "k" };
  const request = addressRequestOf(
    loadBalancer({ name: "web", annotations: shared }),
    ROUTING_SETTINGS,
  );
  const { switches } = announcedServiceOf([], annotations);
  return {
    effect: { port, scheduling, dsr, sharing: request!.sharing, switches },
    problems: [...problems.map(({ message }) => message), ...scheduling.problems],
  };
}

function ofNode(annotations: Annotations): Seen {
  const node = routingNodeOf(routedNode({ name: "n", annotations }));
  const { bgp, problems } = nodeBgpOf(node);
  return {
    effect: { bgp, podCidrs: node.podCidrs },
    problems: problems.map(({ message }) => message),
  };
}

/** A value of each, and the annotations that it is an addition to. */
const VALUES: Readonly<Record<string, readonly [value: string, others?: Annotations]>> = {
  "service.scheduler": ["lc"],
  "service.schedflags": ["flag-1", { "service.scheduler": "mh" }],
  "service.dsr": ["tunnel"],
  "service.hairpin": [""],
  "service.hairpin.externalips": ["true"],
  "service.local": ["true"],
  "service.skiplbips": [""],
  "service.advertise.clusterip": ["True"],
  "service.advertise.externalip": ["1"],
  "service.advertise.loadbalancerip": ["false"],
  "node.asn": ["64600"],
  "rr.server": ["42"],
  "rr.client": ["10.0.0.1"],
  "peers": ["[{remoteip: 192.0.2.1, remoteasn: 64700}]"],
  "peer.ips": ["192.0.2.1", { "peer.asns": "64700" }],
  "peer.asns": ["64701", { "peer.ips": "192.0.2.1" }],
  "peer.ports": ["1790", { "peer.ips": "192.0.2.1", "peer.asns": "64700" }],
  "peer.localips": ["192.0.2.9", { "peer.ips": "192.0.2.1", "peer.asns": "64700" }],
  "peer.passwords": ["c2VjcmV0", { "peer.ips": "192.0.2.1", "peer.asns": "64700" }],
  "node.bgp.communities": ["no-export"],
  "node.bgp.customimportreject": ["10.0.0.0/16"],
  "path-prepend.as": ["64600", { "path-prepend.repeat-n": "3" }],
  "path-prepend.repeat-n": ["3", { "path-prepend.as": "64600" }],
  "bgp-local-addresses": ["192.0.2.9"],
  "pod-cidrs": ["10.9.0.0/24,fd00:9::/64"],
  "pod-cidr": ["10.9.0.0/24"],
};

const [, section = ""] = (await Deno.readTextFile("docs/annotations.md")).split(
  "## kube-router's annotations",
);
const ROWS = section.split("\n").filter((line) => line.startsWith("| `"))
  .map((line) => line.split("|").map((cell) => cell.replaceAll("`", "").trim()).slice(1));

Deno.test("docs/annotations.md has a row for each annotation that is carried out here", () => {
  assertEquals(ROWS.map(([name]) => name), Object.keys(VALUES).map((name) => PREFIX + name));
});

for (const [full = "", fate] of ROWS) {
  const name = full.slice(PREFIX.length);
  Deno.test(`kube-router's annotation ${name}: ${fate}`, () => {
    const [value, others = {}] = VALUES[name]!;
    const named = (annotations: Annotations) =>
      Object.fromEntries(Object.entries(annotations).map(([key, text]) => [PREFIX + key, text]));
    const see = name.startsWith("service.") ? ofService : ofNode;
    const [without, { effect, problems }] = [
      see(named(others)),
      see(named({ ...others, [name]: value })),
    ];
    const shown = PACKET_FLOW_CASES.some(({ scenario: { services } }) =>
      services.some(({ metadata }) => metadata.annotations?.[full] !== undefined)
    );
    if (fate === "always so") {
      assertEquals(effect, without.effect);
      assertMatch(problems.join(), /^The annotation changes nothing: a pod always reaches itself/);
      assertEquals(shown, true, "no case in tests/packet_flow/cases.ts");
    } else if (fate === "refused") {
      assertMatch(problems.join(), /not used: .*(passwordFile|localAddress)/);
      assertEquals(JSON.stringify(effect).includes(value), false);
    } else {
      assertEquals([fate, problems], ["accepted", []]);
      assertNotEquals(effect, without.effect);
    }
  });
}

Deno.test("kube-router's switches with another value are reported, and not used", () => {
  for (
    const name of [
      "local",
      "advertise.clusterip",
      "advertise.externalip",
      "advertise.loadbalancerip",
    ]
  ) {
    const { effect, problems } = ofService({ [`${PREFIX}service.${name}`]: "yes" });
    assertEquals([effect, problems], [
      ofService({}).effect,
      ["The annotation is not used: it has to be true or false"],
    ]);
  }
});
