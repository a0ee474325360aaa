/**
 * The network of pods on this node. Each sync reads the machine and writes the difference, so an
 * earlier run needs no record, and nothing is lost by a restart.
 *
 * @module
 */
import type { CleanupReport, DataPlaneEdges, SyncReport } from "../../../lib/engine/data_plane.ts";
import { Reconciler } from "../../../lib/engine/reconciler.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import type { RoutingDifference } from "../../../lib/routing/compare_layer2.ts";
import type { PodNetworkPlan } from "../../../lib/routing/pod_network_plan.ts";
import { watchLinks } from "../../iproute/link_watch.ts";
import { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import { readOwnFile } from "../own_file.ts";
import { CNI_FILE } from "./cni_file.ts";
import { IptablesMasquerade } from "./masquerade_iptables.ts";
import { hasNft, masqueradeText, type MasqueradeTool, NftMasquerade } from "./masquerade.ts";
import { podObjects, PodTarget } from "./target.ts";

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
export class PodNetworkDataPlane implements AsyncDisposable {
  readonly #edges: Omit<DataPlaneEdges, "random">;
  readonly #options: PodNetworkOptions;
  readonly #turns = new OneAtATime();
  readonly #target: PodTarget;
  readonly #engine: Reconciler<string, unknown, string>;

  constructor(edges: Omit<DataPlaneEdges, "random">, options: PodNetworkOptions) {
    this.#edges = edges;
    this.#options = options;
    this.#target = new PodTarget(edges.commands);
    this.#engine = new Reconciler(edges, this.#target);
  }

  /** One bad Node, a folder that cannot be written, or a missing `nft` stops nothing else. */
  sync(plan: PodNetworkPlan): Promise<SyncReport<string>> {
    return this.#turns.run(async () => {
      const target = this.#target;
      target.plan = plan;
      await this.#engine.sync();
      const shadowed = await target.shadowed(new Set(target.failed.keys()));
      const quarantined = [
        ...plan.problems.map(({ node, reason }) => ({ key: `Node ${node}`, reason })),
        ...target.failed.values(),
        ...shadowed.map(({ node, name, found }) => ({
          key: `Node ${node}`,
          reason: `packets to ${name} do not take the route to the node: ${found}. Remove it`,
        })),
      ];
      return { full: true, operations: target.operations, quarantined };
    });
  }

  /** The text that a machine without any of it would be given. */
  *render(plan: PodNetworkPlan): Generator<string, void, void> {
    const objects = podObjects(plan, [], undefined);
    yield "# Routes and tunnels, for 'ip -batch'.\n";
    for (const line of objects.flatMap(({ lines }) => lines?.(undefined) ?? [])) yield `${line}\n`;
    if (plan.masquerade) {
      yield "# Traffic of pods that leaves the cluster, for 'nft -f'.\n";
      yield masqueradeText(plan.masquerade);
    }
    for (const { kind, name, text } of objects) if (kind === "file") yield `# ${name}\n${text}`;
  }

  /** How the machine differs. Changes nothing. */
  compare(plan: PodNetworkPlan): Promise<readonly RoutingDifference[]> {
    return this.#turns.run(async () => {
      const target = this.#target;
      target.plan = plan;
      const changes = await this.#engine.compare();
      const unread = target.unread.get("table");
      if (unread) throw unread;
      const missing = changes.filter(({ before }) => before === undefined);
      const shadowed = await target.shadowed(new Set(missing.map(({ name }) => name)));
      return [
        ...changes.map((change) => target.difference(change)),
        ...shadowed.map(({ node: _, ...difference }) => difference),
      ];
    });
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

  cleanup({ dryRun } = { dryRun: false }): Promise<CleanupReport> {
    return this.#turns.run(() => this.#cleanUp(dryRun));
  }

  /** Routes stay: pods run without kube-relay. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#turns.run(() => Promise.resolve());
  }

  /** Removes everything that any run added, or only reports it. */
  async #cleanUp(dryRun: boolean): Promise<CleanupReport> {
    const { commands } = this.#edges;
    const { cniFiles, isThorough = false } = this.#options;
    const run = new RemovalRun({ commands }, { dryRun });
    const devices = [...await this.#target.readDevices()].flatMap(([kind, texts]) =>
      [...texts.keys()].map((name) => ({ kind, name, after: undefined }))
    );
    if (devices.length > 0) {
      const lines = devices.flatMap((each) => this.#target.linesOf(each));
      await run.do("routes to pods and tunnels", {
        command: ["ip", "-force", "-batch", "-"],
        input: () => lines.map((line) => `${line}\n`),
        removes: devices.map(({ kind, name }) =>
          `${kind} ${name}${kind === "route" ? " to pods" : ""}`
        ),
      });
    }
    // A tool that fails today may have written the table: the look at the table then has the reason.
    const isNft = await hasNft(commands).catch(() => true);
    const tools: MasqueradeTool[] = isNft ? [new NftMasquerade(commands)] : [];
    if (!isNft || isThorough) tools.push(new IptablesMasquerade(commands));
    for (const tool of tools) {
      try {
        for await (const step of tool.removals()) await run.do(tool.place, step);
      } catch (error) {
        run.unseen(tool.place, messageOf(error));
      }
    }
    for (const path of new Set(cniFiles)) await removeCniFile(path, run);
    return run.report();
  }
}

async function removeCniFile(path: string, run: RemovalRun): Promise<void> {
  try {
    if (await readOwnFile(path, CNI_FILE) !== undefined) await run.removeFile(path);
  } catch (error) {
    run.keep(messageOf(error));
  }
}
