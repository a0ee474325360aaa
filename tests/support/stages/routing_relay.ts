/**
 * Nodes in this process that assign and announce addresses by fake data planes, on a clock that the test
 * moves, with an API server.
 */
import { ROUTING_CONTROLLER } from "../../../lib/app/routing/routing_controller.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { BackendMode } from "../../../lib/proxy/backend.ts";
import type { RawObject } from "../../conformance/server.ts";
import { rawEndpointSlice, rawLoadBalancerService } from "../builders/raw_objects.ts";
import type { FakeApiServer } from "../fakes/fake_api_server.ts";
import { collectionOf } from "../fakes/fake_api_store.ts";
import { FakeBackend } from "../fakes/fake_backend.ts";
import type { FakeClock } from "../fakes/fake_clock.ts";
import { FakeCommandRunner } from "../fakes/fake_command_runner.ts";
import { FakeRoutingBackends } from "../fakes/fake_routing_backends.ts";
import { testDependencies } from "../fakes/test_dependencies.ts";
import { InProcessRelay } from "./in_process_relay.ts";

interface RoutingRelayOptions {
  readonly node: string;
  readonly clock: FakeClock;
  /** @default {none: the folder of `args` has the objects} */
  readonly api?: FakeApiServer;
  readonly args?: readonly string[];
  readonly families?: readonly IpFamily[];
  readonly mode?: BackendMode;
  /** @default {true} */
  readonly isRouting?: boolean;
}

/** A Node as the API has it. */
export function rawNode(name: string, address: string, extra: object = {}): RawObject {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name, labels: { "kubernetes.io/hostname": name } },
    spec: { podCIDR: "10.180.0.0/24" },
    status: { addresses: [{ type: "InternalIP", address }] },
    ...extra,
  };
}

/** The Service and the slice of a load balancer with an endpoint on each of some nodes. */
export function rawLoadBalancer(
  name: string,
  { clusterIP, nodes, ...spec }: {
    readonly clusterIP: string;
    readonly nodes: readonly string[];
    readonly [field: string]: unknown;
  },
): readonly RawObject[] {
  const ports = [{ port: 80, protocol: "TCP", targetPort: 8080 }];
  const service = rawLoadBalancerService(name, { clusterIP, ports, ...spec });
  return [service, rawSlice(name, nodes)];
}

/** A slice with an endpoint on each of some nodes. */
export function rawSlice(service: string, nodes: readonly string[]): RawObject {
  return rawEndpointSlice(service, {
    endpoints: nodes.map((nodeName, index) => ({ address: `10.180.${index}.9`, nodeName })),
    ports: [{ name: "", port: 8080, protocol: "TCP" }],
  });
}

/** The addresses in the status of a Service. */
export function assigned(api: FakeApiServer, name: string): readonly string[] {
  const service = api.store.list(SERVICES).find((each) => each.metadata.name === name);
  const status = service?.status as
    | { loadBalancer?: { ingress?: readonly { readonly ip: string }[] } }
    | undefined;
  return status?.loadBalancer?.ingress?.map(({ ip }) => ip) ?? [];
}

const SERVICES = collectionOf({ kind: "Service", apiVersion: "v1" });

/** A node. Disposing of it ends it as SIGTERM does. */
export class RoutingRelay extends InProcessRelay {
  readonly backends = new FakeRoutingBackends();
  readonly services: FakeBackend[] = [];
  readonly #options: RoutingRelayOptions;

  private constructor(options: RoutingRelayOptions) {
    super();
    this.#options = options;
  }

  static async start(options: RoutingRelayOptions): Promise<RoutingRelay> {
    const relay = new RoutingRelay(options);
    await relay.#start(options);
    return relay;
  }

  get held(): readonly string[] {
    return this.backends.held;
  }

  /** Lets fake time pass until it is so; the log is in the error. */
  override async until(
    what: string,
    isSo: () => boolean | Promise<boolean>,
    { stepMs = 50 }: { readonly stepMs?: number } = {},
  ): Promise<void> {
    await super.until(what, async () => {
      await this.#options.clock.advance(stepMs);
      return await isSo();
    });
  }

  async #start(
    { api, args = [], clock, families = ["IPv4"], mode = "userspace", node, isRouting = true }:
      RoutingRelayOptions,
  ) {
    const made = (_: unknown, { family }: { readonly family: IpFamily }) => {
      const backend = new FakeBackend(family);
      this.services.push(backend);
      return backend;
    };
    const dependencies = testDependencies({
      clock,
      commands: new FakeCommandRunner().on("", {}),
      backends: { userspace: made, nftables: made },
      routingBackends: this.backends,
      process: { uid: 1000, hostname: node },
    });
    await this.run({ ...dependencies, moreControllers: [ROUTING_CONTROLLER] }, [
      ...(isRouting ? ["--routing"] : []),
      ...["--iptables-min-sync-period=0s", `--hostname-override=${node}`],
      ...args,
    ], {
      ...{ mode, families, clock, api },
      isUp: () => this.services.length > 0 && this.services.every(({ syncs }) => syncs.length > 0),
    });
  }

  /** The answer of the health server: its code, and whether each loop is healthy. */
  async health(): Promise<readonly [code: number, loops: Readonly<Record<string, boolean>>]> {
    const answer = await fetch(`http://127.0.0.1:${this.healthPort}/healthz`);
    const { status } = await answer.json() as {
      readonly status: Readonly<Record<string, { readonly healthy: boolean }>>;
    };
    const loops = Object.entries(status).map(([name, { healthy }]) => [name, healthy] as const);
    return [answer.status, Object.fromEntries(loops)];
  }

  /** Ends it as SIGTERM does. */
  async stop(): Promise<void> {
    this.ending.abort();
    let hasEnded = false;
    this.running.finally(() => hasEnded = true).catch(() => {});
    await this.until("it has ended", () => hasEnded, { stepMs: 20 });
    await this.running;
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    // Timers of connections that go down keep no event loop alive.
    const timer = setInterval(() => {}, 1000);
    await this.stop();
    clearInterval(timer);
    await Deno.remove(this.folder, { recursive: true });
  }
}
