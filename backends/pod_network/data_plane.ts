/**
 * The network of pods on this node: routes and tunnels to the pods of other nodes, the CNI
 * configuration, and the rule that masquerades traffic out of the cluster. Each sync reads the machine
 * and writes the difference, so an earlier run needs no record, and nothing is lost by a restart.
 *
 * @module
 */
import type {
  CleanupReport,
  DataPlane,
  Quarantined,
  SyncReport,
} from "../../lib/controller/data_plane.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import type { Logger } from "../../lib/log/logger.ts";
import { IP_FAMILIES, ipFamilyOf } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import type { RoutingDifference } from "../../lib/routing/compare_layer2.ts";
import type { PodNetworkPlan } from "../../lib/routing/pod_network_plan.ts";
import { IpRunner } from "../iproute/ip_runner.ts";
import { watchLinks } from "../iproute/link_watch.ts";
import { cleanUpPodNetwork, type PodNetworkOptions } from "./cleanup.ts";
import { cniText, readCniFile, writeCniFile } from "./cni_file.ts";
import {
  machineChanges,
  mtuOfPods,
  POD_ROUTE_PROTOCOL,
  type PodChange,
  type PodMachine,
  sampleOf,
  type ShadowedRoute,
  shadowedRoutes,
} from "./machine_changes.ts";
import { writeIptablesMasquerade } from "./masquerade_iptables.ts";
import {
  hasMasquerade,
  hasNft,
  masqueradeText,
  readMasquerade,
  writeMasquerade,
} from "./masquerade.ts";

/** The parts besides nodes that may be in quarantine. */
const [CNI, MASQUERADE] = ["CNI configuration", "masquerade"] as const;

/** The edges that {@linkcode PodNetworkDataPlane} needs. */
interface PodNetworkEdges {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly logger: Logger;
}

/** Carries plans out. Its keys are nodes (`Node NAME`) and the other parts. */
export class PodNetworkDataPlane implements DataPlane<PodNetworkPlan, object, SyncReport<string>> {
  readonly #edges: PodNetworkEdges;
  readonly #commands: CommandRunner;
  readonly #options: PodNetworkOptions;
  readonly #turns = new OneAtATime();
  /** Chosen by the first sync that masquerades. */
  #tool: "nft" | "iptables" | undefined;
  /** Whether rules of an earlier run were looked for. */
  #hasNoRules = false;

  constructor(edges: PodNetworkEdges, options: PodNetworkOptions) {
    this.#edges = edges;
    this.#commands = edges.commands;
    this.#options = options;
  }

  start(): Promise<void> {
    return Promise.resolve();
  }

