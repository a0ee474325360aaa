/**
 * The controller of addresses and routes.
 *
 * @module
 */
import { LEASE } from "../../api/kinds/lease.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import { routingSettingsOf } from "../../config/parse_routing.ts";
import type {
  Controller,
  ControllerKind,
  ControllerStatus,
  ControlRoutes,
  DumpSection,
} from "../../controller/controller.ts";
import type { RunnerActivity } from "../../controller/sync_runner.ts";
import type { TaskGroup } from "../../controller/task_group.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import { FileManifestSource } from "../../kube/manifests/manifests.ts";
import { messageOf } from "../../log/message_of.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { type Cidr, tryParseCidr } from "../../net/cidr.ts";
import type { Timer } from "../../os/clock.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import { poolOf, poolUse } from "../../routing/address_pool.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import type { ControllerParts } from "../controllers.ts";
import { ControllerSource } from "../run/controller_source.ts";
import { routingRoutes } from "../explain/routing_questions.ts";
import { AddressAssigner } from "./address_assigner.ts";
import { AnnouncedServices } from "./announced_services.ts";
import { BgpPart } from "./bgp_part.ts";
import { Layer2Part } from "./layer2_part.ts";
import { RoutedObjects } from "./routed_objects.ts";
import { RoutingLeases } from "./routing_leases.ts";
import { routingAccess, routingKinds, routingKubeconfigOf, usesLayer2 } from "./routing_access.ts";
import {
  addressesInUse,
  bgpSummary,
  dumpedRouting,
  routingFacts,
  type ShownRouting,
} from "./routing_status.ts";

/** The first sync waits this long for the rules of Services. */
const SERVICES_WAIT_MS = 10_000;

/** Assigns addresses to Services of type LoadBalancer, and announces addresses and routes. */
export class RoutingController implements Controller {
  readonly name = "routing";
  readonly kinds: readonly ControllerKind[];
  readonly routes: ControlRoutes;
  /** The parts, for the tools. */
  readonly settings: RoutingSettings;
  readonly services: AnnouncedServices;
  readonly assigner: AddressAssigner;
  readonly layer2: Layer2Part | undefined;
  readonly bgp: BgpPart | undefined;
  readonly informers = new InformerSet();
  readonly #parts: ControllerParts;
  readonly #source: ControllerSource | undefined;
  readonly #leases: RoutingLeases | undefined;
  #networks: readonly Cidr[] = [];
  #isOpen = false;
  #waiting: Timer | undefined;

