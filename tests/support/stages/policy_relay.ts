/**
 * A run in this process that enforces NetworkPolicies by fake data planes, from a folder of manifests or
 * an API server.
 */
import { BACKENDS } from "../../../backends/mod.ts";
import type { NetworkPolicySpec } from "../../../lib/api/kinds/network_policy.ts";
import { NETWORK_POLICY_CONTROLLER } from "../../../lib/app/policy/policy_controller.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { RawObject } from "../../conformance/server.ts";
import { THIS_NODE } from "../builders/address_plan.ts";
import type { FakeApiServer } from "../fakes/fake_api_server.ts";
import { FakeBackend } from "../fakes/fake_backend.ts";
import { FakeCommandRunner } from "../fakes/fake_command_runner.ts";
import { type FakeHost, fakeHostChecks } from "../fakes/fake_host_checks.ts";
import { FakePolicyBackend } from "../fakes/fake_policy_backend.ts";
import { testDependencies } from "../fakes/test_dependencies.ts";
import { InProcessRelay } from "./in_process_relay.ts";

interface PolicyRelayOptions {
  readonly api?: FakeApiServer;
  readonly args?: readonly string[];
  /** File name to objects. @default {no folder is read} */
  readonly manifests?: Readonly<Record<string, readonly RawObject[]>>;
  readonly host?: FakeHost;
  readonly families?: readonly IpFamily[];
  /** Called with each data plane that is made. */
  readonly onPlane?: (plane: FakePolicyBackend) => void;
  /** Whether the real userspace mode relays. @default {a fake backend for Services} */
  readonly isRelaying?: boolean;
}

/** A Pod of this node as the API has it. */
export function rawPod(name: string, address: string, labels: Record<string, string>): RawObject {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { namespace: "default", name, labels },
    spec: { nodeName: THIS_NODE, containers: [] },
    status: { phase: "Running", podIP: address, podIPs: [{ ip: address }] },
  };
}

/** A NetworkPolicy of the namespace default as the API has it. */
export function rawPolicy(name: string, spec: NetworkPolicySpec): RawObject {
  return JSON.parse(JSON.stringify({
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { namespace: "default", name },
    spec,
  }));
}

/** A policy by which only pods with a label reach the pods `app: web`. */
export function onlyFrom(app: string): RawObject {
  return rawPolicy("web", {
    podSelector: { matchLabels: { app: "web" } },
    policyTypes: ["Ingress"],
    ingress: [{ from: [{ podSelector: { matchLabels: { app } } }] }],
  });
}

/** The run. */
export class PolicyRelay extends InProcessRelay {
  readonly planes: FakePolicyBackend[] = [];
  readonly commands = new FakeCommandRunner().on("", {});
  readonly takenOver: string[] = [];

  static async start(options: PolicyRelayOptions): Promise<PolicyRelay> {
    const relay = new PolicyRelay();
    await Deno.mkdir(`${relay.folder}/manifests`);
    for (const [name, objects] of Object.entries(options.manifests ?? {})) {
      await relay.write(name, objects);
    }
    await relay.#start(options);
    return relay;
  }

  /** The data plane of rules of IPv4. */
  get plane(): FakePolicyBackend {
    return this.planes[0]!;
  }

  /** Writes a manifest. */
  async write(name: string, objects: readonly RawObject[]): Promise<void> {
    const items = { apiVersion: "v1", kind: "List", items: objects };
    const path = `${this.folder}/${name}`;
    await Deno.writeTextFile(path, JSON.stringify(items));
    await Deno.rename(path, `${this.folder}/manifests/${name}`);
  }

  async #start(
    { api, args = [], manifests, host = {}, families = ["IPv4"], onPlane, isRelaying }:
      PolicyRelayOptions,
  ) {
    const dependencies = testDependencies({
      commands: this.commands,
      backends: isRelaying ? BACKENDS : { userspace: (_, { family }) => new FakeBackend(family) },
      policyBackends: {
        nftables: ({ onDrift }, { family }) => {
          const plane = new FakePolicyBackend(family, onDrift);
          this.planes.push(plane);
          onPlane?.(plane);
          return plane;
        },
        // What an earlier run has left.
        iptables: (_, { family }) =>
          Object.assign(new FakePolicyBackend(family), { leftovers: [`old rules of ${family}`] }),
      },
      hostChecks: {
        ...fakeHostChecks(host),
        removeKubeRouterPolicies: () => {
          this.takenOver.push(...this.planes.map(({ plan }) => plan ? "in force" : "not in force"));
          return Promise.resolve({ removed: ["chain KUBE-ROUTER-INPUT"], failed: [] });
        },
      },
      process: { uid: 1000 },
    });
    await this.run({ ...dependencies, moreControllers: [NETWORK_POLICY_CONTROLLER] }, [
      ...["--network-policy", "--iptables-min-sync-period=0s", `--hostname-override=${THIS_NODE}`],
      ...(manifests ? [`--manifests=${this.folder}/manifests`] : []),
      ...args,
    ], {
      ...{ mode: "userspace", families, api },
      isUp: () => this.status().then(() => true, () => false),
    });
  }

  /** Waits until policies were synced and nothing is pending. */
  async synced(): Promise<void> {
    await this.until("policies are synced", async () => {
      const { controllers = [] } = await this.status();
      const loops = controllers.flatMap(({ families }) => families);
      return loops.length > 0 && loops.every(({ lastSync, pending }) => lastSync && !pending);
    });
  }
}
