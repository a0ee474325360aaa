/**
 * The beginning of a run: who the own node is, whether the configuration suits it, and the events about
 * it.
 *
 * kube-proxy waits for the Node before it does anything, and exits if `podCIDRs` change. kube-relay does
 * not wait: rules follow from what is known, and then from the Node. The process only exits if every
 * rule would be wrong.
 *
 * @module
 */
import type { Node } from "../../api/kinds/node.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { tryParseListenAddress } from "../../config/listen_address.ts";
import { VERSION } from "../../config/version.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import type { KubeClient } from "../../kube/client.ts";
import { type EventSink, NO_EVENTS, nodeRegarding } from "../../kube/event.ts";
import { EventRecorder } from "../../kube/event_recorder.ts";
import type { Logger } from "../../log/logger.ts";
import { type Cidr, cidrFamilyOf, tryParseCidr } from "../../net/cidr.ts";
import {
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  isUnspecified,
  parseIpAddress,
  tryParseIpAddress,
} from "../../net/ip_address.ts";
import { CommandError } from "../../os/command_runner.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import { MODE_TRAITS, nodePortEntries } from "../../proxy/backend.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { type NodeState, nodeStateFromNode } from "../../proxy/node_state.ts";
import type { Dependencies, RunConfiguration } from "../dependencies.ts";