  constructor(parts: ControllerParts) {
    const { configuration: { proxy, relay }, nodeName, routingBackends: routing } = parts;
    const { informers } = this;
    const settings = this.settings = routingSettingsOf(proxy.routing);
    const clusterCidrs = cidrsOf(proxy.clusterCIDR);
    const isAlone = relay.manifests.length > 0;
    const { forwardsItself } = MODE_TRAITS[parts.configuration.mode];
    const kinds = routingKinds(settings).filter((spec) => !isAlone || spec !== LEASE);
    this.#parts = parts;
    this.kinds = kinds.map((spec) => ({ spec, informers, isInSection: spec !== NAMESPACE }));
    const services = this.services = new AnnouncedServices({
      informers,
      // In a network of the node, userspace mode takes only addresses that are local already.
      isExempt: (address) =>
        forwardsItself && poolOf(settings.pools, address)?.announce === "layer2",
    });
    const objects = new RoutedObjects({ informers }, {
      ...{ kinds, nodeName, isAlone, leaseNamespace: settings.leaseNamespace },
      clusterCidrs: () => clusterCidrs,
    });
    const assigner = this.assigner = new AddressAssigner(
      { ...parts, events: parts.startUp.events },
      {
        ...{ settings, services: objects.services, namespaces: objects.namespaces },
        onWritten: (outcome) => parts.metrics.routing.statusWritten(outcome),
      },
    );
    const made = routing && { ...parts, services, routing };
    const layer2 = this.layer2 = made && usesLayer2(settings)
      ? new Layer2Part(made, { settings, isAlone })
      : undefined;
    const bgp = this.bgp = made && settings.bgp
      ? new BgpPart(made, { settings, bgp: settings.bgp, clusterCidrs })
      : undefined;
    const leases = this.#leases = kinds.includes(LEASE)
      ? new RoutingLeases({ ...parts, assigner, layer2 }, { settings, nodeName })
      : undefined;
    objects.deliverTo({ services, assigner, layer2, bgp, leases });
    services.follow(() => {}, () => objects.setTaken());
    this.routes = routingRoutes({
      bgp,
      held: () => this.#held,
      layer2: () => layer2?.compared ?? { owned: new Set(), others: [] },
      interfaceAddresses: () => parts.network.interfaceAddresses(),
    });
    parts.serviceObservers.push(services, { synced: () => this.#openIfReady() });
    if (isAlone) return;
    this.#source = new ControllerSource(parts, {
      ...{ configuration: parts.configuration, informers },
      kubeconfig: routingKubeconfigOf(proxy),
      needed: routingAccess(settings),
    });
    parts.source.reportWith(this.#source);
  }

  get activity(): readonly RunnerActivity[] {
    return this.#loops.map(({ activity }) => activity);
  }

  async start(tasks: TaskGroup): Promise<void> {
    const { configuration: { relay }, clock } = this.#parts;
    await Promise.all(this.#loops.map((loop) => loop.start()));
    const source = this.#source;
    if (!source) {
      const dependencies = { clock, logger: SILENT_LOGGER };
      const { informers } = this;
      // The common source reports the problems of the files.
      const manifests = new FileManifestSource(dependencies, { paths: relay.manifests, informers });
      tasks.run("routing source", (signal) => manifests.run(signal));
      return;
    }
    tasks.run("routing source", async (signal) => {
      let claiming: Promise<void> | undefined;
      await source.run(signal, {
        ...(this.#leases && { keepOpen: this.#leases.released }),
        onGranted: (client) => claiming = this.#leases?.run(client, signal),
      });
      await claiming;
    });
  }

  open(): void {
    this.#isOpen = true;
    this.#waiting = this.#parts.clock.setTimer(SERVICES_WAIT_MS, () => this.#openLoops());
    this.#openIfReady();
  }

  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void {
    const networks = [...new Set(addresses.flatMap(({ network }) => network ?? []))].sort();
    if (`${networks}` === `${this.#networks}`) return;
    this.#networks = networks;
    this.bgp?.onNetworks(networks);
  }

  ownsAddress({ address }: InterfaceAddress): boolean {
    return this.layer2?.ownsAddress(address) === true;
  }

  /**
   * Gives addresses of layer 2 up, so that other nodes take them over. Sessions and routes of BGP stay,
   * as the rules of Services do, unless kube-relay forwards by itself.
   */
  async stop(): Promise<void> {
    const { configuration: { mode }, logger } = this.#parts;
    this.#waiting?.cancel();
    const failed = (error: unknown) =>
      logger.error("Cannot give load balancer addresses up", { error });
    await Promise.all([
      this.layer2?.leave().catch(failed).then(() => this.#leases?.release()),
      MODE_TRAITS[mode].forwardsItself ? this.bgp?.withdraw().catch(failed) : this.bgp?.loop.stop(),
      this.layer2 ? undefined : this.#leases?.release(),
    ]);
  }

  async drain(timeoutMs: number): Promise<void> {
    await this.bgp?.backend.drain(timeoutMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.layer2?.[Symbol.asyncDispose]();
    await this.bgp?.[Symbol.asyncDispose]();
  }

  async status({ brief }: { readonly brief: boolean }): Promise<ControllerStatus> {
    const shown = await this.#shown({ brief });
    const { bgp, layer2 } = this;
    const families = [
      ...(layer2?.families ?? []).map(({ loop, backend }) => {
        const { held, announcing } = backend.inspect();
        const problem = announcing === undefined ? "" : `; moves are not announced: ${announcing}`;
        return loop.status(`layer 2, answers for ${held.length}${problem}`);
      }),
      ...(bgp ? [{ ...bgp.loop.status(bgpSummary(bgp.plan)), controller: "bgp" as const }] : []),
    ];
    return { controller: this.name, families, facts: routingFacts(shown) };
  }

  async collectMetrics(): Promise<void> {
    const { metrics: { routing } } = this.#parts;
    for (const { family, backend } of this.layer2?.families ?? []) {
      routing.setLayer2Addresses(family, backend.inspect().held.length);
    }
    const { bgp, settings: { pools }, informers } = this;
    routing.setPools(poolUse(pools, addressesInUse(informers.of(ROUTED_SERVICE).values())));
    if (this.#leases) routing.setRefusals(this.assigner.refused?.length);
    if (!bgp) return;
    const { plan } = bgp;
    routing.setAnnounced(plan);
    routing.setSessions(plan ? await bgp.backend.sessions(plan).catch(() => []) : []);
  }

  dumpInputs(): DumpSection {
    const { informers, bgp, layer2 } = this;
    const { current, nodeName } = this.#parts;
    return dumpedRouting({
      routing: current.proxy.routing,
      nodeName,
      nodes: informers.of(ROUTED_NODE),
      services: informers.of(ROUTED_SERVICE),
      live: layer2?.live,
      isDraining: bgp?.isDraining ?? false,
      networks: this.#networks,
    });
  }

  get #held() {
    return (this.layer2?.families ?? []).flatMap(({ backend }) => backend.inspect().held);
  }

  get #loops() {
    return [
      ...(this.layer2?.families ?? []).map(({ loop }) => loop),
      ...(this.bgp ? [this.bgp.loop] : []),
    ];
  }

  async #shown({ brief }: { readonly brief: boolean }): Promise<ShownRouting> {
    const { bgp, layer2, settings, informers } = this;
    const plan = brief ? undefined : bgp?.plan;
    const sessions = plan && await bgp!.backend.sessions(plan).catch((error) => messageOf(error));
    return {
      settings,
      services: informers.of(ROUTED_SERVICE),
      leases: this.#leases && {
        node: this.#leases.node,
        allocator: this.#leases.allocator,
        writing: this.assigner.problem,
      },
      refused: brief ? [] : this.assigner.refused ?? [],
      owned: brief ? [] : layer2?.view() ?? [],
      ...(plan && { bgp: { plan, sessions: sessions ?? [] } }),
    };
  }

  /** Until the rules of all Services are in force, an announcement would be too early. */
  #openIfReady(): void {
    const { complete } = this.services;
    if (this.#parts.configuration.families.every((each) => complete.has(each))) this.#openLoops();
  }

  #openLoops(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#waiting?.cancel();
    for (const loop of this.#loops) loop.open();
  }
}

function cidrsOf(text: string): readonly Cidr[] {
  return text.split(",").flatMap((each) => tryParseCidr(each.trim()) ?? []);
}
