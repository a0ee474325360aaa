/**
 * The packet-flow table with real packets, through kube-relay on the node of a small cluster.
 *
 * @module
 */
import type { Service } from "../../lib/api/objects.ts";
import type { RawObject } from "../conformance/server.ts";
import { PACKET_FLOW_CASES } from "../packet_flow/cases.ts";
import type {
  PacketFlowCase,
  PacketFlowScenario,
  PacketFlowSettings,
} from "../packet_flow/packet_flow_case.ts";
import { PacketSender } from "../packet_flow/packet_sender.ts";
import {
  type PacketFlowAdaptation,
  type PacketFlowSkip,
  runPacketFlowSteps,
} from "../packet_flow/suite.ts";
import { asUdp, inOtherFamily } from "../packet_flow/variants.ts";
import { ApiProcess } from "../support/api_process.ts";
import { ADDRESSES, THIS_NODE, THIS_ZONE } from "../support/address_plan.ts";
import { testNode, testService } from "../support/builders.ts";
import { createClusterTopology } from "../support/cluster_topology.ts";
import { type Namespace, netnsRequirements } from "../support/netns.ts";
import { rawObjects } from "../support/raw_objects.ts";
import { isSettled, RelayProcess, servicesOf } from "../support/relay_process.ts";
import { isMissing, program } from "../support/requirement.ts";

const ignore = isMissing("the packet-flow table with real packets", [
  ...netnsRequirements(),
  program("bash"),
]);

const SKIPPED: readonly PacketFlowSkip[] = [
  { reason: "Deno has no SCTP sockets", cases: ({ protocol }) => protocol === "SCTP" },
  {
    reason: "kube-proxy has no setting for it; the plan's own test covers the option",
    cases: ({ scenario }) => scenario.settings?.allowExternalIps === false,
  },
  {
    reason: "an API server mirrors Endpoints to slices; the tests of manifests cover them",
    cases: ({ scenario }) => scenario.endpoints !== undefined,
  },
];

const isDropped = ({ verdict }: PacketFlowCase) => verdict === "DROP";

/** Whether the address has a socket: some client has an endpoint there, though not this one. */
function isSharedWithOthers({ scenario, to }: PacketFlowCase): boolean {
  const [service] = scenario.services;
  const isClusterIp = [service?.spec.clusterIP, ...service?.spec.clusterIPs ?? []].includes(to);
  return !isClusterIp || service?.spec.internalTrafficPolicy !== "Local";
}

const ADAPTED: readonly PacketFlowAdaptation[] = [
  {
    reason: "every connection to an endpoint is made by the node",
    cases: () => true,
    expect: { masquerade: true },
  },
  {
    reason: "a TCP connection cannot be left unanswered without a rule: it is closed at once",
    cases: (packet) => isDropped(packet) && packet.protocol === "TCP",
    expect: { verdict: "REJECT" },
  },
  {
    reason: "where no client has an endpoint there is no socket, and the kernel refuses",
    cases: (packet) =>
      isDropped(packet) && packet.protocol === "UDP" && !isSharedWithOthers(packet),
    expect: { verdict: "REJECT" },
  },
];

/** Every row in both families and both protocols; those with the same settings in a row. */
function allCases(): PacketFlowCase[] {
  const udp = asUdp(PACKET_FLOW_CASES);
  const cases = [...PACKET_FLOW_CASES, ...udp];
  return [...Map.groupBy([...cases, ...inOtherFamily(cases)], settingsKey).values()].flat();
}

function settingsKey({ scenario }: PacketFlowCase): string {
  return JSON.stringify(scenario.settings ?? {});
}

/** The configuration file of kube-relay that says what the settings of a scenario say. */
function configurationFor(
  { settings = {} }: PacketFlowScenario,
  kubeconfig: string,
): unknown {
  const pods = `${ADDRESSES.IPv4.podCidr},${ADDRESSES.IPv6.podCidr}`;
  const { localTraffic, masqueradeAll = false, nodePortAddresses = [] } = settings;
  return {
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode: "userspace",
    clientConnection: { kubeconfig },
    hostnameOverride: THIS_NODE,
    nodePortAddresses,
    iptables: { masqueradeAll, minSyncPeriod: "10ms" },
    ...detection(localTraffic, pods),
  };
}

