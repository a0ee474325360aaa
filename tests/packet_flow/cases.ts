/**
 * The meaning of Services, as packets: the one table that every mode is held to. Objects on the
 * left, packets on the right; addresses are those of `tests/support/builders/address_plan.ts`.
 *
 * A row reads: from whom, to which address and port → who may get it. `masquerade` and `sticky`
 * are false where they are not named, the protocol is TCP.
 */
import type { SliceEndpoint } from "../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../lib/api/kinds/service.ts";
import { type IpAddress, ipFamilyOf, parseIpAddress } from "../../lib/net/ip_address.ts";
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

/** One packet of a scenario. */
interface Packet {
  readonly from: PacketSource;
  readonly to: IpAddress;
  readonly port?: number;
  readonly protocol?: Protocol;
  readonly verdict: PacketVerdict;
  readonly masquerade?: true;
  readonly sticky?: true;
}

const at = (address: IpAddress, port = TARGET_PORT) => formatHostPort(address, port);
const HERE = at(IPv4.localPods[0]);
const THERE = at(IPv4.remotePods[0]);
const BOTH = [HERE, THERE];
const EIGHT = TARGET_PORTS.flatMap((port) => [
  at(IPv4.localPods[0], port),
  at(IPv4.remotePods[0], port),
]);

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

const CLUSTER_IP = { to: IPv4.clusterIp } as const;
const EXTERNAL_IP = { to: IPv4.externalIp } as const;
const LOAD_BALANCER = { to: IPv4.loadBalancerIp } as const;
const ON_NODE_PORT = { to: IPv4.node, port: NODE_PORT } as const;
const MASQUERADED = { masquerade: true } as const;

