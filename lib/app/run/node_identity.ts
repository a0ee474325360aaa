/**
 * The identity of the own node: the content of its object, the decisions from it, and changes.
 *
 * kube-proxy waits for the Node before it does anything, and exits if `podCIDRs` change. kube-relay does
 * not wait: rules follow from what is known, and then from the Node. The process only exits if every
 * rule would be wrong.
 *
 * @module
 */
import type { Node } from "../../api/kinds/node.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { Logger } from "../../log/logger.ts";
import {
  type IpAddress,
  type IpFamily,
  isUnspecified,
  parseIpAddress,
} from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { type NodeAddresses, nodeAddressesOf } from "../../proxy/node_addresses.ts";
import { type NodeState, nodeStateFromNode } from "../../proxy/node_state.ts";
import { checkSanity } from "./config_sanity.ts";
import { isNodeName } from "./node_name.ts";
import type { RunConfiguration } from "./run_configuration.ts";

/** kube-proxy waits this long for addresses of the Node, and then uses loopback addresses. */
const ADDRESS_WAIT_MS = 30_000;
/** kube-proxy then waits this long for `podCIDRs` in mode NodeCIDR, and exits. */
const POD_CIDR_WAIT_MS = 300_000;

/** The configuration and this node contradict each other in a way that makes every rule wrong. */
export class NodeMismatchError extends Error {
  override name = "NodeMismatchError";
}

interface NodeIdentityOptions {
  readonly name: string;
  readonly configuration: Pick<RunConfiguration, "proxy" | "mode">;
  /** The families that run. */
  readonly families: readonly IpFamily[];
  /** Whether there is a cluster that has the Node. Without one, no Node is expected. */
  readonly expected: boolean;
}

/** The own node, as far as it is known. */
export class NodeIdentity {
  readonly name: string;
  readonly #logger: Logger;
  readonly #clock: Clock;
  readonly #options: NodeIdentityOptions;
  readonly #mismatch = Promise.withResolvers<never>();
  readonly #reported = new Set<string>();
  #proxy: KubeProxyConfiguration;
  #state: NodeState;
  #ofRoutes: readonly IpAddress[] = [];
  #annotations: Readonly<Record<string, string>> | undefined;
  #addresses: NodeAddresses | undefined;
  #known = Promise.withResolvers<void>();
  #ranges = Promise.withResolvers<void>();

  constructor(
    { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
    options: NodeIdentityOptions,
  ) {
    this.name = options.name;
    this.#clock = clock;
    this.#logger = logger;
    this.#options = options;
    this.#proxy = options.configuration.proxy;
    this.#state = nodeStateFromNode(undefined, options.name);
    // A caller that does not call run() is not ended by a rejection.
    this.#mismatch.promise.catch(() => {});
  }

  /** The fields of the Node that were read last. */
  get state(): NodeState {
    return this.#state;
  }

  /** The annotations of the Node that were read last; `undefined` if it has none that matters. */
  get annotations(): Readonly<Record<string, string>> | undefined {
    return this.#annotations;
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

  /** Receives a state of the Node. */
  see(node: Node): void {
    const before = this.#state;
    this.#annotations = node.metadata.annotations;
    this.#state = nodeStateFromNode(node, this.name);
    const { addresses, podCidrs } = this.#state;
    if (addresses.length > 0) {
      this.#decide();
      this.#known.resolve();
    }
    if (!this.#usesPodCidrs || deepEqual(before.podCidrs, podCidrs)) return;
    if (podCidrs.length > 0) this.#ranges.resolve();
    if (before.podCidrs.length === 0) {
      this.#logger.info("Chose podCIDRs of the Node as the ranges of pods", { podCIDRs: podCidrs });
    } else {
      this.#logger.warn("The podCIDRs of the Node changed; the ranges of pods follow", {
        before: before.podCidrs,
        now: podCidrs,
      });
    }
  }

  /** The Node was deleted. Its last state is still the best information. */
  lose(): void {
    this.#logger.warn("The Node was deleted; continuing with its last known state", {
      node: this.name,
    });
  }

  /** Logs if the Node does not appear for long. Rejects with a {@linkcode NodeMismatchError}. */
  async run(signal: AbortSignal): Promise<void> {
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
    return this.#options.expected && this.#state.addresses.length === 0 &&
      isUnspecified(parseIpAddress(this.#proxy.bindAddress));
  }

  get #usesPodCidrs(): boolean {
    return this.#proxy.detectLocalMode === "NodeCIDR";
  }

  async #wait(signal: AbortSignal): Promise<void> {
    if (!this.#options.expected) return this.#decide();
    if (!isNodeName(this.name)) {
      this.#logger.warn(
        "No Node can have this name; set the Node's name with --hostname-override",
        {
          node: this.name,
        },
      );
    }
    if (!await this.#comesWithin(ADDRESS_WAIT_MS, this.#known.promise, signal)) {
      this.#logger.warn(
        "Continuing without addresses of the Node; they are used when they appear",
        {
          node: this.name,
          waitedMs: ADDRESS_WAIT_MS,
        },
      );
      this.#decide();
    }
    if (!this.#usesPodCidrs) return;
    if (!await this.#comesWithin(POD_CIDR_WAIT_MS, this.#ranges.promise, signal)) {
      this.#logger.error(
        "Cannot recognize pods until the Node has podCIDRs: nothing is masqueraded " +
          "for detectLocalMode NodeCIDR; start the controller that sets them, or use another detectLocalMode",
        { node: this.name, waitedMs: POD_CIDR_WAIT_MS },
      );
    }
  }

  async #comesWithin(ms: number, what: Promise<void>, signal: AbortSignal): Promise<boolean> {
    const waited = new AbortController();
    const sleep = this.#clock.sleep(ms, AbortSignal.any([signal, waited.signal]));
    const came = await Promise.race([what.then(() => true), sleep.then(() => false)]);
    sleep.catch(() => {});
    waited.abort();
    return came;
  }

  #decide(): void {
    const { configuration: { mode }, families } = this.#options;
    const proxy = this.#proxy;
    const { addresses: ofNode, podCidrs } = this.#state;
    const addresses = nodeAddressesOf(ofNode, parseIpAddress(proxy.bindAddress), this.#ofRoutes);
    if (!deepEqual(addresses, this.#addresses)) {
      const { primary, IPv4, IPv6 } = addresses;
      const message = this.#addresses === undefined
        ? "Chose node addresses"
        : "The addresses of the Node changed; node ports follow";
      this.#logger.info(message, {
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
      } else this.#logger.warn("Setting is not plausible", { ...finding });
    }
  }

  /** kube-proxy exits here. Serving the other family is better than nothing. */
  #tellPrimary(primary: IpFamily): void {
    const { families } = this.#options;
    if (families.includes(primary) || this.#guesses || this.#reported.has(primary)) return;
    this.#reported.add(primary);
    this.#logger.error("The node's own IP family is not available here; nothing is served in it", {
      primaryFamily: primary,
      families: families.join(", "),
      cure: "a mode and a kernel that have it: see `kube-relay doctor`",
    });
  }
}