function detection(localTraffic: PacketFlowSettings["localTraffic"], clusterCIDR: string): object {
  switch (localTraffic?.kind) {
    case undefined:
    case "byCidr":
      return { detectLocalMode: "ClusterCIDR", clusterCIDR };
    case "none":
      return { detectLocalMode: "ClusterCIDR" };
    case "byBridge": {
      const { interfaceName: bridgeInterface } = localTraffic;
      return { detectLocalMode: "BridgeInterface", detectLocal: { bridgeInterface } };
    }
    case "byInterfacePrefix": {
      const { prefix: interfaceNamePrefix } = localTraffic;
      return { detectLocalMode: "InterfaceNamePrefix", detectLocal: { interfaceNamePrefix } };
    }
  }
}

/** kube-relay, started anew only where a scenario has other settings than the one before. */
class RelayOfScenarios implements AsyncDisposable {
  readonly #node: Namespace;
  readonly #api: ApiProcess;
  readonly #folder: string;
  #relay: RelayProcess | undefined;
  #configuration = "";
  #objects: readonly RawObject[] = rawObjects("Node", NODE);
  #count = 0;

  constructor(node: Namespace, { api, folder }: {
    readonly api: ApiProcess;
    readonly folder: string;
  }) {
    this.#node = node;
    this.#api = api;
    this.#folder = folder;
  }

  /** Resolves once the objects of the scenario, and no others, have been brought into effect. */
  async serve(scenario: PacketFlowScenario): Promise<void> {
    const { services, slices = [], endpoints = [] } = scenario;
    const mark = `scenario-${++this.#count}`;
    const objects = [
      ...rawObjects("Node", NODE),
      ...rawObjects("EndpointSlice", ...slices),
      ...rawObjects("Endpoints", ...endpoints),
      ...rawObjects("Service", ...services, ...marks(mark)),
    ];
    const deleted = this.#objects.filter((old) => !objects.some((kept) => isSame(kept, old)));
    await this.#api.write(objects, { deleted });
    this.#objects = objects;
    const relay = await this.#relayFor(
      JSON.stringify(configurationFor(scenario, this.#api.kubeconfig)),
    );
    // Each family has its mark, and only one: those of the scenario before are deleted last.
    await relay.until(`kube-relay serves ${mark}`, (status) => {
      const names = servicesOf(status).map(({ name }) => name).filter((name) =>
        /scenario/.test(name)
      );
      return isSettled(status) && names.length === 2 && names.every((name) => name.includes(mark));
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#relay?.kill();
  }

  async #relayFor(configuration: string): Promise<RelayProcess> {
    if (this.#relay !== undefined && configuration === this.#configuration) return this.#relay;
    await this.#relay?.kill();
    const file = `${this.#folder}/config.json`;
    await Deno.writeTextFile(file, configuration);
    this.#configuration = configuration;
    return this.#relay = RelayProcess.start(this.#node, {
      folder: this.#folder,
      args: ["--config", file],
    });
  }
}

const NODE = testNode({ labels: { "topology.kubernetes.io/zone": THIS_ZONE } });

function isSame(a: RawObject, b: RawObject): boolean {
  return a.kind === b.kind && a.metadata.name === b.metadata.name;
}

/** A Service of each family, without endpoints, by whose name a state of the cluster is known. */
function marks(name: string): Service[] {
  return [
    testService(`${name}-4`, { clusterIP: "172.30.200.1" }),
    testService(`${name}-6`, { clusterIP: "fd00:172:30::c801" }),
  ];
}

Deno.test({
  name: "packet flow with real packets through userspace mode",
  ignore,
  async fn(t) {
    const folder = await Deno.makeTempDir();
    try {
      await using cluster = await createClusterTopology();
      // Silence would be taken for the proxy's.
      await cluster.node.sysctl("net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0");
      const api = await ApiProcess.start(cluster.node, `${folder}/kubeconfig`);
      await using relay = new RelayOfScenarios(cluster.node, { api, folder });
      const sender = await PacketSender.start(cluster);
      await runPacketFlowSteps(t, {
        name: "userspace",
        cases: allCases(),
        skip: SKIPPED,
        adapt: ADAPTED,
        prepare: async (scenario) => {
          await relay.serve(scenario);
          return { [Symbol.asyncDispose]: () => Promise.resolve() };
        },
        execute: (packet) => sender.execute(packet),
      });
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});