const SCENARIOS: readonly (PacketFlowScenario & { readonly packets: readonly Packet[] })[] = [
  {
    name: "ClusterIP",
    services: [testService("web")],
    slices: [slice()],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
      { from: "remotePodClient", ...CLUSTER_IP, verdict: BOTH },
      { from: "node", ...CLUSTER_IP, verdict: BOTH, ...MASQUERADED },
      { from: "client", ...CLUSTER_IP, verdict: BOTH, ...MASQUERADED },
      { from: "localPodClient", ...CLUSTER_IP, port: 81, verdict: "UNCLAIMED" },
      { from: "localPodClient", ...CLUSTER_IP, port: TARGET_PORT, verdict: "UNCLAIMED" },
      { from: "localPodClient", ...CLUSTER_IP, protocol: "UDP", verdict: "UNCLAIMED" },
      { from: "localPodClient", to: parseIpAddress("172.30.0.99"), verdict: "UNCLAIMED" },
      { from: "client", ...ON_NODE_PORT, verdict: "UNCLAIMED" },
    ],
  },
  {
    name: "ClusterIP, a pod that reaches itself",
    services: [testService("web")],
    slices: [LOCAL_ONLY],
    packets: [
      { from: "localPod", ...CLUSTER_IP, verdict: [HERE], ...MASQUERADED },
      { from: "localPodClient", ...CLUSTER_IP, verdict: [HERE] },
    ],
  },
  {
    name: "ClusterIP, masqueradeAll",
    services: [testService("web")],
    slices: [slice()],
    settings: { masqueradeAll: true },
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH, ...MASQUERADED },
      { from: "client", ...CLUSTER_IP, verdict: BOTH, ...MASQUERADED },
    ],
  },
  {
    name: "ClusterIP, nothing known of pods",
    services: [testService("web")],
    slices: [slice()],
    settings: { localTraffic: { kind: "none" } },
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
      { from: "client", ...CLUSTER_IP, verdict: BOTH },
    ],
  },
  {
    name: "ClusterIP, pods known by their bridge",
    services: [testService("web")],
    slices: [slice()],
    settings: { localTraffic: { kind: "byBridge", interfaceName: "cni0" } },
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
      { from: "remotePodClient", ...CLUSTER_IP, verdict: BOTH, ...MASQUERADED },
      { from: "node", ...CLUSTER_IP, verdict: BOTH, ...MASQUERADED },
      { from: "client", ...CLUSTER_IP, verdict: BOTH, ...MASQUERADED },
    ],
  },
  {
    name: "ClusterIP, pods known by an interface prefix",
    services: [testService("web")],
    slices: [slice()],
    settings: { localTraffic: { kind: "byInterfacePrefix", prefix: "cni" } },
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
      { from: "client", ...CLUSTER_IP, verdict: BOTH, ...MASQUERADED },
    ],
  },
  {
    name: "no endpoints",
    services: [loadBalancer({ externalIPs: [IPv4.externalIp] })],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: "REJECT" },
      { from: "node", ...CLUSTER_IP, verdict: "REJECT" },
      { from: "client", ...CLUSTER_IP, verdict: "REJECT" },
      { from: "client", ...ON_NODE_PORT, verdict: "REJECT" },
      { from: "client", ...EXTERNAL_IP, verdict: "REJECT" },
      { from: "client", ...LOAD_BALANCER, verdict: "REJECT" },
      { from: "node", ...ON_NODE_PORT, verdict: "REJECT" },
      { from: "node", ...EXTERNAL_IP, verdict: "REJECT" },
      { from: "node", ...LOAD_BALANCER, verdict: "REJECT" },
      { from: "client", ...LOAD_BALANCER, port: 81, verdict: "UNCLAIMED" },
    ],
  },
  {
    name: "no endpoints, policies Local and source ranges",
    services: [
      loadBalancer({
        internalTrafficPolicy: "Local",
        externalTrafficPolicy: "Local",
        healthCheckNodePort: 30111,
        loadBalancerSourceRanges: [IPv4.clientRange],
      }),
    ],
    slices: [slice(here(IPv4.localPods[0], UNREADY), there(IPv4.remotePods[0], UNREADY))],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: "REJECT" },
      { from: "client", ...ON_NODE_PORT, verdict: "REJECT" },
      { from: "client", ...LOAD_BALANCER, verdict: "REJECT" },
    ],
  },
  {
    name: "one endpoint ready, one not",
    services: [testService("web")],
    slices: [slice(here(IPv4.localPods[0]), there(IPv4.remotePods[0], UNREADY))],
    packets: [{ from: "localPodClient", ...CLUSTER_IP, verdict: [HERE] }],
  },
  {
    name: "NodePort, policy Cluster",
    services: [testService("web", NODE_PORT_SPEC)],
    slices: [slice()],
    packets: [
      { from: "client", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
      {
        from: "client",
        to: IPv4.nodeSecond,
        port: NODE_PORT,
        verdict: BOTH,
        ...MASQUERADED,
      },
      { from: "localPodClient", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "node", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "node", to: IPv4.loopback, port: NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
      { from: "client", ...ON_NODE_PORT, port: 30081, verdict: "UNCLAIMED" },
      { from: "client", ...ON_NODE_PORT, protocol: "UDP", verdict: "UNCLAIMED" },
      { from: "localPodClient", ...CLUSTER_IP, port: NODE_PORT, verdict: "UNCLAIMED" },
    ],
  },
  {
    name: "NodePort, on some addresses of the node",
    services: [testService("web", NODE_PORT_SPEC)],
    slices: [slice()],
    settings: { nodePortAddresses: ["192.168.0.0/24"] },
    packets: [
      { from: "client", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "client", to: IPv4.nodeSecond, port: NODE_PORT, verdict: "UNCLAIMED" },
    ],
  },
  {
    name: "NodePort, on the primary address of the node",
    services: [testService("web", NODE_PORT_SPEC)],
    slices: [slice()],
    settings: { nodePortAddresses: ["primary"] },
    packets: [
      { from: "client", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "client", to: IPv4.nodeSecond, port: NODE_PORT, verdict: "UNCLAIMED" },
    ],
  },
  {
    name: "NodePort, policy Local",
    services: [testService("web", { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" })],
    slices: [slice()],
    packets: [
      { from: "client", ...ON_NODE_PORT, verdict: [HERE] },
      { from: "localPodClient", ...ON_NODE_PORT, verdict: BOTH },
      { from: "node", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
      { from: "client", ...CLUSTER_IP, verdict: BOTH, ...MASQUERADED },
    ],
  },
  {
    name: "NodePort, policy Local, no endpoint here",
    services: [testService("web", { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" })],
    slices: [REMOTE_ONLY],
    packets: [
      { from: "client", ...ON_NODE_PORT, verdict: "DROP" },
      { from: "localPodClient", ...ON_NODE_PORT, verdict: [THERE] },
      { from: "node", ...ON_NODE_PORT, verdict: [THERE], ...MASQUERADED },
      { from: "localPodClient", ...CLUSTER_IP, verdict: [THERE] },
    ],
  },
  {
    name: "NodePort, policy Local, a pod that reaches itself",
    services: [testService("web", { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" })],
    slices: [LOCAL_ONLY],
    packets: [
      { from: "localPod", ...ON_NODE_PORT, verdict: [HERE], ...MASQUERADED },
      { from: "client", ...ON_NODE_PORT, verdict: [HERE] },
    ],
  },
  {
    name: "NodePort, policy Local, nothing known of pods",
    services: [testService("web", { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" })],
    slices: [slice()],
    settings: { localTraffic: { kind: "none" } },
    packets: [
      { from: "localPodClient", ...ON_NODE_PORT, verdict: [HERE] },
      { from: "node", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
    ],
  },
  {
    name: "external IP, policy Cluster",
    services: [testService("web", { externalIPs: [IPv4.externalIp] })],
    slices: [slice()],
    packets: [
      { from: "client", ...EXTERNAL_IP, verdict: BOTH, ...MASQUERADED },
      { from: "localPodClient", ...EXTERNAL_IP, verdict: BOTH, ...MASQUERADED },
      { from: "node", ...EXTERNAL_IP, verdict: BOTH, ...MASQUERADED },
      { from: "client", ...EXTERNAL_IP, port: 81, verdict: "UNCLAIMED" },
    ],
  },
  {
    name: "external IP, policy Local",
    services: [
      testService("web", { externalIPs: [IPv4.externalIp], externalTrafficPolicy: "Local" }),
    ],
    slices: [slice()],
    packets: [
      { from: "client", ...EXTERNAL_IP, verdict: [HERE] },
      { from: "localPodClient", ...EXTERNAL_IP, verdict: BOTH },
      { from: "node", ...EXTERNAL_IP, verdict: BOTH, ...MASQUERADED },
    ],
  },
  {
    name: "external IP, policy Local, no endpoint here",
    services: [
      testService("web", { externalIPs: [IPv4.externalIp], externalTrafficPolicy: "Local" }),
    ],
    slices: [REMOTE_ONLY],
    packets: [
      { from: "client", ...EXTERNAL_IP, verdict: "DROP" },
      { from: "localPodClient", ...EXTERNAL_IP, verdict: [THERE] },
      { from: "node", ...EXTERNAL_IP, verdict: [THERE], ...MASQUERADED },
    ],
  },
  {
    name: "external IP, not allowed",
    services: [testService("web", { externalIPs: [IPv4.externalIp] })],
    slices: [slice()],
    settings: { allowExternalIps: false },
    packets: [
      { from: "client", ...EXTERNAL_IP, verdict: "UNCLAIMED" },
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
    ],
  },
  {
    name: "external IP of two Services, the older one owns it",
    services: [
      rival("api", { externalIPs: [IPv4.externalIp] }, NEWER),
      testService("web", { externalIPs: [IPv4.externalIp] }, OLDER),
    ],
    slices: [LOCAL_ONLY, RIVAL_SLICE],
    packets: [
      { from: "client", ...EXTERNAL_IP, verdict: [HERE], ...MASQUERADED },
      { from: "localPodClient", ...EXTERNAL_IP, verdict: [HERE], ...MASQUERADED },
      { from: "node", ...EXTERNAL_IP, verdict: [HERE], ...MASQUERADED },
      { from: "localPodClient", ...CLUSTER_IP, verdict: [HERE] },
      { from: "localPodClient", to: RIVAL_CLUSTER_IP, verdict: [THERE] },
    ],
  },
  {
    name: "external IP of two Services, its owner has no endpoints",
    services: [
      rival("api", { externalIPs: [IPv4.externalIp] }, NEWER),
      testService("web", { externalIPs: [IPv4.externalIp] }, OLDER),
    ],
    slices: [RIVAL_SLICE],
    packets: [
      { from: "client", ...EXTERNAL_IP, verdict: "REJECT" },
      { from: "localPodClient", ...EXTERNAL_IP, verdict: "REJECT" },
      { from: "node", ...EXTERNAL_IP, verdict: "REJECT" },
      { from: "localPodClient", to: RIVAL_CLUSTER_IP, verdict: [THERE] },
    ],
  },
  {
    name: "external IP of two Services of one age, the name decides",
    services: [
      testService("web", { externalIPs: [IPv4.externalIp] }, OLDER),
      rival("api", { externalIPs: [IPv4.externalIp] }, OLDER),
    ],
    slices: [LOCAL_ONLY, RIVAL_SLICE],
    packets: [
      { from: "client", ...EXTERNAL_IP, verdict: [THERE], ...MASQUERADED },
      { from: "localPodClient", ...CLUSTER_IP, verdict: [HERE] },
    ],
  },
  {
    name: "external IP that is the cluster IP of a newer Service",
    services: [
      rival("api", { externalIPs: [IPv4.clusterIp] }, OLDER),
      testService("web", {}, NEWER),
    ],
    slices: [LOCAL_ONLY, RIVAL_SLICE],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: [HERE] },
      { from: "node", ...CLUSTER_IP, verdict: [HERE], ...MASQUERADED },
    ],
  },
  {
    name: "LoadBalancer, policy Cluster",
    services: [loadBalancer()],
    slices: [slice()],
    packets: [
      { from: "client", ...LOAD_BALANCER, verdict: BOTH, ...MASQUERADED },
      { from: "localPodClient", ...LOAD_BALANCER, verdict: BOTH, ...MASQUERADED },
      { from: "node", ...LOAD_BALANCER, verdict: BOTH, ...MASQUERADED },
      { from: "client", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
      { from: "client", ...LOAD_BALANCER, protocol: "UDP", verdict: "UNCLAIMED" },
    ],
  },
  {
    name: "LoadBalancer, ipMode VIP",
    services: [loadBalancer({}, "VIP")],
    slices: [slice()],
    packets: [{ from: "client", ...LOAD_BALANCER, verdict: BOTH, ...MASQUERADED }],
  },
  {
    name: "LoadBalancer, ipMode Proxy",
    services: [loadBalancer({}, "Proxy")],
    slices: [slice()],
    packets: [
      { from: "localPodClient", ...LOAD_BALANCER, verdict: "UNCLAIMED" },
      { from: "client", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
    ],
  },
  {
    name: "LoadBalancer of another class, without node ports",
    services: [
      loadBalancer({
        ...{ ports: [{ port: 80 }], loadBalancerSourceRanges: [IPv4.clientRange] },
        // Fields that no mode reads.
        ...{ allocateLoadBalancerNodePorts: false, loadBalancerClass: "example.com/x" },
      }),
    ],
    slices: [slice()],
    packets: [
      { from: "client", ...LOAD_BALANCER, verdict: BOTH, ...MASQUERADED },
      { from: "blockedClient", ...LOAD_BALANCER, verdict: "DROP" },
      { from: "client", ...ON_NODE_PORT, verdict: "UNCLAIMED" },
      { from: "node", ...ON_NODE_PORT, verdict: "UNCLAIMED" },
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
    ],
  },
  {
    name: "LoadBalancer without node ports, policy Local",
    services: [
      loadBalancer({
        ...{ ports: [{ port: 80 }], externalTrafficPolicy: "Local", healthCheckNodePort: 30111 },
      }),
    ],
    slices: [slice()],
    packets: [
      { from: "client", ...LOAD_BALANCER, verdict: [HERE] },
      { from: "client", ...ON_NODE_PORT, verdict: "UNCLAIMED" },
    ],
  },
  {
    name: "LoadBalancer, kube-router's local",
    services: [annotated("local")],
    slices: [slice()],
    packets: [
      { from: "client", ...LOAD_BALANCER, verdict: [HERE] },
      { from: "client", ...EXTERNAL_IP, verdict: [HERE] },
      { from: "client", ...ON_NODE_PORT, verdict: [HERE] },
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
    ],
  },
  {
    name: "LoadBalancer, kube-router's skiplbips",
    services: [annotated("skiplbips", "")],
    slices: [slice()],
    packets: [
      { from: "client", ...LOAD_BALANCER, verdict: "UNCLAIMED" },
      { from: "client", ...EXTERNAL_IP, verdict: BOTH, ...MASQUERADED },
      { from: "client", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
    ],
  },
  ...["hairpin", "hairpin.externalips"].map((name) => ({
    name: `LoadBalancer, a pod that reaches itself, kube-router's ${name}`,
    services: [annotated(name)],
    slices: [LOCAL_ONLY],
    packets: [CLUSTER_IP, EXTERNAL_IP, LOAD_BALANCER, ON_NODE_PORT].map((to) => ({
      ...{ from: "localPod" as const, ...to, verdict: [HERE], ...MASQUERADED },
    })),
  })),
  {
    name: "LoadBalancer, policy Local",
    services: [loadBalancer({ externalTrafficPolicy: "Local", healthCheckNodePort: 30111 })],
    slices: [slice()],
    packets: [
      { from: "client", ...LOAD_BALANCER, verdict: [HERE] },
      { from: "localPodClient", ...LOAD_BALANCER, verdict: BOTH },
      { from: "node", ...LOAD_BALANCER, verdict: BOTH, ...MASQUERADED },
    ],
  },
  {
    name: "LoadBalancer, policy Local, no endpoint here",
    services: [loadBalancer({ externalTrafficPolicy: "Local", healthCheckNodePort: 30111 })],
    slices: [REMOTE_ONLY],
    packets: [
      { from: "client", ...LOAD_BALANCER, verdict: "DROP" },
      { from: "localPodClient", ...LOAD_BALANCER, verdict: [THERE] },
      { from: "node", ...LOAD_BALANCER, verdict: [THERE], ...MASQUERADED },
    ],
  },
  {
    name: "LoadBalancer, source ranges",
    services: [
      loadBalancer({
        externalIPs: [IPv4.externalIp],
        loadBalancerSourceRanges: [IPv4.clientRange, IPv6.clientRange],
      }),
    ],
    slices: [slice()],
    packets: [
      { from: "client", ...LOAD_BALANCER, verdict: BOTH, ...MASQUERADED },
      { from: "blockedClient", ...LOAD_BALANCER, verdict: "DROP" },
      { from: "localPodClient", ...LOAD_BALANCER, verdict: "DROP" },
      { from: "node", ...LOAD_BALANCER, verdict: "DROP" },
      { from: "blockedClient", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "blockedClient", ...EXTERNAL_IP, verdict: BOTH, ...MASQUERADED },
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
    ],
  },
  {
    name: "LoadBalancer, source ranges with the node in them",
    services: [loadBalancer({ loadBalancerSourceRanges: ["192.168.0.0/24"] })],
    slices: [slice()],
    packets: [
      { from: "node", ...LOAD_BALANCER, verdict: BOTH, ...MASQUERADED },
      { from: "client", ...LOAD_BALANCER, verdict: "DROP" },
    ],
  },
  {
    name: "LoadBalancer on an address of the node, source ranges with the node in them",
    services: [
      testService("web", {
        type: "LoadBalancer",
        loadBalancerSourceRanges: ["192.168.0.0/24"],
      }, { ingress: [{ ip: IPv4.nodeSecond }] }),
    ],
    slices: [slice()],
    packets: [
      // Its source is that address, which no range contains.
      { from: "node", to: IPv4.nodeSecond, verdict: BOTH, ...MASQUERADED },
      { from: "client", to: IPv4.nodeSecond, verdict: "DROP" },
    ],
  },
  {
    name: "LoadBalancer, source ranges and no endpoints",
    services: [loadBalancer({ loadBalancerSourceRanges: [IPv4.clientRange] })],
    packets: [
      { from: "client", ...LOAD_BALANCER, verdict: "REJECT" },
      { from: "blockedClient", ...LOAD_BALANCER, verdict: "REJECT" },
    ],
  },
  {
    name: "LoadBalancer, source ranges and policy Local",
    services: [
      loadBalancer({
        externalTrafficPolicy: "Local",
        healthCheckNodePort: 30111,
        loadBalancerSourceRanges: [IPv4.clientRange],
      }),
    ],
    slices: [slice()],
    packets: [
      { from: "client", ...LOAD_BALANCER, verdict: [HERE] },
      { from: "blockedClient", ...LOAD_BALANCER, verdict: "DROP" },
    ],
  },
  {
    name: "LoadBalancer, source ranges and session affinity",
    services: [
      loadBalancer({
        sessionAffinity: "ClientIP",
        loadBalancerSourceRanges: [IPv4.clientRange],
      }),
    ],
    slices: [slice()],
    packets: [
      { from: "client", ...LOAD_BALANCER, verdict: BOTH, ...MASQUERADED, sticky: true },
      { from: "blockedClient", ...LOAD_BALANCER, verdict: "DROP" },
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH, sticky: true },
    ],
  },
  {
    name: "LoadBalancer, a source range of everything",
    services: [loadBalancer({ loadBalancerSourceRanges: [IPv4.clientRange, "0.0.0.0/0"] })],
    slices: [slice()],
    packets: [{ from: "blockedClient", ...LOAD_BALANCER, verdict: BOTH, ...MASQUERADED }],
  },
  {
    name: "LoadBalancer, no valid source range",
    services: [loadBalancer({ loadBalancerSourceRanges: ["nonsense", IPv6.clientRange] })],
    slices: [slice()],
    packets: [
      { from: "client", ...LOAD_BALANCER, verdict: "DROP" },
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
    ],
  },
  {
    name: "internal policy Local",
    services: [testService("web", { ...NODE_PORT_SPEC, internalTrafficPolicy: "Local" })],
    slices: [slice()],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: [HERE] },
      { from: "node", ...CLUSTER_IP, verdict: [HERE], ...MASQUERADED },
      { from: "client", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
    ],
  },
  {
    name: "internal policy Local, no endpoint here",
    services: [testService("web", { ...NODE_PORT_SPEC, internalTrafficPolicy: "Local" })],
    slices: [REMOTE_ONLY],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: "DROP" },
      { from: "node", ...CLUSTER_IP, verdict: "DROP" },
      { from: "client", ...ON_NODE_PORT, verdict: [THERE], ...MASQUERADED },
    ],
  },
  {
    name: "session affinity",
    services: [
      testService("web", {
        ...NODE_PORT_SPEC,
        sessionAffinity: "ClientIP",
        sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } },
      }),
    ],
    slices: [slice()],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH, sticky: true },
      { from: "client", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED, sticky: true },
    ],
  },
  {
    name: "all endpoints end",
    services: [testService("web", NODE_PORT_SPEC)],
    slices: [slice(here(IPv4.localPods[0], DRAINING), there(IPv4.remotePods[0], DRAINING))],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
      { from: "client", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
    ],
  },
  {
    name: "one endpoint ends",
    services: [testService("web")],
    slices: [slice(here(IPv4.localPods[0], DRAINING), there(IPv4.remotePods[0]))],
    packets: [{ from: "localPodClient", ...CLUSTER_IP, verdict: [THERE] }],
  },
  {
    name: "policy Local, the last endpoint here ends",
    services: [testService("web", { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" })],
    slices: [slice(here(IPv4.localPods[0], DRAINING), there(IPv4.remotePods[0]))],
    packets: [
      { from: "client", ...ON_NODE_PORT, verdict: [HERE] },
      { from: "localPodClient", ...ON_NODE_PORT, verdict: [THERE] },
      { from: "localPodClient", ...CLUSTER_IP, verdict: [THERE] },
    ],
  },
  {
    name: "zone hints",
    services: [testService("web", { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" })],
    slices: [
      slice(
        here(IPv4.localPods[0], { hints: { forZones: [{ name: "zone-b" }] } }),
        there(IPv4.remotePods[0], { hints: { forZones: [{ name: "zone-a" }] } }),
      ),
    ],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: [THERE] },
      { from: "client", ...ON_NODE_PORT, verdict: [HERE] },
    ],
  },
  {
    name: "zone hints, one missing",
    services: [testService("web")],
    slices: [
      slice(
        here(IPv4.localPods[0]),
        there(IPv4.remotePods[0], { hints: { forZones: [{ name: "zone-a" }] } }),
      ),
    ],
    packets: [{ from: "localPodClient", ...CLUSTER_IP, verdict: BOTH }],
  },
  {
    name: "node hints",
    services: [testService("web")],
    slices: [
      slice(
        here(IPv4.localPods[0], { hints: { forNodes: [{ name: THIS_NODE }] } }),
        there(IPv4.remotePods[0], { hints: { forNodes: [{ name: OTHER_NODE }] } }),
      ),
    ],
    packets: [{ from: "localPodClient", ...CLUSTER_IP, verdict: [HERE] }],
  },
  {
    name: "internal policy Local, no external address",
    services: [testService("web", { internalTrafficPolicy: "Local" })],
    slices: [slice()],
    packets: [{ from: "localPodClient", ...CLUSTER_IP, verdict: [HERE] }],
  },
  {
    name: "internal policy Local, no external address, no endpoint here",
    services: [testService("web", { internalTrafficPolicy: "Local" })],
    slices: [REMOTE_ONLY],
    packets: [{ from: "localPodClient", ...CLUSTER_IP, verdict: "DROP" }],
  },
  {
    name: "external policy Local, no external address",
    services: [testService("web", { externalTrafficPolicy: "Local" })],
    slices: [REMOTE_ONLY],
    packets: [{ from: "localPodClient", ...CLUSTER_IP, verdict: [THERE] }],
  },
  {
    name: "both policies Local, all endpoints are elsewhere and end",
    services: [
      testService("web", {
        ...NODE_PORT_SPEC,
        internalTrafficPolicy: "Local",
        externalTrafficPolicy: "Local",
      }),
    ],
    slices: [slice(there(IPv4.remotePods[0], DRAINING))],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: "DROP" },
      { from: "client", ...ON_NODE_PORT, verdict: "DROP" },
      { from: "localPodClient", ...ON_NODE_PORT, verdict: [THERE] },
    ],
  },
  {
    name: "policy Local, one local endpoint terminates and one no longer serves",
    services: [testService("web", { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" })],
    slices: [
      slice(
        here(IPv4.localPods[0], DRAINING),
        here(IPv4.localPods[1], ENDED),
        there(IPv4.remotePods[0]),
        there(IPv4.remotePods[1], DRAINING),
      ),
    ],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: [THERE] },
      { from: "client", ...ON_NODE_PORT, verdict: [HERE] },
      { from: "node", ...ON_NODE_PORT, verdict: [THERE], ...MASQUERADED },
    ],
  },
  {
    name: "zone hints, policy Local and endpoints of both zones on both nodes",
    services: [testService("web", { ...NODE_PORT_SPEC, externalTrafficPolicy: "Local" })],
    slices: [
      slice(
        here(IPv4.localPods[0], inZone("zone-a")),
        here(IPv4.localPods[1], inZone("zone-b")),
        there(IPv4.remotePods[0], inZone("zone-a")),
        there(IPv4.remotePods[1], inZone("zone-b")),
      ),
    ],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
      { from: "localPodClient", ...ON_NODE_PORT, verdict: BOTH },
    ],
  },
  {
    name: "zone hints, the only endpoint of the zone is not ready",
    services: [testService("web")],
    slices: [
      slice(
        here(IPv4.localPods[1], { ...UNREADY, ...inZone("zone-a") }),
        here(IPv4.localPods[0], inZone("zone-b")),
        there(IPv4.remotePods[0], inZone("zone-c")),
      ),
    ],
    packets: [{ from: "localPodClient", ...CLUSTER_IP, verdict: BOTH }],
  },
  {
    name: "node hints for other nodes, and zone hints",
    services: [testService("web")],
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
    packets: [{ from: "localPodClient", ...CLUSTER_IP, verdict: [HERE] }],
  },
  {
    name: "two slices, one endpoint in both",
    services: [testService("web")],
    slices: [
      slice(here(IPv4.localPods[0], UNREADY)),
      testEndpointSlice("web", {
        name: "web-2",
        endpoints: [here(IPv4.localPods[0]), there(IPv4.remotePods[0])],
        ports: [{ name: "", port: TARGET_PORT }],
      }),
    ],
    packets: [{ from: "localPodClient", ...CLUSTER_IP, verdict: BOTH }],
  },
  {
    name: "Endpoints object without slices",
    services: [testService("web")],
    endpoints: [
      testEndpoints("web", [{
        addresses: [{ ip: IPv4.localPods[0], nodeName: THIS_NODE }],
        notReadyAddresses: [{ ip: IPv4.remotePods[0] }],
        ports: [{ port: TARGET_PORT }],
      }]),
    ],
    packets: [{ from: "localPodClient", ...CLUSTER_IP, verdict: [HERE] }],
  },
  {
    name: "eight endpoints",
    services: [testService("web", NODE_PORT_SPEC)],
    slices: TARGET_PORTS.map((port) =>
      testEndpointSlice("web", {
        name: `web-${port}`,
        endpoints: [here(IPv4.localPods[0]), there(IPv4.remotePods[0])],
        ports: [{ name: "", port }],
      })
    ),
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: EIGHT },
      { from: "client", ...ON_NODE_PORT, verdict: EIGHT, ...MASQUERADED },
    ],
  },
  {
    name: "two ports",
    services: [
      testService("web", {
        ports: [{ name: "http", port: 80 }, { name: "metrics", port: 9090 }],
      }),
    ],
    slices: [
      testEndpointSlice("web", {
        endpoints: [here(IPv4.localPods[0])],
        ports: [{ name: "metrics", port: 9091 }, { name: "http", port: TARGET_PORT }],
      }),
    ],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: [HERE] },
      {
        from: "localPodClient",
        ...CLUSTER_IP,
        port: 9090,
        verdict: [at(IPv4.localPods[0], 9091)],
      },
    ],
  },
  {
    name: "UDP and TCP on one port",
    services: [
      testService("web", {
        type: "NodePort",
        ports: [
          { name: "dns", port: 53, protocol: "UDP", nodePort: NODE_PORT },
          { name: "dns-tcp", port: 53, protocol: "TCP", nodePort: NODE_PORT },
        ],
      }),
    ],
    slices: [
      testEndpointSlice("web", {
        endpoints: [here(IPv4.localPods[0])],
        ports: [
          { name: "dns", protocol: "UDP", port: 5353 },
          { name: "dns-tcp", protocol: "TCP", port: 5354 },
        ],
      }),
    ],
    packets: [
      {
        from: "localPodClient",
        ...CLUSTER_IP,
        port: 53,
        protocol: "UDP",
        verdict: [at(IPv4.localPods[0], 5353)],
      },
      {
        from: "localPodClient",
        ...CLUSTER_IP,
        port: 53,
        verdict: [at(IPv4.localPods[0], 5354)],
      },
      {
        from: "client",
        ...ON_NODE_PORT,
        protocol: "UDP",
        verdict: [at(IPv4.localPods[0], 5353)],
        ...MASQUERADED,
      },
    ],
  },
  {
    name: "UDP, no endpoints",
    services: [testService("web", { ports: [{ port: 53, protocol: "UDP" }] })],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, port: 53, protocol: "UDP", verdict: "REJECT" },
    ],
  },
  {
    name: "UDP, policy Local and affinity",
    services: [
      testService("web", {
        type: "NodePort",
        ports: [{ port: 53, protocol: "UDP", nodePort: NODE_PORT }],
        externalTrafficPolicy: "Local",
        sessionAffinity: "ClientIP",
      }),
    ],
    slices: [
      testEndpointSlice("web", {
        endpoints: [here(IPv4.localPods[0]), there(IPv4.remotePods[0])],
        ports: [{ name: "", protocol: "UDP", port: TARGET_PORT }],
      }),
    ],
    packets: [
      {
        from: "localPodClient",
        ...CLUSTER_IP,
        port: 53,
        protocol: "UDP",
        verdict: BOTH,
        sticky: true,
      },
      { from: "client", ...ON_NODE_PORT, protocol: "UDP", verdict: [HERE], sticky: true },
    ],
  },
  {
    name: "SCTP",
    services: [testService("web", { ports: [{ port: 5000, protocol: "SCTP" }] })],
    slices: [
      testEndpointSlice("web", {
        endpoints: [here(IPv4.localPods[0])],
        ports: [{ name: "", protocol: "SCTP", port: TARGET_PORT }],
      }),
    ],
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, port: 5000, protocol: "SCTP", verdict: [HERE] },
    ],
  },
  {
    name: "a Service of another proxy",
    services: [
      testService("web", {}, {
        metadata: { labels: { "service.kubernetes.io/service-proxy-name": "other" } },
      }),
    ],
    slices: [slice()],
    packets: [{ from: "localPodClient", ...CLUSTER_IP, verdict: "UNCLAIMED" }],
  },
  {
    name: "dual stack",
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
    packets: [
      { from: "localPodClient", ...CLUSTER_IP, verdict: [HERE] },
      ...[IPv6].flatMap(
        ({ clusterIp, node, externalIp, loadBalancerIp, localPods, remotePods }) => {
          const verdict = [at(localPods[0]), at(remotePods[0])];
          return [
            { from: "localPodClient", to: clusterIp, verdict },
            { from: "client", to: clusterIp, verdict, ...MASQUERADED },
            { from: "client", to: node, port: NODE_PORT, verdict, ...MASQUERADED },
            { from: "client", to: externalIp, verdict, ...MASQUERADED },
            { from: "client", to: loadBalancerIp, verdict, ...MASQUERADED },
            { from: "blockedClient", to: loadBalancerIp, verdict: "DROP" },
            { from: "localPodClient", to: clusterIp, port: 81, verdict: "UNCLAIMED" },
          ] satisfies Packet[];
        },
      ),
    ],
  },
  {
    name: "IPv6, policies Local",
    services: [
      testService("web", {
        ...NODE_PORT_SPEC,
        clusterIP: IPv6.clusterIp,
        internalTrafficPolicy: "Local",
        externalTrafficPolicy: "Local",
      }),
    ],
    slices: [
      testEndpointSlice("web", {
        addressType: "IPv6",
        endpoints: [there(IPv6.remotePods[0])],
        ports: [{ name: "", port: TARGET_PORT }],
      }),
    ],
    packets: [
      { from: "localPodClient", to: IPv6.clusterIp, verdict: "DROP" },
      { from: "client", to: IPv6.node, port: NODE_PORT, verdict: "DROP" },
      {
        from: "localPodClient",
        to: IPv6.node,
        port: NODE_PORT,
        verdict: [at(IPv6.remotePods[0])],
      },
    ],
  },
  {
    name: "NodePort, on all addresses of the node, by an explicit setting",
    services: [testService("web", NODE_PORT_SPEC)],
    slices: [slice()],
    settings: { nodePortAddresses: ["0.0.0.0/0", "::/0"] },
    packets: [
      { from: "client", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "client", to: IPv4.nodeSecond, port: NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "node", to: IPv4.nodeSecond, port: NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "client", ...CLUSTER_IP, port: NODE_PORT, verdict: "UNCLAIMED" },
    ],
  },
  {
    name: "NodePort, on the primary address of the node and on loopback",
    services: [testService("web", NODE_PORT_SPEC)],
    slices: [slice()],
    settings: { nodePortAddresses: ["primary", "localhost"] },
    packets: [
      { from: "node", to: IPv4.loopback, port: NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "node", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "client", ...ON_NODE_PORT, verdict: BOTH, ...MASQUERADED },
      { from: "client", to: IPv4.nodeSecond, port: NODE_PORT, verdict: "UNCLAIMED" },
    ],
  },
  // Last, because a process that once had such a Service treats cluster IPs otherwise from then on.
  {
    name: "external IP in the range of cluster IPs, policy Cluster",
    services: [testService("web", { externalIPs: [EXTERNAL_IN_RANGE] })],
    slices: [slice()],
    packets: [
      { from: "client", to: EXTERNAL_IN_RANGE, verdict: BOTH, ...MASQUERADED },
      { from: "localPodClient", to: EXTERNAL_IN_RANGE, verdict: BOTH, ...MASQUERADED },
      { from: "client", ...CLUSTER_IP, verdict: BOTH, ...MASQUERADED },
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
    ],
  },
  {
    name: "external IP in the range of cluster IPs, policy Local",
    services: [
      testService("web", { externalIPs: [EXTERNAL_IN_RANGE], externalTrafficPolicy: "Local" }),
    ],
    slices: [slice()],
    packets: [
      { from: "client", to: EXTERNAL_IN_RANGE, verdict: [HERE] },
      { from: "localPodClient", to: EXTERNAL_IN_RANGE, verdict: BOTH },
      { from: "node", to: EXTERNAL_IN_RANGE, verdict: BOTH, ...MASQUERADED },
      { from: "client", ...CLUSTER_IP, verdict: BOTH, ...MASQUERADED },
      { from: "localPodClient", ...CLUSTER_IP, verdict: BOTH },
    ],
  },
];

/** Every row, in the order of the table. */
export const PACKET_FLOW_CASES: readonly PacketFlowCase[] = SCENARIOS.flatMap(
  ({ packets, ...scenario }) =>
    packets.map(({ from, to, port = 80, protocol = "TCP", ...packet }) => ({
      name: `${scenario.name}: ${from} to ${formatHostPort(to, port)}/${protocol}`,
      scenario,
      family: ipFamilyOf(to),
      from,
      to,
      port,
      protocol,
      verdict: packet.verdict,
      masquerade: packet.masquerade ?? false,
      sticky: packet.sticky ?? false,
    })),
);
