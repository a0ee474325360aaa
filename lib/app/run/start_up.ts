/**
 * The tasks at the beginning of a run: the identity of the node, the settings of the machine, and the
 * event about the start on the Node.
 *
 * @module
 */
import type { Node } from "../../api/kinds/node.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import type { KubeClient } from "../../kube/client.ts";
import { type EventSink, NO_EVENTS, nodeRegarding } from "../../kube/event.ts";
import { EventRecorder } from "../../kube/event_recorder.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { Logger } from "../../log/logger.ts";
import { CommandError, type CommandRunner } from "../../os/command_runner.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import type { HostSettingOutcome } from "../../proxy/host_setting.ts";
import { VERSION } from "../../config/version.ts";
import type { Dependencies } from "../dependencies.ts";
import {
  hostSettingRequests,
  modeSettingRequests,
  type RequestingBackend,
} from "./host_setting_requests.ts";
import { HostSettings } from "./host_settings.ts";
import { NodeIdentity } from "./node_identity.ts";
import type { RunConfiguration } from "./run_configuration.ts";

/** The dependencies of {@linkcode StartUp}. */
type StartUpDependencies =
  & Pick<Dependencies, "clock" | "commands" | "process" | "random">
  & { readonly logger: Logger };

/** kube-proxy's name: dashboards and alerts select events by it. */
const CONTROLLER = "kube-proxy";
/** kube-proxy's name of the action. */
const ACTION = "StartKubeProxy";

/** This node. */
export interface StatusNode {
  readonly name: string;
  readonly zone?: string;
  /** Annotations that say how other software on the node was started. */
  readonly annotations?: Readonly<Record<string, string>>;
}

/** The beginning of a run. */
export class StartUp {
  readonly #dependencies: StartUpDependencies;
  readonly #configuration: RunConfiguration;
  readonly #identity: NodeIdentity;
  readonly #recorder: EventRecorder | undefined;
  /** The effective configuration. */
  #proxy: KubeProxyConfiguration;
  #settings: HostSettings | undefined;
  #backends: readonly RequestingBackend[] = [];

