/**
 * The tasks at the beginning of a run: the identity of the node, the settings of the machine, and the
 * events about the Node.
 *
 * @module
 */
import type { Node } from "../../api/kinds/node.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { VERSION } from "../../config/version.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import type { KubeClient } from "../../kube/client.ts";
import { type EventSink, NO_EVENTS, nodeRegarding } from "../../kube/event.ts";
import { EventRecorder } from "../../kube/event_recorder.ts";
import type { Logger } from "../../log/logger.ts";
import {
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  isUnspecified,
  parseIpAddress,
} from "../../net/ip_address.ts";
import { CommandError, type CommandRunner } from "../../os/command_runner.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import type { HostSettingOutcome } from "../../proxy/host_setting.ts";
import { type NodeState, nodeStateFromNode } from "../../proxy/node_state.ts";
import type { Dependencies, ProcessInfo } from "../dependencies.ts";
import { checkSanity } from "./config_sanity.ts";
import {
  hostSettingRequests,
  HostSettings,
  modeSettingRequests,
  type RequestingBackend,
} from "./host_settings.ts";
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

/** kube-proxy waits this long for addresses of the Node, and then uses loopback addresses. */
const ADDRESS_WAIT_MS = 30_000;
/** kube-proxy then waits this long for `podCIDRs` in mode NodeCIDR, and exits. */
const POD_CIDR_WAIT_MS = 300_000;

/** The configuration and this node contradict each other in a way that makes every rule wrong. */
export class NodeMismatchError extends Error {
  override name = "NodeMismatchError";
}

/**
 * The beginning of a run: who the own node is, what its machine must have, and the events about it.
 *
 * kube-proxy waits for the Node before it does anything, and exits if `podCIDRs` change. kube-relay does
 * not wait: rules follow from what is known, and then from the Node. The process only exits if every
 * rule would be wrong.
 */
export class StartUp {
  readonly #dependencies: StartUpDependencies;
  readonly #configuration: RunConfiguration;
  readonly #name: string;
  /** Whether there is a cluster that has the Node. */
  readonly #isExpected: boolean;
  readonly #recorder: EventRecorder | undefined;
  readonly #mismatch = Promise.withResolvers<never>();
  readonly #reported = new Set<string>();
  /** The effective configuration. */
  #proxy: KubeProxyConfiguration;
  #settings: HostSettings | undefined;
  #backends: readonly RequestingBackend[] = [];
  /** The fields and annotations of the Node that were read last. */
  #state: NodeState;
  #annotations: Readonly<Record<string, string>> | undefined;
  #ofRoutes: readonly IpAddress[] = [];
  #addresses: NodeAddresses | undefined;
  #known = Promise.withResolvers<void>();
  #ranges = Promise.withResolvers<void>();

