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
import { IP_FAMILIES } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import type { RoutingDifference } from "../../lib/routing/compare_layer2.ts";
import type { PodNetworkPlan } from "../../lib/routing/pod_network_plan.ts";
import { IpRunner } from "../iproute/ip_runner.ts";
import { cleanUpPodNetwork } from "./cleanup.ts";
import { cniText, readCniFile, writeCniFile } from "./cni_file.ts";
import {
  machineChanges,
  mtuOfPods,
  POD_ROUTE_PROTOCOL,
  type PodChange,
  type PodMachine,
} from "./machine_changes.ts";
import { writeIptablesMasquerade } from "./masquerade_iptables.ts";
import { hasNft, masqueradeText, readMasquerade, writeMasquerade } from "./masquerade.ts";

/** The parts besides nodes that may be in quarantine. */
const [CNI, MASQUERADE] = ["CNI configuration", "masquerade"] as const;

/** The options of {@linkcode PodNetworkDataPlane}. */
export interface PodNetworkOptions {
  /** Files of CNI configurations that an earlier run may have written. */
  readonly cniFiles: readonly string[];
  /**
   * Whether a cleanup looks at iptables even if nftables works here. The look may load modules.
   * @default {false}
   */
  readonly isThorough?: boolean;
}

/** Carries plans out. Its keys are nodes (`Node NAME`) and the other parts. */
export class PodNetworkDataPlane implements DataPlane<PodNetworkPlan, object, SyncReport<string>> {
  readonly #commands: CommandRunner;
  readonly #options: PodNetworkOptions;
  readonly #turns = new OneAtATime();
  /** Chosen by the first sync that masquerades. */
  #tool: "nft" | "iptables" | undefined;
  /** Whether rules of an earlier run were looked for. */
  #hasNoRules = false;

  constructor(
    { commands }: { readonly commands: CommandRunner },
    options: PodNetworkOptions,
  ) {
    this.#commands = commands;
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
      quarantined.push(...await this.#apply(changes));
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
    const differences: RoutingDifference[] = machineChanges(plan, machine)
      .map(({ object, node: _, lines: __, ...rest }) => ({ object: `pod ${object}`, ...rest }));
    const cni = await this.#compareCni(plan, machine);
    const table = await readMasquerade(this.#commands).catch(() => undefined);
    // By iptables it is only repaired.
    const isMissing = plan.masquerade !== undefined && table === undefined &&
      await hasNft(this.#commands);
    return [
      ...differences,
      ...cni,
      ...isMissing ? [{ object: "table", name: MASQUERADE, kind: "missing" as const }] : [],
    ];
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

  async #apply(changes: readonly PodChange[]): Promise<Quarantined<string>[]> {
    const items = changes.flatMap((change) => change.lines.map((line) => ({ change, line })));
    const failures = await new IpRunner(this.#commands).batch(items, ({ line }) => line);
    const failed = new Map<PodChange, string>();
    for (const [{ change, line }, { kind, message }] of failures) {
      const isGone = change.kind === "extra" && kind === "absent";
      // The lines after the first one fail because of it.
      if (!isGone && !failed.has(change)) failed.set(change, `cannot ${line}: ${message}`);
    }
    return [...failed].map(([{ object, name, node }, reason]) => ({
      key: node === undefined ? `${object} ${name}` : `Node ${node}`,
      reason: reason + remedyOf(reason),
    }));
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
      this.#hasNoRules = true;
      const write = await hasNft(commands) ? writeMasquerade : writeIptablesMasquerade;
      return await write(commands, undefined).catch(() => false);
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
