/**
 * The meaning of Services, as packets: the one table that every mode is held to. Objects on the
 * left, packets on the right; addresses are those of `tests/support/builders/address_plan.ts`.
 *
 * A row reads: from whom > to which address, port and protocol: who may get it. The port is 80 and the
 * protocol TCP where they are not named.
 */
import type { SliceEndpoint } from "../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../lib/api/kinds/service.ts";
import {
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  parseIpAddress,
} from "../../lib/net/ip_address.ts";
import { formatHostPort, type Protocol } from "../../lib/net/port.ts";
import { ADDRESSES, OTHER_NODE, THIS_NODE } from "../support/builders/address_plan.ts";
import { testEndpoints, testEndpointSlice, testService } from "../support/builders/builders.ts";
import type {
  PacketFlowCase,
  PacketFlowScenario,
  PacketSource,
  PacketVerdict,
} from "./packet_flow_case.ts";

const { IPv4, IPv6 } = ADDRESSES;
/** All endpoints listen here: the Service's own port is 80. */
const TARGET_PORT = 8080;
/** Every port of an endpoint in the table. */
export const TARGET_PORTS: readonly number[] = [TARGET_PORT, 9091, 5353, 5354];
const NODE_PORT = 30080;

function here(address: IpAddress, rest: Partial<SliceEndpoint> = {}): SliceEndpoint {
  return { addresses: [address], nodeName: THIS_NODE, ...rest };
}

function there(address: IpAddress, rest: Partial<SliceEndpoint> = {}): SliceEndpoint {
  return { addresses: [address], nodeName: OTHER_NODE, ...rest };
}

/** The slice of Service `web`; without endpoints named, one on each node. */
function slice(...endpoints: readonly SliceEndpoint[]) {
  return testEndpointSlice("web", {
    endpoints: endpoints.length > 0
      ? endpoints
      : [here(IPv4.localPods[0]), there(IPv4.remotePods[0])],
    ports: [{ name: "", protocol: "TCP", port: TARGET_PORT }],
  });
}

const REMOTE_ONLY = slice(there(IPv4.remotePods[0]));
const LOCAL_ONLY = slice(here(IPv4.localPods[0]));
const DRAINING = { conditions: { ready: false, serving: true, terminating: true } };
const ENDED = { conditions: { ready: false, serving: false, terminating: true } };
const UNREADY = { conditions: { ready: false, serving: false, terminating: false } };

function inZone(name: string): Pick<SliceEndpoint, "hints"> {
  return { hints: { forZones: [{ name }] } };
}

type Spec = Partial<Service["spec"]>;

const NODE_PORT_SPEC: Spec = { type: "NodePort", ports: [{ port: 80, nodePort: NODE_PORT }] };

function loadBalancer(spec: Spec = {}, ipMode?: string): Service {
  const ingress = { ip: IPv4.loadBalancerIp, ...(ipMode && { ipMode }) };
  return testService("web", { ...NODE_PORT_SPEC, type: "LoadBalancer", ...spec }, {
    ingress: [ingress],
  });
}

/** A load balancer with an external IP, and an annotation of kube-router. */
function annotated(name: string, value = "true"): Service {
  const service = loadBalancer({ externalIPs: [IPv4.externalIp] });
  const annotations = { [`kube-router.io/service.${name}`]: value };
  return { ...service, metadata: { ...service.metadata, annotations } };
}

const OLDER = { metadata: { creationTimestamp: "2024-01-01T00:00:00Z" } } as const;
const NEWER = { metadata: { creationTimestamp: "2024-01-02T00:00:00Z" } } as const;
const RIVAL_CLUSTER_IP = parseIpAddress("172.30.0.20");
/** The endpoint of Service `api`, on the other node. */
const RIVAL_SLICE = testEndpointSlice("api", {
  endpoints: [there(IPv4.remotePods[0])],
  ports: [{ name: "", protocol: "TCP", port: TARGET_PORT }],
});

/** A second Service that has an address of Service `web`. */
function rival(name: string, spec: Spec, age: typeof OLDER | typeof NEWER): Service {
  return testService(name, { clusterIP: RIVAL_CLUSTER_IP, ...spec }, age);
}

/** An external IP that lies in the range of cluster IPs. */
const EXTERNAL_IN_RANGE = parseIpAddress("172.30.0.30");