  /** One bad Node, a folder that cannot be written, or a missing `nft` stops nothing else. */
  sync(plan: PodNetworkPlan): Promise<SyncReport<string>> {
    return this.#turns.run(async () => {
      const quarantined: Quarantined<string>[] = plan.problems.map(({ node, reason }) => ({
        key: `Node ${node}`,
        reason,
      }));
      const attempt = async (key: string, write: () => Promise<boolean>) => {
        try {
          return Number(await write());
        } catch (error) {
          quarantined.push({ key, reason: messageOf(error) });
          return 0;
        }
      };
      // First, or the first connections over a new route would keep another source until they end.
      const tables = await attempt(MASQUERADE, () => this.#writeMasquerade(plan));
      const machine = await readMachine(this.#commands);
      const changes = machineChanges(plan, machine);
      const failed = await this.#apply(changes);
      for (const [{ object, name, node }, reason] of failed) {
        const key = node === undefined ? `${object} ${name}` : `Node ${node}`;
        quarantined.push({ key, reason: reason + remedyOf(reason) });
      }
      const missing = new Set([...failed.keys()].map(({ name }) => name));
      for (const { node, name, found } of await this.#shadowed(plan, missing)) {
        const reason = `packets to ${name} do not take the route to the node: ${found}. Remove it`;
        quarantined.push({ key: `Node ${node}`, reason });
      }
      const files = await attempt(CNI, () => this.#writeCni(plan, machine));
      const count = (object: PodChange["object"]) =>
        changes.filter((each) => each.object === object).length;
      const operations = { routes: count("route"), tunnels: count("tunnel"), files, tables };
      return {
        full: true,
        operations: Object.fromEntries(Object.entries(operations).filter(([, n]) => n > 0)),
        quarantined,
      };
    });
  }

  /** The text that a machine without any of it would be given. */
  *render(plan: PodNetworkPlan): Generator<string, void, void> {
    const machine: PodMachine = { links: [], routes: [] };
    yield "# Routes and tunnels, for 'ip -batch'.\n";
    for (const { lines } of machineChanges(plan, machine)) {
      for (const line of lines) yield `${line}\n`;
    }
    if (plan.masquerade) {
      yield "# Traffic of pods that leaves the cluster, for 'nft -f'.\n";
      yield masqueradeText(plan.masquerade);
    }
    if (!plan.cni) return;
    yield `# ${plan.cni.path}\n`;
    yield cniText({ ...plan, ...plan.cni, mtu: mtuOfPods(plan, machine) });
  }

  /** How the machine differs. Changes nothing. */
  async compare(plan: PodNetworkPlan): Promise<readonly RoutingDifference[]> {
    const machine = await readMachine(this.#commands);
    const changes = machineChanges(plan, machine);
    const differences: RoutingDifference[] = changes
      .map(({ object, node: _, lines: __, ...rest }) => ({ object: `pod ${object}`, ...rest }));
    const missing = new Set(
      changes.filter(({ kind }) => kind === "missing").map(({ name }) => name),
    );
    const shadowed = await this.#shadowed(plan, missing);
    const cni = await this.#compareCni(plan, machine);
    return [
      ...differences,
      ...shadowed.map(({ node: _, ...difference }) => difference),
      ...cni,
      ...await this.#compareMasquerade(plan),
    ];
  }

  /** By iptables it is only repaired. */
  async #compareMasquerade({ masquerade }: PodNetworkPlan): Promise<readonly RoutingDifference[]> {
    const commands = this.#commands;
    if (!await hasNft(commands)) return [];
    const found = await readMasquerade(commands);
    const place = { object: "table", name: MASQUERADE };
    if (masquerade === undefined) {
      return found === undefined ? [] : [{ ...place, kind: "extra" }];
    }
    if (found === undefined) return [{ ...place, kind: "missing" }];
    return hasMasquerade(found, masquerade) ? [] : [{ ...place, kind: "altered" }];
  }

  /** The routes, without those that the machine does not have, whose packets take another one. */
  async #shadowed(
    plan: PodNetworkPlan,
    missing: ReadonlySet<string>,
  ): Promise<readonly ShadowedRoute[]> {
    const commands = this.#commands;
    const chosen = await Promise.all(IP_FAMILIES.map(async (family) => {
      const samples = plan.routes.map(({ destination }) => sampleOf(destination))
        .filter((sample) => ipFamilyOf(sample) === family);
      return [...await new IpRunner(commands, { family }).chosenRoutes(samples)];
    }));
    return shadowedRoutes(plan, { missing, chosen: new Map(chosen.flat()) });
  }