/** kube-proxy's name: dashboards and alerts select events by it. */
const CONTROLLER = "kube-proxy";
/** kube-proxy's name of the action. */
const ACTION = "StartKubeProxy";
/** kube-proxy waits this long for addresses of the Node, and then uses loopback addresses. */
const ADDRESS_WAIT_MS = 30_000;
/** kube-proxy waits this long for `podCIDRs` in mode NodeCIDR, and exits. */
const POD_CIDR_WAIT_MS = 300_000;
/** RFC 1123, as Kubernetes requires for names of objects. */
const NODE_NAME = /^(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

/** This node. */
export interface StatusNode {
  readonly name: string;
  readonly zone?: string;
  /** Annotations that say how other software on the node was started. */
  readonly annotations?: Readonly<Record<string, string>>;
}

/** The configuration and this node contradict each other in a way that makes every rule wrong. */
export class NodeMismatchError extends Error {
  override name = "NodeMismatchError";
}

/**
 * Returns `hostnameOverride`, else the machine's name in small letters, as the kubelet does.
 * Throws if both are empty, as kube-proxy does.
 */
export function nodeNameOf(
  { hostnameOverride }: Pick<KubeProxyConfiguration, "hostnameOverride">,
  { hostname }: Pick<Dependencies["process"], "hostname">,
): string {
  const name = hostnameOverride || hostname.trim().toLowerCase();
  if (name !== "") return name;
  throw new Error(
    "Cannot determine the name of this node: the machine has no host name; set one, or " +
      "the Node's with --hostname-override",
  );
}

/** Follows the own Node, and checks the configuration against it. */
export class StartUp {
  readonly #dependencies: Pick<Dependencies, "clock" | "commands" | "process"> & {
    readonly logger: Logger;
  };
  readonly #configuration: RunConfiguration;
  readonly #name: string;
  /** Absent on a host without a cluster. */
  readonly #recorder: EventRecorder | undefined;
  readonly #mismatch = Promise.withResolvers<never>();
  readonly #reported = new Set<string>();
  #proxy: KubeProxyConfiguration;
  /** The fields and annotations of the Node that were read last. */
  #state: NodeState;
  #annotations: Readonly<Record<string, string>> | undefined;
  #ofRoutes: readonly IpAddress[] = [];
  #addresses: ReturnType<typeof nodeAddressesOf> | undefined;

  constructor(
    dependencies: Pick<Dependencies, "clock" | "commands" | "process" | "random"> & {
      readonly logger: Logger;
    },
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
    if (configuration.relay.manifests.length > 0) return;
    const { clock, logger, random, process } = dependencies;
    // The machine's name, never the overridden one, as in kube-proxy.
    const instance = `${CONTROLLER}-${process.hostname}`;
    this.#recorder = new EventRecorder(clock, logger, random, { controller: CONTROLLER, instance });
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

  /**
   * Starts the tasks next to the sync loop. Without a `client` no events are written. Resolves when
   * the client is no longer needed, shortly after the tasks were stopped.
   */
  start(tasks: TaskGroup, client: KubeClient | undefined): Promise<void> {
    this.#logLocalTraffic();
    tasks.run("node identity", (signal) => this.watchNode(signal));
    tasks.run("OOM score", () => this.#setOomScore());
    const recorder = this.#recorder;
    let written = Promise.resolve();
    if (!recorder || !client) return written;
    tasks.run("events", (signal) => written = recorder.run(client, signal));
    const { mode } = this.#configuration;
    const regarding = nodeRegarding(this.#name);
    const note = `Starting kube-relay ${VERSION} in mode ${mode}`;
    recorder.record({ type: "Normal", reason: "Starting", action: ACTION, note, regarding });
    const { deprecation } = MODE_TRAITS[mode];
    if (deprecation) {
      recorder.record({ type: "Warning", action: ACTION, regarding, ...deprecation });
    }
    return written;
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
    const { podCidrs: before } = this.#state;
    this.#annotations = node.metadata.annotations;
    this.#state = nodeStateFromNode(node, this.#name);
    const { addresses, podCidrs: now } = this.#state;
    if (addresses.length > 0) this.#decide();
    if (this.#proxy.detectLocalMode !== "NodeCIDR" || deepEqual(before, now)) return;
    const { logger } = this.#dependencies;
    if (before.length === 0) {
      logger.info("Chose podCIDRs of the Node as the ranges of pods", { podCIDRs: now });
    } else {
      const message = "The podCIDRs of the Node changed; the ranges of pods follow";
      logger.warn(message, { before, now });
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
    const waiting = this.#awaitNode(signal).catch((error) => {
      if (!signal.aborted) throw error;
    });
    await Promise.race([
      Promise.all([waiting, whenAborted(signal)]),
      this.#mismatch.promise,
    ]);
  }

  async #awaitNode(signal: AbortSignal): Promise<void> {
    if (!this.#recorder) return this.#decide();
    const { clock, logger } = this.#dependencies;
    const node = this.#name;
    if (!NODE_NAME.test(node)) {
      const message = "No Node can have this name; set the Node's name with --hostname-override";
      logger.warn(message, { node });
    }
    await clock.sleep(ADDRESS_WAIT_MS, signal);
    if (this.#state.addresses.length === 0) {
      logger.warn(
        "Continuing without addresses of the Node; they are used when they appear",
        { node, waitedMs: ADDRESS_WAIT_MS },
      );
      this.#decide();
    }
    if (this.#proxy.detectLocalMode !== "NodeCIDR") return;
    await clock.sleep(POD_CIDR_WAIT_MS - ADDRESS_WAIT_MS, signal);
    if (this.#state.podCidrs.length > 0) return;
    logger.error(
      "Cannot recognize pods until the Node has podCIDRs: nothing is masqueraded " +
        "for detectLocalMode NodeCIDR; start the controller that sets them, or use another detectLocalMode",
      { node, waitedMs: POD_CIDR_WAIT_MS },
    );
  }

  #decide(): void {
    const { logger } = this.#dependencies;
    const { mode, families } = this.#configuration;
    const proxy = this.#proxy;
    const { addresses: ofNode, podCidrs } = this.#state;
    const bindAddress = parseIpAddress(proxy.bindAddress);
    const addresses = nodeAddressesOf(ofNode, bindAddress, this.#ofRoutes);
    if (!deepEqual(addresses, this.#addresses)) {
      const message = this.#addresses === undefined
        ? "Chose node addresses"
        : "The addresses of the Node changed; node ports follow";
      logger.info(message, addresses);
    }
    this.#addresses = addresses;
    const primary = addresses.primaryFamily;
    // With a guess of the primary family, a mismatch may still be right.
    const guesses = this.#recorder && ofNode.length === 0 && isUnspecified(bindAddress);
    if (!families.includes(primary) && !guesses && !this.#reported.has(primary)) {
      this.#reported.add(primary);
      // kube-proxy exits here. Serving the other family is better than nothing.
      logger.error("The node's own IP family is not available here; nothing is served in it", {
        primaryFamily: primary,
        families: families.join(", "),
        cure: "a mode and a kernel that have it: see `kube-relay doctor`",
      });
    }
    for (const finding of checkSanity(proxy, { mode, families, primary, podCidrs })) {
      const text = `${finding.field}: ${finding.problem}`;
      const isFatal = finding.severity === "fatal";
      if ((isFatal && guesses) || this.#reported.has(text)) continue;
      this.#reported.add(text);
      if (isFatal) this.#mismatch.reject(new NodeMismatchError(`Cannot continue: ${text}`));
      else logger.warn("Setting is not plausible", { ...finding });
    }
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
    const { logger } = this.#dependencies;
    // Userspace mode does not depend on it: every connection leaves from the node itself.
    if (MODE_TRAITS[mode].forwardsItself) logger.verbose(2, message, fields);
    else logger.info(message, fields);
  }

  /**
   * Sets how likely the kernel ends the process when memory runs out. A process that has the score, as
   * under a unit with `OOMScoreAdjust`, may set it again. Uses the tool `choom`, because Deno opens
   * `/proc/self/oom_score_adj` only with all permissions.
   */
  async #setOomScore(): Promise<void> {
    const { commands, process, logger } = this.#dependencies;
    const adjust = this.#configuration.proxy.oomScoreAdj;
    // Not a warning, as in kube-proxy: a plain user is always refused, and nothing depends on it.
    const refused = (reason: string) =>
      logger.verbose(2, "Cannot set OOM score; continuing without it", { adjust, reason });
    try {
      const args = ["-n", String(adjust), "-p", String(process.pid)];
      const { code, stdout, stderr } = await commands.run("choom", args);
      if (code !== 0) return refused(stderr.trim() || `choom ended with code ${code}`);
      const [, before] = /changed from (-?\d+)/.exec(stdout) ?? [];
      const state = before === String(adjust) ? "kept" : "changed";
      logger.verbose(2, "OOM score is set", { adjust, state });
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      refused(error.message);
    }
  }
}

/**
 * The node's addresses with their origin, and the family that a single-stack host uses. `bindAddress`
 * overrides the Node in its family unless it is unspecified. The first address decides which family is
 * primary: a cluster that is IPv6 first lists IPv6 first. Without a Node, `ofRoutes` has the addresses
 * by which the default routes send.
 */
function nodeAddressesOf(
  ofNode: readonly IpAddress[],
  bindAddress: IpAddress,
  ofRoutes: readonly IpAddress[],
) {
  const isBound = !isUnspecified(bindAddress);
  const pick = (family: IpFamily, loopback: string) => {
    const find = (list: readonly IpAddress[]) => list.find((each) => ipFamilyOf(each) === family);
    if (isBound && find([bindAddress])) return `${bindAddress} (bindAddress)`;
    const [own, ofRoute] = [find(ofNode), find(ofRoutes)];
    if (own !== undefined) return `${own} (Node)`;
    return ofRoute === undefined ? `${loopback} (none)` : `${ofRoute} (default route)`;
  };
  const first = isBound ? bindAddress : ofNode[0] ?? ofRoutes[0];
  const primaryFamily: IpFamily = first === undefined ? "IPv4" : ipFamilyOf(first);
  return { primaryFamily, IPv4: pick("IPv4", "127.0.0.1"), IPv6: pick("IPv6", "::1") };
}

/** A contradiction of settings that are valid alone. */
interface SanityFinding {
  /** `fatal`: every rule would be wrong, so kube-relay exits, as kube-proxy does. */
  readonly severity: "fatal" | "warning";
  readonly field: string;
  /** One sentence without a full stop, with the fault and the remedy. */
  readonly problem: string;
}

/**
 * Returns settings that contradict each other or this node; fatal ones first. `families` run, `primary`
 * is the first one of the node; only mode NodeCIDR uses `podCidrs`.
 */
function checkSanity(
  proxy: KubeProxyConfiguration,
  { mode, families, primary, podCidrs }: Pick<RunConfiguration, "families" | "mode"> & {
    readonly primary: IpFamily;
    readonly podCidrs: readonly Cidr[];
  },
): readonly SanityFinding[] {
  const findings: SanityFinding[] = [];
  const warn = (field: string, problem: string) =>
    findings.push({ severity: "warning", field, problem });
  const { detectLocalMode, ipvs: { excludeCIDRs } } = proxy;
  const [only] = families.length > 1 ? [] : families;
  const clusterCidrs = cidrsOf(proxy.clusterCIDR.split(","));
  const excluded = cidrsOf(excludeCIDRs);

  const [field, ranges] = detectLocalMode === "NodeCIDR"
    ? ["spec.podCIDRs of the Node", podCidrs]
    : ["clusterCIDR", only && /^(ClusterCIDR)?$/.test(detectLocalMode) ? clusterCidrs : []];
  if (ranges.length > 0 && !hasFamily(ranges, primary)) {
    const problem = `${ranges.join(",")} has no ${primary} range, but ${primary} is the node's ` +
      `family: no pod could be recognized; give a range of ${primary}`;
    findings.push({ severity: "fatal", field, problem });
  }

  const entries = nodePortEntries(proxy.nodePortAddresses, mode);
  const nodePorts = cidrsOf(entries);
  // In userspace mode no entry is the documented default, and `ss` shows its sockets.
  if (entries.length === 0 && !MODE_TRAITS[mode].forwardsItself) {
    const problem = "so node ports are open on every address; 'primary' would be safer";
    warn("nodePortAddresses", `it is not set, ${problem}`);
  } // A keyword stands for both families.
  else if (entries.length > 0 && nodePorts.length === entries.length) {
    const others = [...clusterCidrs, ...nodePorts, ...podCidrs, ...excluded];
    const other = primary === "IPv4" ? "IPv6" : "IPv4";
    const isOpenIn = (family: IpFamily) => `node ports of ${family} are open on every address`;
    if (!hasFamily(nodePorts, primary)) {
      const problem = `it has no ${primary} range, but ${primary} is the node's family`;
      warn("nodePortAddresses", `${problem}: ${isOpenIn(primary)}`);
    } else if (!hasFamily(nodePorts, other) && hasFamily(others, other)) {
      const problem = `other fields name both IP families, this one only ${primary}`;
      warn("nodePortAddresses", `${problem}: ${isOpenIn(other)}`);
    }
  }

  if (only === undefined) return findings;
  if (excluded.length > 0 && !hasFamily(excluded, only)) {
    const problem = `it has no ${only} range, but only ${only} runs here: it has no effect`;
    warn("ipvs.excludeCIDRs", problem);
  }
  for (const field of ["healthzBindAddress", "metricsBindAddress"] as const) {
    const address = tryParseIpAddress(tryParseListenAddress(proxy[field], 1)?.hostname ?? "");
    if (address === undefined || isUnspecified(address) || ipFamilyOf(address) === only) continue;
    warn(field, `${proxy[field]} is not ${only}, but only ${only} runs here: it may not be bound`);
  }
  return findings;
}

function cidrsOf(texts: readonly string[]): readonly Cidr[] {
  return texts.flatMap((text) => tryParseCidr(text.trim()) ?? []);
}

function hasFamily(cidrs: readonly Cidr[], family: IpFamily): boolean {
  return cidrs.some((cidr) => cidrFamilyOf(cidr) === family);
}