type Objects = Partial<Omit<PacketFlowScenario, "name">> & { readonly spec?: Spec };
type Packet = Omit<PacketFlowCase, "name" | "scenario">;

interface Scenario {
  readonly scenario: PacketFlowScenario;
  readonly packets: readonly Packet[];
}

const SOURCES: ReadonlySet<string> = new Set<PacketSource>([
  ...["node", "localPod", "localPodClient", "remotePodClient", "client", "blockedClient"] as const,
]);
const ROW = /^(.+) > (.+): (REJECT|DROP|UNCLAIMED|here.*?|there.*?)(, masquerade)?(, sticky)?$/;

/** Service `web` of type ClusterIP with an endpoint on each node, as far as `objects` has no others. */
function scenario(
  name: string,
  { spec, ...objects }: Objects,
  ...rows: readonly string[]
): Scenario {
  const whole = { name, services: [testService("web", spec)], slices: [slice()], ...objects };
  return { scenario: whole, packets: rows.flatMap(packetsOf) };
}

/** Every source of a row sends a packet to every destination. */
function packetsOf(row: string): readonly Packet[] {
  const [, sources, destinations, verdict, masquerade, sticky] = ROW.exec(row) ?? [];
  if (sources === undefined) throw new Error(`Cannot read the row '${row}'`);
  return sources.split(", ").flatMap((from) => {
    if (!SOURCES.has(from)) throw new Error(`There is no source '${from}': ${row}`);
    return destinations!.split(", ").map((text) => {
      const destination = destinationOf(text);
      return {
        from: from as PacketSource,
        ...destination,
        verdict: verdictOf(verdict!, destination.family),
        masquerade: masquerade !== undefined,
        sticky: sticky !== undefined,
      };
    });
  });
}

/** `clusterIp:81/UDP`, `IPv6.node:30080` or `172.30.0.99`: an address of the plan, or of IPv4. */
function destinationOf(text: string) {
  const [, family = "IPv4", name = "", port = "80", protocol = "TCP"] =
    /^(?:(IPv6)\.)?([\w.]+)(?::(\d+))?(?:\/(\w+))?$/.exec(text) ?? [];
  const planned = Reflect.get(ADDRESSES[family as IpFamily], name);
  const to: IpAddress = planned ?? parseIpAddress(name);
  return { to, family: ipFamilyOf(to), port: Number(port), protocol: protocol as Protocol };
}

/** `here there:9091`: the endpoints on this node and on the other one. */
function verdictOf(text: string, family: IpFamily): PacketVerdict {
  if (text === "REJECT" || text === "DROP" || text === "UNCLAIMED") return text;
  const { localPods, remotePods } = ADDRESSES[family];
  return text.split(" ").map((word) => {
    const [place, port = TARGET_PORT] = word.split(":");
    return formatHostPort(place === "here" ? localPods[0] : remotePods[0], Number(port));
  });
}