  /** Calls back when a link or an address of the machine changed, until the signal is aborted. */
  async watch(onChange: () => void, signal: AbortSignal): Promise<void> {
    const { logger } = this.#edges;
    await watchLinks(this.#edges, {
      ...{ onChange, signal },
      onEnd: (error) =>
        logger.verbose(1, "Cannot watch the links of this machine; they are read at an interval", {
          error,
        }),
    });
  }

  recheck(): void {}

  cleanup(): Promise<CleanupReport> {
    return this.#cleanUp({ dryRun: false });
  }

  previewCleanup(): Promise<CleanupReport> {
    return this.#cleanUp({ dryRun: true });
  }

  drain(): Promise<void> {
    return Promise.resolve();
  }

  /** Routes stay: pods run without kube-relay. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#turns.run(() => Promise.resolve());
  }

  /** Returns the changes that failed, and the reasons. */
  async #apply(changes: readonly PodChange[]): Promise<ReadonlyMap<PodChange, string>> {
    const items = changes.flatMap((change) => change.lines.map((line) => ({ change, line })));
    const failures = await new IpRunner(this.#commands).batch(items, ({ line }) => line);
    const failed = new Map<PodChange, string>();
    for (const [{ change, line }, { kind, message }] of failures) {
      const isGone = change.kind === "extra" && kind === "absent";
      // The lines after the first one fail because of it.
      if (!isGone && !failed.has(change)) failed.set(change, `cannot ${line}: ${message}`);
    }
    return failed;
  }

  async #writeCni(plan: PodNetworkPlan, machine: PodMachine): Promise<boolean> {
    // Without ranges there is nothing better than what the last sync wrote.
    if (!plan.cni || plan.podCidrs.length === 0) return false;
    const text = cniText({ ...plan, ...plan.cni, mtu: mtuOfPods(plan, machine) });
    return await writeCniFile(plan.cni.path, text);
  }

  async #writeMasquerade({ masquerade }: PodNetworkPlan): Promise<boolean> {
    const commands = this.#commands;
    if (masquerade === undefined) {
      // An earlier run may have written them. A machine that cannot have them has none.
      if (this.#hasNoRules) return false;
      const write = await hasNft(commands) ? writeMasquerade : writeIptablesMasquerade;
      const isRemoved = await write(commands, undefined);
      this.#hasNoRules = true;
      return isRemoved;
    }
    this.#tool ??= await hasNft(commands) ? "nft" : "iptables";
    if (this.#tool === "nft") return await writeMasquerade(commands, masquerade);
    return await writeIptablesMasquerade(commands, masquerade);
  }

  async #compareCni(
    plan: PodNetworkPlan,
    machine: PodMachine,
  ): Promise<readonly RoutingDifference[]> {
    if (!plan.cni || plan.podCidrs.length === 0) return [];
    const text = cniText({ ...plan, ...plan.cni, mtu: mtuOfPods(plan, machine) });
    const place = { object: "CNI configuration", name: plan.cni.path };
    try {
      const found = await readCniFile(plan.cni.path);
      if (found === text) return [];
      return [{ ...place, kind: found === undefined ? "missing" : "altered" }];
    } catch (error) {
      return [{ ...place, kind: "altered", found: messageOf(error) }];
    }
  }

  #cleanUp({ dryRun }: { readonly dryRun: boolean }): Promise<CleanupReport> {
    const options = { ...this.#options, dryRun };
    const commands = this.#commands;
    return this.#turns.run(async () =>
      cleanUpPodNetwork({ commands, machine: await readMachine(commands) }, options)
    );
  }
}

async function readMachine(commands: CommandRunner): Promise<PodMachine> {
  const links = await new IpRunner(commands).links();
  const protocol = { protocol: POD_ROUTE_PROTOCOL };
  const routes = IP_FAMILIES.map((family) => new IpRunner(commands, { family }))
    .map((ip) => ip.routes("main", protocol));
  return { links, routes: (await Promise.all(routes)).flat() };
}

/** Messages of the kernel that do not say what to do. */
function remedyOf(reason: string): string {
  if (reason.includes("Unknown device type")) {
    return "; the kernel has no such tunnels: load the module ipip (ip6_tunnel for IPv6)";
  }
  if (!reason.includes("File exists")) return "";
  return reason.includes("link add")
    ? "; another program has a tunnel with the same ends: remove it"
    : "; another program has a route with the same metric: remove it";
}