  constructor(
    dependencies: StartUpDependencies,
    { configuration, nodeName }: {
      readonly configuration: RunConfiguration;
      readonly nodeName: string;
    },
  ) {
    const { families, relay } = configuration;
    this.#dependencies = dependencies;
    this.#configuration = configuration;
    this.#proxy = configuration.proxy;
    const expected = relay.manifests.length === 0;
    this.#identity = new NodeIdentity(dependencies, {
      name: nodeName,
      configuration,
      families,
      expected,
    });
    if (!expected) return;
    this.#recorder = new EventRecorder(dependencies, {
      controller: CONTROLLER,
      // The machine's name, never the overridden one, as in kube-proxy.
      instance: `${CONTROLLER}-${dependencies.process.hostname}`,
    });
  }

  /** Accepts events from the first moment on. On a host without a cluster they are discarded. */
  get events(): EventSink {
    return this.#recorder ?? NO_EVENTS;
  }

  /** The own node, as far as it is known. */
  get node(): StatusNode {
    const { name, state: { zone }, annotations } = this.#identity;
    return {
      name,
      ...(zone !== undefined && { zone }),
      ...(annotations && { annotations }),
    };
  }

  /** The outcomes of the requested kernel settings. */
  get hostSettings(): readonly HostSettingOutcome[] {
    return this.#settings?.outcomes ?? [];
  }

  /** Applies the requested kernel settings, before a backend starts. Never rejects. */
  async prepare(backends: readonly RequestingBackend[]): Promise<void> {
    const { mode } = this.#configuration;
    this.#backends = backends;
    const options = { proxy: this.#proxy, mode, backends };
    const requests = await hostSettingRequests(this.#dependencies, options);
    this.#settings = new HostSettings(this.#dependencies, requests);
    await this.#settings.apply();
  }

  /**
   * Starts the tasks next to the sync loop. Without a `client` no events are written. Resolves when
   * the client is no longer needed, shortly after the tasks were stopped.
   */
  start(tasks: TaskGroup, client: KubeClient | undefined): Promise<void> {
    const settings = this.#settings;
    this.#logLocalTraffic();
    tasks.run("node identity", (signal) => this.#identity.run(signal));
    tasks.run("OOM score", () => this.#setOomScore());
    if (settings) tasks.run("kernel settings", (signal) => settings.run(signal));
    const recorder = this.#recorder;
    let written = Promise.resolve();
    if (!recorder || !client) return written;
    tasks.run("events", (signal) => written = recorder.run(client, signal));
    this.#reportStart();
    return written;
  }

  /** Called after the interfaces were read: new ones may have settings of their own. */
  onInterfaceAddresses(): void {
    const { mode } = this.#configuration;
    const options = { proxy: this.#proxy, mode, backends: this.#backends };
    this.#settings?.add(modeSettingRequests(options)).catch((error) =>
      this.#dependencies.logger.warn("Cannot check kernel settings of new interfaces", { error })
    );
  }

  /** Sets the effective configuration. */
  onConfiguration(proxy: KubeProxyConfiguration): void {
    this.#proxy = proxy;
    this.#identity.onConfiguration(proxy);
  }

  /** Takes the addresses by which the default routes send, for a host without a cluster. */
  onRouteSources(addresses: readonly IpAddress[]): void {
    this.#identity.onRouteSources(addresses);
  }

  /** Receives a state of the own Node. */
  onNode(node: Node): void {
    this.#identity.see(node);
  }

  /** The own Node was deleted. */
  onNodeDeleted(): void {
    this.#identity.lose();
  }

  synced(): void {
    this.#settings?.synced();
  }

  /** In mode NodeCIDR, the ranges are logged once the Node names them. */
  #logLocalTraffic(): void {
    const { mode, proxy: { detectLocalMode, detectLocal, clusterCIDR } } = this.#configuration;
    const by: Readonly<Record<string, string>> = {
      NodeCIDR: "podCIDRs of the Node",
      BridgeInterface: `interface ${detectLocal.bridgeInterface}`,
      InterfaceNamePrefix: `interfaces ${detectLocal.interfaceNamePrefix}*`,
    };
    const isUnknown = by[detectLocalMode] === undefined && clusterCIDR === "";
    const fields = {
      detectLocalMode,
      by: by[detectLocalMode] ?? (clusterCIDR || "nothing"),
      ...(isUnknown && {
        reason: "clusterCIDR is not set: every client counts as a pod, and none is masqueraded",
      }),
    };
    const message = "Chose how pods are recognized";
    // Userspace mode does not depend on it: every connection leaves from the node itself.
    if (MODE_TRAITS[mode].forwardsItself) this.#dependencies.logger.verbose(2, message, fields);
    else this.#dependencies.logger.info(message, fields);
  }

  #reportStart(): void {
    const { mode } = this.#configuration;
    const regarding = nodeRegarding(this.#identity.name);
    this.events.record({
      type: "Normal",
      reason: "Starting",
      action: ACTION,
      note: `Starting kube-relay ${VERSION} in mode ${mode}`,
      regarding,
    });
    const { deprecation } = MODE_TRAITS[mode];
    if (!deprecation) return;
    this.events.record({ type: "Warning", action: ACTION, regarding, ...deprecation });
  }

  async #setOomScore(): Promise<void> {
    const { commands, process, logger } = this.#dependencies;
    const adjust = this.#configuration.proxy.oomScoreAdj;
    const outcome = await setOomScore(commands, { pid: process.pid, adjust });
    // Not a warning, as in kube-proxy: a plain user is always refused, and nothing depends on it.
    if (outcome.state === "refused") {
      const { reason } = outcome;
      logger.verbose(2, "Cannot set OOM score; continuing without it", { adjust, reason });
    } else logger.verbose(2, "OOM score is set", { adjust, state: outcome.state });
  }
}

/** From -1000 (never) to 1000 (first). */
interface OomScore {
  readonly pid: number;
  readonly adjust: number;
}

/** The result. */
type OomScoreOutcome =
  | { readonly state: "kept" | "changed" }
  | { readonly state: "refused"; readonly reason: string };

/**
 * Sets how likely the kernel ends a process when memory runs out. A process that has the score, as
 * under a unit with `OOMScoreAdjust`, may set it again. Uses the tool `choom`, because Deno opens
 * `/proc/self/oom_score_adj` only with all permissions.
 *
 * Never throws: only root may go below the initial value, and kube-relay works without.
 */
export async function setOomScore(
  commands: CommandRunner,
  { pid, adjust }: OomScore,
): Promise<OomScoreOutcome> {
  try {
    const args = ["-n", String(adjust), "-p", String(pid)];
    const { code, stdout, stderr } = await commands.run("choom", args);
    if (code !== 0) {
      return { state: "refused", reason: stderr.trim() || `choom ended with code ${code}` };
    }
    const [, before] = /changed from (-?\d+)/.exec(stdout) ?? [];
    return { state: before === String(adjust) ? "kept" : "changed" };
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    return { state: "refused", reason: error.message };
  }
}