const SCENARIOS: readonly Scenario[] = [
  scenario(
    "ClusterIP",
    {},
    "localPodClient, remotePodClient > clusterIp: here there",
    "node, client > clusterIp: here there, masquerade",
    "localPodClient > clusterIp:81, clusterIp:8080, clusterIp/UDP, 172.30.0.99: UNCLAIMED",
    "client > node:30080: UNCLAIMED",
  ),
  scenario(
    "ClusterIP, a pod that reaches itself",
    { slices: [LOCAL_ONLY] },
    "localPod > clusterIp: here, masquerade",
    "localPodClient > clusterIp: here",
  ),
  scenario(
    "ClusterIP, masqueradeAll",
    { settings: { masqueradeAll: true } },
    "localPodClient, client > clusterIp: here there, masquerade",
  ),
  scenario(
    "ClusterIP, nothing known of pods",
    { settings: { localTraffic: { kind: "none" } } },
    "localPodClient, client > clusterIp: here there",
  ),
  scenario(
    "ClusterIP, pods known by their bridge",
    { settings: { localTraffic: { kind: "byBridge", interfaceName: "cni0" } } },
    "localPodClient > clusterIp: here there",
    "remotePodClient, node, client > clusterIp: here there, masquerade",
  ),
  scenario(
    "ClusterIP, pods known by an interface prefix",
    { settings: { localTraffic: { kind: "byInterfacePrefix", prefix: "cni" } } },
    "localPodClient > clusterIp: here there",
    "client > clusterIp: here there, masquerade",
  ),
  scenario(
    "no endpoints",
    { services: [loadBalancer({ externalIPs: [IPv4.externalIp] })], slices: [] },
    "localPodClient > clusterIp: REJECT",
    "node, client > clusterIp, node:30080, externalIp, loadBalancerIp: REJECT",
    "client > loadBalancerIp:81: UNCLAIMED",
  ),
  scenario(
    "no endpoints, policies Local and source ranges",
    {
      services: [
        loadBalancer({
          internalTrafficPolicy: "Local",
          externalTrafficPolicy: "Local",
          healthCheckNodePort: 30111,
          loadBalancerSourceRanges: [IPv4.clientRange],
        }),
      ],
      slices: [slice(here(IPv4.localPods[0], UNREADY), there(IPv4.remotePods[0], UNREADY))],
    },
    "localPodClient > clusterIp: REJECT",
    "client > node:30080, loadBalancerIp: REJECT",
  ),
  scenario("one endpoint ready, one not", {
    slices: [slice(here(IPv4.localPods[0]), there(IPv4.remotePods[0], UNREADY))],
  }, "localPodClient > clusterIp: here"),
  scenario(
    "NodePort, policy Cluster",
    { spec: NODE_PORT_SPEC },
    "client > node:30080, nodeSecond:30080: here there, masquerade",
    "localPodClient > node:30080: here there, masquerade",
    "node > node:30080, loopback:30080: here there, masquerade",
    "localPodClient > clusterIp: here there",
    "client > node:30081, node:30080/UDP: UNCLAIMED",
    "localPodClient > clusterIp:30080: UNCLAIMED",
  ),
  scenario(
    "NodePort, on some addresses of the node",
    { spec: NODE_PORT_SPEC, settings: { nodePortAddresses: ["192.168.0.0/24"] } },
    "client > node:30080: here there, masquerade",
    "client > nodeSecond:30080: UNCLAIMED",
  ),
  scenario(
    "NodePort, on the primary address of the node",
    { spec: NODE_PORT_SPEC, settings: { nodePortAddresses: ["primary"] } },
    "client > node:30080: here there, masquerade",
    "client > nodeSecond:30080: UNCLAIMED",
  ),
  scenario(
    "NodePort, policy Local",
    { spec: { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" } },
    "client > node:30080: here",
    "localPodClient > node:30080, clusterIp: here there",
    "node > node:30080: here there, masquerade",
    "client > clusterIp: here there, masquerade",
  ),
  scenario(
    "NodePort, policy Local, no endpoint here",
    { spec: { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" }, slices: [REMOTE_ONLY] },
    "client > node:30080: DROP",
    "localPodClient > node:30080, clusterIp: there",
    "node > node:30080: there, masquerade",
  ),
  scenario(
    "NodePort, policy Local, a pod that reaches itself",
    { spec: { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" }, slices: [LOCAL_ONLY] },
    "localPod > node:30080: here, masquerade",
    "client > node:30080: here",
  ),
  scenario(
    "NodePort, policy Local, nothing known of pods",
    {
      spec: { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" },
      settings: { localTraffic: { kind: "none" } },
    },
    "localPodClient > node:30080: here",
    "node > node:30080: here there, masquerade",
  ),
  scenario(
    "external IP, policy Cluster",
    { spec: { externalIPs: [IPv4.externalIp] } },
    "client, localPodClient, node > externalIp: here there, masquerade",
    "client > externalIp:81: UNCLAIMED",
  ),
  scenario(
    "external IP, policy Local",
    { spec: { externalIPs: [IPv4.externalIp], externalTrafficPolicy: "Local" } },
    "client > externalIp: here",
    "localPodClient > externalIp: here there",
    "node > externalIp: here there, masquerade",
  ),
  scenario(
    "external IP, policy Local, no endpoint here",
    {
      spec: { externalIPs: [IPv4.externalIp], externalTrafficPolicy: "Local" },
      slices: [REMOTE_ONLY],
    },
    "client > externalIp: DROP",
    "localPodClient > externalIp: there",
    "node > externalIp: there, masquerade",
  ),
  scenario(
    "external IP, not allowed",
    { spec: { externalIPs: [IPv4.externalIp] }, settings: { allowExternalIps: false } },
    "client > externalIp: UNCLAIMED",
    "localPodClient > clusterIp: here there",
  ),
  scenario(
    "external IP of two Services, the older one owns it",
    {
      services: [
        rival("api", { externalIPs: [IPv4.externalIp] }, NEWER),
        testService("web", { externalIPs: [IPv4.externalIp] }, OLDER),
      ],
      slices: [LOCAL_ONLY, RIVAL_SLICE],
    },
    "client, localPodClient, node > externalIp: here, masquerade",
    "localPodClient > clusterIp: here",
    "localPodClient > 172.30.0.20: there",
  ),
  scenario(
    "external IP of two Services, its owner has no endpoints",
    {
      services: [
        rival("api", { externalIPs: [IPv4.externalIp] }, NEWER),
        testService("web", { externalIPs: [IPv4.externalIp] }, OLDER),
      ],
      slices: [RIVAL_SLICE],
    },
    "client, localPodClient, node > externalIp: REJECT",
    "localPodClient > 172.30.0.20: there",
  ),
  scenario(
    "external IP of two Services of one age, the name decides",
    {
      services: [
        testService("web", { externalIPs: [IPv4.externalIp] }, OLDER),
        rival("api", { externalIPs: [IPv4.externalIp] }, OLDER),
      ],
      slices: [LOCAL_ONLY, RIVAL_SLICE],
    },
    "client > externalIp: there, masquerade",
    "localPodClient > clusterIp: here",
  ),
  scenario(
    "external IP that is the cluster IP of a newer Service",
    {
      services: [
        rival("api", { externalIPs: [IPv4.clusterIp] }, OLDER),
        testService("web", {}, NEWER),
      ],
      slices: [LOCAL_ONLY, RIVAL_SLICE],
    },
    "localPodClient > clusterIp: here",
    "node > clusterIp: here, masquerade",
  ),
  scenario(
    "LoadBalancer, policy Cluster",
    { services: [loadBalancer()] },
    "client > loadBalancerIp, node:30080: here there, masquerade",
    "localPodClient, node > loadBalancerIp: here there, masquerade",
    "localPodClient > clusterIp: here there",
    "client > loadBalancerIp/UDP: UNCLAIMED",
  ),
  scenario(
    "LoadBalancer, ipMode VIP",
    { services: [loadBalancer({}, "VIP")] },
    "client > loadBalancerIp: here there, masquerade",
  ),
  scenario(
    "LoadBalancer, ipMode Proxy",
    { services: [loadBalancer({}, "Proxy")] },
    "localPodClient > loadBalancerIp: UNCLAIMED",
    "client > node:30080: here there, masquerade",
  ),
  scenario(
    "LoadBalancer of another class, without node ports",
    {
      services: [
        loadBalancer({
          ...{ ports: [{ port: 80 }], loadBalancerSourceRanges: [IPv4.clientRange] },
          // Fields that no mode reads.
          ...{ allocateLoadBalancerNodePorts: false, loadBalancerClass: "example.com/x" },
        }),
      ],
    },
    "client > loadBalancerIp: here there, masquerade",
    "blockedClient > loadBalancerIp: DROP",
    "client, node > node:30080: UNCLAIMED",
    "localPodClient > clusterIp: here there",
  ),
  scenario(
    "LoadBalancer without node ports, policy Local",
    {
      services: [
        loadBalancer({
          ...{ ports: [{ port: 80 }], externalTrafficPolicy: "Local", healthCheckNodePort: 30111 },
        }),
      ],
    },
    "client > loadBalancerIp: here",
    "client > node:30080: UNCLAIMED",
  ),
  scenario(
    "LoadBalancer, kube-router's local",
    { services: [annotated("local")] },
    "client > loadBalancerIp, externalIp, node:30080: here",
    "localPodClient > clusterIp: here there",
  ),
  scenario(
    "LoadBalancer, kube-router's skiplbips",
    { services: [annotated("skiplbips", "")] },
    "client > loadBalancerIp: UNCLAIMED",
    "client > externalIp, node:30080: here there, masquerade",
  ),
  ...["hairpin", "hairpin.externalips"].map((name) =>
    scenario(
      `LoadBalancer, a pod that reaches itself, kube-router's ${name}`,
      { services: [annotated(name)], slices: [LOCAL_ONLY] },
      "localPod > clusterIp, externalIp, loadBalancerIp, node:30080: here, masquerade",
    )
  ),
  scenario(
    "LoadBalancer, policy Local",
    { services: [loadBalancer({ externalTrafficPolicy: "Local", healthCheckNodePort: 30111 })] },
    "client > loadBalancerIp: here",
    "localPodClient > loadBalancerIp: here there",
    "node > loadBalancerIp: here there, masquerade",
  ),
  scenario(
    "LoadBalancer, policy Local, no endpoint here",
    {
      services: [loadBalancer({ externalTrafficPolicy: "Local", healthCheckNodePort: 30111 })],
      slices: [REMOTE_ONLY],
    },
    "client > loadBalancerIp: DROP",
    "localPodClient > loadBalancerIp: there",
    "node > loadBalancerIp: there, masquerade",
  ),
  scenario(
    "LoadBalancer, source ranges",
    {
      services: [
        loadBalancer({
          externalIPs: [IPv4.externalIp],
          loadBalancerSourceRanges: [IPv4.clientRange, IPv6.clientRange],
        }),
      ],
    },
    "client > loadBalancerIp: here there, masquerade",
    "blockedClient > node:30080, externalIp: here there, masquerade",
    "blockedClient, localPodClient, node > loadBalancerIp: DROP",
    "localPodClient > clusterIp: here there",
  ),
  scenario(
    "LoadBalancer, source ranges with the node in them",
    { services: [loadBalancer({ loadBalancerSourceRanges: ["192.168.0.0/24"] })] },
    "node > loadBalancerIp: here there, masquerade",
    "client > loadBalancerIp: DROP",
  ),
  scenario(
    "LoadBalancer on an address of the node, source ranges with the node in them",
    {
      services: [
        testService("web", {
          type: "LoadBalancer",
          loadBalancerSourceRanges: ["192.168.0.0/24"],
        }, { ingress: [{ ip: IPv4.nodeSecond }] }),
      ],
    },
    "node > nodeSecond: here there, masquerade",
    "client > nodeSecond: DROP",
  ),
  scenario("LoadBalancer, source ranges and no endpoints", {
    services: [loadBalancer({ loadBalancerSourceRanges: [IPv4.clientRange] })],
    slices: [],
  }, "client, blockedClient > loadBalancerIp: REJECT"),
  scenario(
    "LoadBalancer, source ranges and policy Local",
    {
      services: [
        loadBalancer({
          externalTrafficPolicy: "Local",
          healthCheckNodePort: 30111,
          loadBalancerSourceRanges: [IPv4.clientRange],
        }),
      ],
    },
    "client > loadBalancerIp: here",
    "blockedClient > loadBalancerIp: DROP",
  ),
  scenario(
    "LoadBalancer, source ranges and session affinity",
    {
      services: [
        loadBalancer({
          sessionAffinity: "ClientIP",
          loadBalancerSourceRanges: [IPv4.clientRange],
        }),
      ],
    },
    "client > loadBalancerIp: here there, masquerade, sticky",
    "blockedClient > loadBalancerIp: DROP",
    "localPodClient > clusterIp: here there, sticky",
  ),
  scenario("LoadBalancer, a source range of everything", {
    services: [loadBalancer({ loadBalancerSourceRanges: [IPv4.clientRange, "0.0.0.0/0"] })],
  }, "blockedClient > loadBalancerIp: here there, masquerade"),
  scenario(
    "LoadBalancer, no valid source range",
    { services: [loadBalancer({ loadBalancerSourceRanges: ["nonsense", IPv6.clientRange] })] },
    "client > loadBalancerIp: DROP",
    "localPodClient > clusterIp: here there",
  ),
  scenario(
    "internal policy Local",
    { spec: { ...NODE_PORT_SPEC, internalTrafficPolicy: "Local" } },
    "localPodClient > clusterIp: here",
    "node > clusterIp: here, masquerade",
    "client > node:30080: here there, masquerade",
  ),
  scenario(
    "internal policy Local, no endpoint here",
    { spec: { ...NODE_PORT_SPEC, internalTrafficPolicy: "Local" }, slices: [REMOTE_ONLY] },
    "localPodClient, node > clusterIp: DROP",
    "client > node:30080: there, masquerade",
  ),
  scenario(
    "session affinity",
    {
      spec: {
        ...NODE_PORT_SPEC,
        sessionAffinity: "ClientIP",
        sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } },
      },
    },
    "localPodClient > clusterIp: here there, sticky",
    "client > node:30080: here there, masquerade, sticky",
  ),
  scenario(
    "all endpoints end",
    {
      spec: NODE_PORT_SPEC,
      slices: [slice(here(IPv4.localPods[0], DRAINING), there(IPv4.remotePods[0], DRAINING))],
    },
    "localPodClient > clusterIp: here there",
    "client > node:30080: here there, masquerade",
  ),
  scenario("one endpoint ends", {
    slices: [slice(here(IPv4.localPods[0], DRAINING), there(IPv4.remotePods[0]))],
  }, "localPodClient > clusterIp: there"),
  scenario(
    "policy Local, the last endpoint here ends",
    {
      spec: { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" },
      slices: [slice(here(IPv4.localPods[0], DRAINING), there(IPv4.remotePods[0]))],
    },
    "client > node:30080: here",
    "localPodClient > node:30080, clusterIp: there",
  ),
  scenario(
    "zone hints",
    {
      spec: { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" },
      slices: [
        slice(
          here(IPv4.localPods[0], { hints: { forZones: [{ name: "zone-b" }] } }),
          there(IPv4.remotePods[0], { hints: { forZones: [{ name: "zone-a" }] } }),
        ),
      ],
    },
    "localPodClient > clusterIp: there",
    "client > node:30080: here",
  ),
  scenario("zone hints, one missing", {
    slices: [
      slice(
        here(IPv4.localPods[0]),
        there(IPv4.remotePods[0], { hints: { forZones: [{ name: "zone-a" }] } }),
      ),
    ],
  }, "localPodClient > clusterIp: here there"),
  scenario("node hints", {
    slices: [
      slice(
        here(IPv4.localPods[0], { hints: { forNodes: [{ name: THIS_NODE }] } }),
        there(IPv4.remotePods[0], { hints: { forNodes: [{ name: OTHER_NODE }] } }),
      ),
    ],
  }, "localPodClient > clusterIp: here"),
  scenario("internal policy Local, no external address", {
    spec: { internalTrafficPolicy: "Local" },
  }, "localPodClient > clusterIp: here"),
  scenario("internal policy Local, no external address, no endpoint here", {
    spec: { internalTrafficPolicy: "Local" },
    slices: [REMOTE_ONLY],
  }, "localPodClient > clusterIp: DROP"),
  scenario("external policy Local, no external address", {
    spec: { externalTrafficPolicy: "Local" },
    slices: [REMOTE_ONLY],
  }, "localPodClient > clusterIp: there"),
  scenario(
    "both policies Local, all endpoints are elsewhere and end",
    {
      spec: { ...NODE_PORT_SPEC, internalTrafficPolicy: "Local", externalTrafficPolicy: "Local" },
      slices: [slice(there(IPv4.remotePods[0], DRAINING))],
    },
    "localPodClient > clusterIp: DROP",
    "client > node:30080: DROP",
    "localPodClient > node:30080: there",
  ),
  scenario(
    "policy Local, one local endpoint terminates and one no longer serves",
    {
      spec: { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" },
      slices: [
        slice(
          here(IPv4.localPods[0], DRAINING),
          here(IPv4.localPods[1], ENDED),
          there(IPv4.remotePods[0]),
          there(IPv4.remotePods[1], DRAINING),
        ),
      ],
    },
    "localPodClient > clusterIp: there",
    "client > node:30080: here",
    "node > node:30080: there, masquerade",
  ),
  scenario("zone hints, policy Local and endpoints of both zones on both nodes", {
    spec: { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" },
    slices: [
      slice(
        here(IPv4.localPods[0], inZone("zone-a")),
        here(IPv4.localPods[1], inZone("zone-b")),
        there(IPv4.remotePods[0], inZone("zone-a")),
        there(IPv4.remotePods[1], inZone("zone-b")),
      ),
    ],
  }, "localPodClient > clusterIp, node:30080: here there"),
  scenario("zone hints, the only endpoint of the zone is not ready", {
    slices: [
      slice(
        here(IPv4.localPods[1], { ...UNREADY, ...inZone("zone-a") }),
        here(IPv4.localPods[0], inZone("zone-b")),
        there(IPv4.remotePods[0], inZone("zone-c")),
      ),
    ],
  }, "localPodClient > clusterIp: here there"),
  scenario("node hints for other nodes, and zone hints", {
    slices: [
      slice(
        here(IPv4.localPods[0], {
          hints: { forNodes: [{ name: OTHER_NODE }], forZones: [{ name: "zone-a" }] },
        }),
        there(IPv4.remotePods[0], {
          hints: { forNodes: [{ name: OTHER_NODE }], forZones: [{ name: "zone-b" }] },
        }),
      ),
    ],
  }, "localPodClient > clusterIp: here"),
  scenario("two slices, one endpoint in both", {
    slices: [
      slice(here(IPv4.localPods[0], UNREADY)),
      testEndpointSlice("web", {
        name: "web-2",
        endpoints: [here(IPv4.localPods[0]), there(IPv4.remotePods[0])],
        ports: [{ name: "", port: TARGET_PORT }],
      }),
    ],
  }, "localPodClient > clusterIp: here there"),
  scenario("Endpoints object without slices", {
    slices: [],
    endpoints: [
      testEndpoints("web", [{
        addresses: [{ ip: IPv4.localPods[0], nodeName: THIS_NODE }],
        notReadyAddresses: [{ ip: IPv4.remotePods[0] }],
        ports: [{ port: TARGET_PORT }],
      }]),
    ],
  }, "localPodClient > clusterIp: here"),
  scenario(
    "eight endpoints",
    {
      spec: NODE_PORT_SPEC,
      slices: TARGET_PORTS.map((port) =>
        testEndpointSlice("web", {
          name: `web-${port}`,
          endpoints: [here(IPv4.localPods[0]), there(IPv4.remotePods[0])],
          ports: [{ name: "", port }],
        })
      ),
    },
    "localPodClient > clusterIp: here there here:9091 there:9091 here:5353 there:5353 here:5354 there:5354",
    "client > node:30080: here there here:9091 there:9091 here:5353 there:5353 here:5354 there:5354, masquerade",
  ),
  scenario(
    "two ports",
    {
      spec: { ports: [{ name: "http", port: 80 }, { name: "metrics", port: 9090 }] },
      slices: [
        testEndpointSlice("web", {
          endpoints: [here(IPv4.localPods[0])],
          ports: [{ name: "metrics", port: 9091 }, { name: "http", port: TARGET_PORT }],
        }),
      ],
    },
    "localPodClient > clusterIp: here",
    "localPodClient > clusterIp:9090: here:9091",
  ),
  scenario(
    "UDP and TCP on one port",
    {
      spec: {
        type: "NodePort",
        ports: [{ name: "dns", port: 53, protocol: "UDP", nodePort: NODE_PORT }, {
          name: "dns-tcp",
          port: 53,
          protocol: "TCP",
          nodePort: NODE_PORT,
        }],
      },
      slices: [
        testEndpointSlice("web", {
          endpoints: [here(IPv4.localPods[0])],
          ports: [
            { name: "dns", protocol: "UDP", port: 5353 },
            { name: "dns-tcp", protocol: "TCP", port: 5354 },
          ],
        }),
      ],
    },
    "localPodClient > clusterIp:53/UDP: here:5353",
    "localPodClient > clusterIp:53: here:5354",
    "client > node:30080/UDP: here:5353, masquerade",
  ),
  scenario(
    "UDP, no endpoints",
    { spec: { ports: [{ port: 53, protocol: "UDP" }] }, slices: [] },
    "localPodClient > clusterIp:53/UDP: REJECT",
  ),
  scenario(
    "UDP, policy Local and affinity",
    {
      spec: {
        type: "NodePort",
        ports: [{ port: 53, protocol: "UDP", nodePort: NODE_PORT }],
        externalTrafficPolicy: "Local",
        sessionAffinity: "ClientIP",
      },
      slices: [
        testEndpointSlice("web", {
          endpoints: [here(IPv4.localPods[0]), there(IPv4.remotePods[0])],
          ports: [{ name: "", protocol: "UDP", port: TARGET_PORT }],
        }),
      ],
    },
    "localPodClient > clusterIp:53/UDP: here there, sticky",
    "client > node:30080/UDP: here, sticky",
  ),
  scenario("SCTP", {
    spec: { ports: [{ port: 5000, protocol: "SCTP" }] },
    slices: [
      testEndpointSlice("web", {
        endpoints: [here(IPv4.localPods[0])],
        ports: [{ name: "", protocol: "SCTP", port: TARGET_PORT }],
      }),
    ],
  }, "localPodClient > clusterIp:5000/SCTP: here"),
  scenario("a Service of another proxy", {
    services: [
      testService("web", {}, {
        metadata: { labels: { "service.kubernetes.io/service-proxy-name": "other" } },
      }),
    ],
  }, "localPodClient > clusterIp: UNCLAIMED"),
  scenario(
    "dual stack",
    {
      services: [
        testService("web", {
          ...NODE_PORT_SPEC,
          type: "LoadBalancer",
          clusterIPs: [IPv4.clusterIp, IPv6.clusterIp],
          ipFamilies: ["IPv4", "IPv6"],
          externalIPs: [IPv4.externalIp, IPv6.externalIp],
          loadBalancerSourceRanges: [IPv4.clientRange, IPv6.clientRange],
        }, { ingress: [{ ip: IPv4.loadBalancerIp }, { ip: IPv6.loadBalancerIp }] }),
      ],
      slices: [
        LOCAL_ONLY,
        testEndpointSlice("web", {
          name: "web-6",
          addressType: "IPv6",
          endpoints: [here(IPv6.localPods[0]), there(IPv6.remotePods[0])],
          ports: [{ name: "", port: TARGET_PORT }],
        }),
      ],
    },
    "localPodClient > clusterIp: here",
    "localPodClient > IPv6.clusterIp: here there",
    "client > IPv6.clusterIp: here there, masquerade",
    "client > IPv6.node:30080: here there, masquerade",
    "client > IPv6.externalIp: here there, masquerade",
    "client > IPv6.loadBalancerIp: here there, masquerade",
    "blockedClient > IPv6.loadBalancerIp: DROP",
    "localPodClient > IPv6.clusterIp:81: UNCLAIMED",
  ),
  scenario(
    "IPv6, policies Local",
    {
      spec: {
        ...NODE_PORT_SPEC,
        clusterIP: IPv6.clusterIp,
        internalTrafficPolicy: "Local",
        externalTrafficPolicy: "Local",
      },
      slices: [
        testEndpointSlice("web", {
          addressType: "IPv6",
          endpoints: [there(IPv6.remotePods[0])],
          ports: [{ name: "", port: TARGET_PORT }],
        }),
      ],
    },
    "localPodClient > IPv6.clusterIp: DROP",
    "client > IPv6.node:30080: DROP",
    "localPodClient > IPv6.node:30080: there",
  ),
  scenario(
    "NodePort, on all addresses of the node, by an explicit setting",
    { spec: NODE_PORT_SPEC, settings: { nodePortAddresses: ["0.0.0.0/0", "::/0"] } },
    "client > node:30080, nodeSecond:30080: here there, masquerade",
    "node > nodeSecond:30080: here there, masquerade",
    "client > clusterIp:30080: UNCLAIMED",
  ),
  scenario(
    "NodePort, on the primary address of the node and on loopback",
    { spec: NODE_PORT_SPEC, settings: { nodePortAddresses: ["primary", "localhost"] } },
    "node > loopback:30080, node:30080: here there, masquerade",
    "client > node:30080: here there, masquerade",
    "client > nodeSecond:30080: UNCLAIMED",
  ),
  // Last, because a process that once had such a Service treats cluster IPs otherwise from then on.
  scenario(
    "external IP in the range of cluster IPs, policy Cluster",
    { spec: { externalIPs: [EXTERNAL_IN_RANGE] } },
    "client > 172.30.0.30, clusterIp: here there, masquerade",
    "localPodClient > 172.30.0.30: here there, masquerade",
    "localPodClient > clusterIp: here there",
  ),
  scenario(
    "external IP in the range of cluster IPs, policy Local",
    { spec: { externalIPs: [EXTERNAL_IN_RANGE], externalTrafficPolicy: "Local" } },
    "client > 172.30.0.30: here",
    "localPodClient > 172.30.0.30, clusterIp: here there",
    "node > 172.30.0.30: here there, masquerade",
    "client > clusterIp: here there, masquerade",
  ),
];

/** Every row, in the order of the table. */
export const PACKET_FLOW_CASES: readonly PacketFlowCase[] = SCENARIOS.flatMap(
  ({ scenario, packets }) =>
    packets.map((packet) => {
      const { from, to, port, protocol } = packet;
      const name = `${scenario.name}: ${from} to ${formatHostPort(to, port)}/${protocol}`;
      return { name, scenario, ...packet };
    }),
);
