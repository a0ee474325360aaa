/**
 * kube-relay on the node of a cluster of namespaces, made to serve one scenario of the packet-flow
 * table after the other. With `KUBE_RELAY_SABOTAGE=1` it hides every client from the endpoints, and
 * the table has to fail.
 */
import type { EndpointSlice } from "../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../lib/api/kinds/service.ts";
import type { BackendMode } from "../../lib/proxy/backend.ts";
import type { RawObject } from "../conformance/server.ts";
import { ADDRESSES, THIS_NODE, THIS_ZONE } from "../support/builders/address_plan.ts";
import type { ApiProcess } from "../support/drivers/api_process.ts";
import { testEndpointSlice, testNode, testService } from "../support/builders/builders.ts";
import type { Namespace } from "../support/stages/netns.ts";
import { rawObjects } from "../support/builders/raw_objects.ts";
import { isSettled, RelayProcess, servicesOf } from "../support/stages/relay_process.ts";
import type { PacketFlowScenario, PacketFlowSettings } from "./packet_flow_case.ts";

/** The program to start, and its environment. */
export interface ScenarioRelayOptions {
  /** The API server that has the objects of the scenarios, on the same node. */
  readonly api: ApiProcess;
  /** For the configuration file, the control socket and the state. */
  readonly folder: string;
  readonly mode: BackendMode;
  /** As which node it is started. @default {THIS_NODE} */
  readonly nodeName?: string;
  /** Further flags of the command line. @default {[]} */
  readonly flags?: readonly string[];
}

/** The configuration file of kube-relay for the settings of a scenario. */
function configurationFor(
  { settings = {} }: PacketFlowScenario,
  { mode, nodeName = THIS_NODE, api }: ScenarioRelayOptions,
): unknown {
  const pods = `${ADDRESSES.IPv4.podCidr},${ADDRESSES.IPv6.podCidr}`;
  const { localTraffic, masqueradeAll = false, nodePortAddresses = [] } = settings;
  return {
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode,
    clientConnection: { kubeconfig: api.kubeconfig },
    hostnameOverride: nodeName,
    nodePortAddresses,
    iptables: { masqueradeAll: masqueradeAll || isSabotaged(), minSyncPeriod: "10ms" },
    ipvs: { minSyncPeriod: "10ms" },
    nftables: { masqueradeAll: masqueradeAll || isSabotaged(), minSyncPeriod: "10ms" },
    ...detection(localTraffic, pods),
  };
}

function isSabotaged(): boolean {
  return Deno.env.get("KUBE_RELAY_SABOTAGE") === "1";
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

/** kube-relay, restarted only if a scenario has other settings than the previous one. */
export class ScenarioRelay implements AsyncDisposable {
  readonly #node: Namespace;
  readonly #options: ScenarioRelayOptions;
  #relay: RelayProcess | undefined;
  #configuration = "";
  #objects: readonly RawObject[] = rawObjects("Node", NODE);
  #count = 0;

  constructor(node: Namespace, options: ScenarioRelayOptions) {
    this.#node = node;
    this.#options = options;
  }

  /** Resolves once exactly the objects of the scenario are in effect. */
  async serve(scenario: PacketFlowScenario): Promise<void> {
    const { services, slices = [], endpoints = [] } = scenario;
    const mark = `scenario-${++this.#count}`;
    const objects = [
      ...rawObjects("Node", NODE),
      ...rawObjects("Endpoints", ...endpoints),
      ...rawObjects("Service", ...services, ...marks(mark)),
      ...rawObjects("EndpointSlice", ...slices, ...markSlices(mark)),
    ];
    const deleted = this.#objects.filter((old) => !objects.some((kept) => isSame(kept, old)));
    await this.#options.api.write([], { deleted });
    await this.#options.api.write(objects);
    this.#objects = objects;
    const relay = await this.#relayFor(
      JSON.stringify(configurationFor(scenario, this.#options)),
    );
    // The marks are the last objects written of each kind: each kind arrives by its own watch, and
    // one may be late.
    await relay.until(`kube-relay serves ${mark}`, (status) => {
      const found = servicesOf(status).filter(({ name }) => name.includes(`${mark}-`));
      return isSettled(status) && found.length === 2 &&
        found.every(({ endpoints }) => endpoints.length === 1);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#relay?.kill();
  }

  async #relayFor(configuration: string): Promise<RelayProcess> {
    if (this.#relay !== undefined && configuration === this.#configuration) return this.#relay;
    await this.#relay?.kill();
    const { folder, flags = [] } = this.#options;
    const file = `${folder}/config.json`;
    await Deno.writeTextFile(file, configuration);
    this.#configuration = configuration;
    return this.#relay = RelayProcess.start(this.#node, {
      folder,
      args: ["--config", file, ...flags],
    });
  }
}

const NODE = testNode({ labels: { "topology.kubernetes.io/zone": THIS_ZONE } });

function isSame(a: RawObject, b: RawObject): boolean {
  return a.kind === b.kind && a.metadata.name === b.metadata.name;
}

/** A Service of each family whose name identifies a state of the cluster. */
function marks(name: string): Service[] {
  return [
    testService(`${name}-4`, { clusterIP: "172.30.200.1" }),
    testService(`${name}-6`, { clusterIP: "fd00:172:30::c801" }),
  ];
}

/** Their endpoints, to which nothing is ever sent. */
function markSlices(name: string): EndpointSlice[] {
  return [
    testEndpointSlice(`${name}-4`, { endpoints: ["192.0.2.1"] }),
    testEndpointSlice(`${name}-6`, { addressType: "IPv6", endpoints: ["2001:db8::1"] }),
  ];
}