  constructor(
    dependencies: StartUpDependencies,
    configuration: RunConfiguration,
    nodeName: string,
  ) {
    this.#dependencies = dependencies;
    this.#configuration = configuration;
    this.#proxy = configuration.proxy;
    this.#name = nodeName;
    this.#state = nodeStateFromNode(undefined, nodeName);
    // A caller that does not call watchNode() is not ended by a rejection.
    this.#mismatch.promise.catch(() => {});
    this.#isExpected = configuration.relay.manifests.length === 0;
    if (!this.#isExpected) return;
    const { clock, logger, random } = dependencies;
    this.#recorder = new EventRecorder(clock, logger, random, {
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
    const { zone } = this.#state;
    const annotations = this.#annotations;
    return {
      name: this.#name,
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
    this.#settings = new HostSettings(this.#dependencies, requests, modeSettingRequests(options));
    await this.#settings.apply();
  }

  /**
   * Starts the tasks next to the sync loop. Without a `client` no events are written. Resolves when
   * the client is no longer needed, shortly after the tasks were stopped.
   */
  start(tasks: TaskGroup, client: KubeClient | undefined): Promise<void> {
    const settings = this.#settings;
    this.#logLocalTraffic();
    tasks.run("node identity", (signal) => this.watchNode(signal));
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

  /** Sets the effective configuration, and checks it against the known facts. */
  onConfiguration(proxy: KubeProxyConfiguration): void {
    this.#proxy = proxy;
    if (this.#addresses !== undefined) this.#decide();
  }

  /** Takes the addresses by which the default routes send, for a host without a cluster. */
  onRouteSources(addresses: readonly IpAddress[]): void {
    this.#ofRoutes = addresses;
    if (this.#addresses !== undefined) this.#decide();
  }

  /** Receives a state of the own Node. */
  onNode(node: Node): void {
    const before = this.#state;
    this.#annotations = node.metadata.annotations;
    this.#state = nodeStateFromNode(node, this.#name);
    const { addresses, podCidrs } = this.#state;
    if (addresses.length > 0) {
      this.#decide();
      this.#known.resolve();
    }
    if (!this.#usesPodCidrs || deepEqual(before.podCidrs, podCidrs)) return;
    if (podCidrs.length > 0) this.#ranges.resolve();
    if (before.podCidrs.length === 0) {
      this.#dependencies.logger.info("Chose podCIDRs of the Node as the ranges of pods", {
        podCIDRs: podCidrs,
      });
    } else {
      this.#dependencies.logger.warn(
        "The podCIDRs of the Node changed; the ranges of pods follow",
        {
          before: before.podCidrs,
          now: podCidrs,
        },
      );
    }
  }

  /** The own Node was deleted. Its last state is still the best information. */
  onNodeDeleted(): void {
    this.#dependencies.logger.warn("The Node was deleted; continuing with its last known state", {
      node: this.#name,
    });
  }

  /** Logs if the Node does not appear for long. Rejects with a {@linkcode NodeMismatchError}. */
  async watchNode(signal: AbortSignal): Promise<void> {
    const waiting = this.#wait(signal).catch((error) => {
      if (!signal.aborted) throw error;
    });
    await Promise.race([
      Promise.all([waiting, whenAborted(signal)]),
      this.#mismatch.promise,
    ]);
  }

  /** Whether the primary family is a guess, so that a mismatch may still be right. */
  get #guesses(): boolean {
    return this.#isExpected && this.#state.addresses.length === 0 &&
      isUnspecified(parseIpAddress(this.#proxy.bindAddress));
  }

  get #usesPodCidrs(): boolean {
    return this.#proxy.detectLocalMode === "NodeCIDR";
  }

  async #wait(signal: AbortSignal): Promise<void> {
    if (!this.#isExpected) return this.#decide();
    if (!isNodeName(this.#name)) {
      this.#dependencies.logger.warn(
        "No Node can have this name; set the Node's name with --hostname-override",
        {
          node: this.#name,
        },
      );
    }
    if (!await this.#comesWithin(ADDRESS_WAIT_MS, this.#known.promise, signal)) {
      this.#dependencies.logger.warn(
        "Continuing without addresses of the Node; they are used when they appear",
        {
          node: this.#name,
          waitedMs: ADDRESS_WAIT_MS,
        },
      );
      this.#decide();
    }
    if (!this.#usesPodCidrs) return;
    if (!await this.#comesWithin(POD_CIDR_WAIT_MS, this.#ranges.promise, signal)) {
      this.#dependencies.logger.error(
        "Cannot recognize pods until the Node has podCIDRs: nothing is masqueraded " +
          "for detectLocalMode NodeCIDR; start the controller that sets them, or use another detectLocalMode",
        { node: this.#name, waitedMs: POD_CIDR_WAIT_MS },
      );
    }
  }

  async #comesWithin(ms: number, what: Promise<void>, signal: AbortSignal): Promise<boolean> {
    const waited = new AbortController();
    const sleep = this.#dependencies.clock.sleep(ms, AbortSignal.any([signal, waited.signal]));
    const came = await Promise.race([what.then(() => true), sleep.then(() => false)]);
    sleep.catch(() => {});
    waited.abort();
    return came;
  }

  #decide(): void {
    const { mode, families } = this.#configuration;
    const proxy = this.#proxy;
    const { addresses: ofNode, podCidrs } = this.#state;
    const addresses = nodeAddressesOf(ofNode, parseIpAddress(proxy.bindAddress), this.#ofRoutes);
    if (!deepEqual(addresses, this.#addresses)) {
      const { primary, IPv4, IPv6 } = addresses;
      const message = this.#addresses === undefined
        ? "Chose node addresses"
        : "The addresses of the Node changed; node ports follow";
      this.#dependencies.logger.info(message, {
        primaryFamily: primary,
        IPv4: `${IPv4.address} (${IPv4.origin})`,
        IPv6: `${IPv6.address} (${IPv6.origin})`,
      });
    }
    this.#addresses = addresses;
    const { primary } = addresses;
    this.#tellPrimary(primary);
    for (const finding of checkSanity(proxy, { mode, families, primary, podCidrs })) {
      const text = `${finding.field}: ${finding.problem}`;
      if (finding.severity === "fatal" && this.#guesses) continue;
      if (this.#reported.has(text)) continue;
      this.#reported.add(text);
      if (finding.severity === "fatal") {
        this.#mismatch.reject(new NodeMismatchError(`Cannot continue: ${text}`));
      } else this.#dependencies.logger.warn("Setting is not plausible", { ...finding });
    }
  }

  /** kube-proxy exits here. Serving the other family is better than nothing. */
  #tellPrimary(primary: IpFamily): void {
    const { families } = this.#configuration;
    if (families.includes(primary) || this.#guesses || this.#reported.has(primary)) return;
    this.#reported.add(primary);
    this.#dependencies.logger.error(
      "The node's own IP family is not available here; nothing is served in it",
      {
        primaryFamily: primary,
        families: families.join(", "),
        cure: "a mode and a kernel that have it: see `kube-relay doctor`",
      },
    );
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
    const regarding = nodeRegarding(this.#name);
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

/**
 * Returns `hostnameOverride`, else the machine's name in small letters, as the kubelet does.
 * Throws if both are empty, as kube-proxy does.
 */
export function nodeNameOf(
  { hostnameOverride }: Pick<KubeProxyConfiguration, "hostnameOverride">,
  { hostname }: Pick<ProcessInfo, "hostname">,
): string {
  const name = hostnameOverride || hostname.trim().toLowerCase();
  if (name !== "") return name;
  throw new Error(
    "Cannot determine the name of this node: the machine has no host name; set one, or " +
      "the Node's with --hostname-override",
  );
}

/** RFC 1123, as Kubernetes requires for names of objects. */
const NODE_NAME = /^(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

/** Whether a Node can have this name: letters, digits, `-` and `.`, up to 253. */
export function isNodeName(name: string): boolean {
  return NODE_NAME.test(name);
}

/** Source of an address: one of these, or none, which means loopback. */
type NodeAddressOrigin = "Node" | "bindAddress" | "default route" | "none";

/** The node's address in one family. */
interface NodeAddress {
  readonly address: IpAddress;
  readonly origin: NodeAddressOrigin;
}

/** The node's addresses, and the family that a single-stack host uses. */
export interface NodeAddresses {
  readonly primary: IpFamily;
  readonly IPv4: NodeAddress;
  readonly IPv6: NodeAddress;
}

const LOOPBACK: Readonly<Record<IpFamily, NodeAddress>> = {
  IPv4: { address: "127.0.0.1" as IpAddress, origin: "none" },
  IPv6: { address: "::1" as IpAddress, origin: "none" },
};

/**
 * Chooses from the Node's addresses (InternalIPs, then ExternalIPs) and `bindAddress`, which
 * overrides the Node in its family unless it is unspecified. The first address decides which family
 * is primary: a cluster that is IPv6 first lists IPv6 first. Without a Node, `ofRoutes` has the
 * addresses by which the default routes send.
 */
export function nodeAddressesOf(
  ofNode: readonly IpAddress[],
  bindAddress: IpAddress,
  ofRoutes: readonly IpAddress[] = [],
): NodeAddresses {
  const pick = (family: IpFamily): NodeAddress => {
    if (!isUnspecified(bindAddress) && ipFamilyOf(bindAddress) === family) {
      return { address: bindAddress, origin: "bindAddress" };
    }
    const find = (addresses: readonly IpAddress[]) =>
      addresses.find((candidate) => ipFamilyOf(candidate) === family);
    const [address, ofRoute] = [find(ofNode), find(ofRoutes)];
    if (address !== undefined) return { address, origin: "Node" };
    return ofRoute === undefined ? LOOPBACK[family] : { address: ofRoute, origin: "default route" };
  };
  const first = isUnspecified(bindAddress) ? ofNode[0] ?? ofRoutes[0] : bindAddress;
  return {
    primary: first === undefined ? "IPv4" : ipFamilyOf(first),
    IPv4: pick("IPv4"),
    IPv6: pick("IPv6"),
  };
}
