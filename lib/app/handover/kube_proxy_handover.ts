import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { RelayOptions } from "../../config/load.ts";
import type { Logger } from "../../log/logger.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { AddressHandover } from "../../os/http_server.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import type { HostChecks } from "../../proxy/host_checks.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { Dependencies, RunConfiguration } from "../dependencies.ts";
import type { OtherModes } from "./other_modes.ts";
import { excludedServers, findKubeProxyAlive } from "./takeover.ts";

interface HandoverDependencies {
  readonly hostChecks: HostChecks;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly process: Pick<Dependencies["process"], "uid">;
  readonly otherModes: Pick<OtherModes, "note" | "remove">;
  /** Called after kube-proxy has ended: it may have changed our rules. */
  readonly recheck: () => void;
  /** Annotations of the own Node, if known. */
  readonly nodeAnnotations: () => Readonly<Record<string, string>> | undefined;
}

type HandoverOptions = Pick<RunConfiguration, "mode" | "families"> & {
  readonly relay: Pick<RelayOptions, "takeover">;
  readonly proxy: Pick<KubeProxyConfiguration, "ipvs" | "networkPolicy">;
};

/** Time between two checks whether kube-proxy has ended. */
const ALIVE_PERIOD_MS = 5_000;
/** Delays the check of all rules until Services have settled. */
const LOOK_DELAY_MS = 5_000;

/** Waits for the first successful sync of each family, then takes over or reports leftovers. */
export class KubeProxyHandover implements AddressHandover {
  readonly #dependencies: HandoverDependencies;
  readonly #options: HandoverOptions;
  readonly #missing: Set<IpFamily>;
  readonly #served = Promise.withResolvers<void>();
  #pending: boolean;

  constructor(dependencies: HandoverDependencies, options: HandoverOptions) {
    this.#dependencies = dependencies;
    this.#options = options;
    this.#missing = new Set(options.families);
    this.#pending = options.relay.takeover;
  }

  /** Whether a kube-proxy may still run, with `--takeover`. */
  get pending(): boolean {
    return this.#pending;
  }

  synced(family: IpFamily, _plan?: ProxyPlan, changes?: PlanChanges): void {
    if (changes?.isPartial) return;
    this.#missing.delete(family);
    if (this.#missing.size === 0) this.#served.resolve();
  }

  /** Resolves after the last step, or with the signal. */
  async run(signal: AbortSignal): Promise<void> {
    const { otherModes } = this.#dependencies;
    await otherModes.note();
    await Promise.race([this.#served.promise, whenAborted(signal)]);
    if (signal.aborted) return;
    try {
      await otherModes.remove(signal);
      if (this.#options.relay.takeover) await this.#takeOver(signal);
      else await this.#reportLeftovers(signal);
    } catch (error) {
      if (signal.aborted) return;
      // Services work, so leftovers are no reason to exit.
      this.#dependencies.logger.error("Cannot check for leftovers of another mode or kube-proxy", {
        error,
      });
    } finally {
      this.#pending = false;
    }
  }

  /** A running kube-proxy writes its rules again, so they are removed again once it has ended. */
  async #takeOver(signal: AbortSignal): Promise<void> {
    const { hostChecks, clock, logger } = this.#dependencies;
    const alive = await findKubeProxyAlive(hostChecks, { signal });
    await this.#remove(signal);
    if (alive === undefined) return;
    logger.warn("kube-proxy still runs and will write its rules again; they go when it has ended", {
      evidence: alive.evidence,
      cure: alive.cure,
    });
    while (await findKubeProxyAlive(hostChecks, { signal })) {
      await clock.sleep(ALIVE_PERIOD_MS, signal);
    }
    logger.info("kube-proxy has ended");
    await this.#remove(signal);
    this.#dependencies.recheck();
  }

  async #remove(signal: AbortSignal): Promise<void> {
    const { hostChecks, logger } = this.#dependencies;
    const { mode, proxy } = this.#options;
    const options = { dryRun: false, mode, excludeCidrs: excludedServers(proxy), signal };
    const { removed, failed, kept = [] } = await hostChecks.removeKubeProxy(options);
    for (const what of removed) logger.verbose(1, "Removed objects of kube-proxy", { what });
    for (const what of kept) logger.info("Objects of kube-proxy remain", { what });
    for (const what of failed) logger.warn("Cannot remove objects of kube-proxy", { what });
    logger.info("Removed leftovers of kube-proxy", {
      things: removed.length,
      failed: failed.length,
    });
  }

  /** Reports without removing: kube-proxy may come back. */
  async #reportLeftovers(signal: AbortSignal): Promise<void> {
    const { hostChecks, clock, logger, process, nodeAnnotations } = this.#dependencies;
    // Only root can read the rules.
    if (process.uid !== 0) return;
    await clock.sleep(LOOK_DELAY_MS, signal);
    const annotations = nodeAnnotations();
    const findings = await hostChecks.findings({
      mode: this.#options.mode,
      networkPolicy: this.#options.proxy.networkPolicy.enabled,
      signal,
      ...(annotations && { nodeAnnotations: annotations }),
    });
    for (const { id, severity, summary, evidence, cure } of findings) {
      if (severity === "info") continue;
      logger.warn("Foreign rules interfere with kube-relay", { id, summary, evidence, cure });
    }
  }
}
