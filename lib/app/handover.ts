/**
 * How a start takes this node over: from a kube-proxy, from kube-router's policies, and from an earlier
 * run of kube-relay in another mode.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../config/configuration.ts";
import type { RelayOptions } from "../config/load.ts";
import type { CleanupReport } from "../engine/data_plane.ts";
import type { Logger } from "../log/logger.ts";
import { type Cidr, tryParseCidr } from "../net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../net/ip_address.ts";
import type { AddressHandover } from "../os/http_server.ts";
import { whenAborted } from "../os/when_aborted.ts";
import { writeFile } from "../os/write_file.ts";
import { BACKEND_MODES } from "../proxy/backend.ts";
import { type HostChecks, type HostFinding, KUBE_PROXY_ALIVE } from "../proxy/host_checks.ts";
import type { PlanChanges, ProxyPlan } from "../proxy/proxy_plan.ts";
import type { Dependencies, RunConfiguration } from "./dependencies.ts";
import { idleBackendOptions } from "./run/plan_settings.ts";

/** A kube-proxy runs on this node, and `--takeover` was not given. */
export class KubeProxyAliveError extends Error {
  override name = "KubeProxyAliveError";
}

/**
 * Returns the kube-proxy that answers on this node, if any, with the remedy for a caller that takes
 * over or removes. Takes 3 s at most.
 */
export async function findKubeProxyAlive(
  hostChecks: HostChecks,
  signal: AbortSignal,
): Promise<HostFinding | undefined> {
  const findings = await hostChecks.findings({ scope: "ports", takeover: true, signal });
  return findings.find(({ id }) => id === KUBE_PROXY_ALIVE);
}

/**
 * Throws a {@linkcode KubeProxyAliveError} that says how to turn off kube-proxy: two proxies that
 * write rules for the same packets undo each other's changes. `--takeover` allows the start, as
 * does a user without root rights who serves manifests, as in the demo.
 */
export async function admitStart(
  { hostChecks, process, logger }:
    & Pick<Dependencies, "hostChecks">
    & { readonly process: Pick<Dependencies["process"], "uid">; readonly logger: Logger },
  { manifests, takeover }: Pick<RelayOptions, "manifests" | "takeover">,
  signal: AbortSignal,
): Promise<void> {
  const findings = await hostChecks.findings({ scope: "ports", signal });
  for (const { id, summary, evidence, cure } of findings) {
    if (id === KUBE_PROXY_ALIVE) continue;
    logger.warn("Port of kube-proxy in use", { summary, evidence, cure });
  }
  const alive = findings.find(({ id }) => id === KUBE_PROXY_ALIVE);
  if (alive === undefined) return;
  const { summary, evidence, cure } = alive;
  if (!takeover && (manifests.length === 0 || process.uid === 0)) {
    const where = evidence.join("; ");
    throw new KubeProxyAliveError(
      `Cannot start: ${summary} (${where}), and two would undo each other's rules; ${cure}`,
    );
  }
  logger.warn(
    takeover
      ? "A kube-proxy runs on this node; it is taken over from once Services work here"
      : "A kube-proxy runs on this node; kube-relay serves Services next to it",
    { evidence },
  );
}

/** Ranges whose virtual servers belong to other programs: `ipvs.excludeCIDRs`. */
export function excludedServers({ ipvs }: Pick<KubeProxyConfiguration, "ipvs">): Cidr[] {
  return ipvs.excludeCIDRs.map(tryParseCidr).filter((cidr) => cidr !== undefined);
}

/**
 * Removes the policy rules of kube-router or k3s, for `--takeover`. The caller calls it once, after
 * the first sync of kube-relay's policies in every IP family, so that pods always have policies.
 * Rejects only when aborted, because the node is protected even if these rules remain.
 */
export async function takeOverPolicies(
  { hostChecks, logger }: {
    readonly hostChecks: Pick<HostChecks, "removeKubeRouterPolicies">;
    readonly logger: Logger;
  },
  signal: AbortSignal,
): Promise<void> {
  try {
    logRemoval(logger, await hostChecks.removeKubeRouterPolicies({ dryRun: false, signal }), {
      removed: "Removed policy objects of kube-router",
      kept: "Policy objects of kube-router remain",
      failed: "Cannot remove policy objects of kube-router",
      done: "Removed policy rules of kube-router",
    });
  } catch (error) {
    signal.throwIfAborted();
    logger.error("Cannot remove policy rules of kube-router", { error });
  }
}

function logRemoval(
  logger: Logger,
  { removed, failed, kept = [] }: CleanupReport,
  sentences: Readonly<Record<"done" | "failed" | "kept" | "removed", string>>,
): void {
  for (const what of removed) logger.verbose(1, sentences.removed, { what });
  for (const what of kept) logger.info(sentences.kept, { what });
  for (const what of failed) logger.warn(sentences.failed, { what });
  logger.info(sentences.done, { things: removed.length, failed: failed.length });
}

/** Time between two checks whether kube-proxy has ended. */
const ALIVE_PERIOD_MS = 5_000;
/** A kube-proxy has ended if it was not found by so many checks in a row: it may only restart. */
const CHECKS_OF_END = 3;
/** Delays the check of all rules until Services have settled. */
const LOOK_DELAY_MS = 5_000;

type HandoverDependencies = Dependencies & {
  readonly logger: Logger;
  /** Compares the rules: a kube-proxy may have changed ours. */
  readonly recheck: () => void;
  /** Called with `true` again and again while a kube-proxy may change our rules at any time. */
  readonly distrust: (isDistrusted: boolean) => void;
  /** Annotations of the own Node, if known. */
  readonly nodeAnnotations: () => Readonly<Record<string, string>> | undefined;
};

/**
 * Waits for the first successful sync of each family. Then it removes the objects of other modes, and takes
 * over from kube-proxy or reports its leftovers.
 */
export class KubeProxyHandover implements AddressHandover {
  readonly #dependencies: HandoverDependencies;
  readonly #options: Pick<RunConfiguration, "families" | "mode" | "proxy" | "relay">;
  readonly #missing: Set<IpFamily>;
  readonly #served = Promise.withResolvers<void>();
  #pending: boolean;

  constructor(
    dependencies: HandoverDependencies,
    options: Pick<RunConfiguration, "families" | "mode" | "proxy" | "relay">,
  ) {
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

  /** Records the mode. Awaited before the mode writes anything: the process may be killed after it. */
  async note(): Promise<void> {
    const { mode } = this.#options;
    const modes = await this.#modes();
    if (modes && !modes.has(mode)) await this.#writeModes(modes.add(mode));
  }

  /** Resolves after the last step, or with the signal. */
  async run(signal: AbortSignal): Promise<void> {
    const { relay } = this.#options;
    await Promise.race([this.#served.promise, whenAborted(signal)]);
    if (signal.aborted) return;
    try {
      await this.#removeOtherModes(signal);
      if (relay.takeover) await this.#takeOver(signal);
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
    const alive = await findKubeProxyAlive(hostChecks, signal);
    await this.#remove(signal);
    if (alive === undefined) return;
    logger.warn("kube-proxy still runs and will write its rules again; they go when it has ended", {
      evidence: alive.evidence,
      cure: alive.cure,
    });
    // A change makes both write. In iptables mode some chains have the same names. A sync that comes last
    // would write only some of them, and packets would pass halves of two rule sets.
    for (let absences = 0; absences < CHECKS_OF_END;) {
      // Each time, because it may have written in the middle of the last sync.
      this.#dependencies.distrust(true);
      await clock.sleep(ALIVE_PERIOD_MS, signal);
      absences = await findKubeProxyAlive(hostChecks, signal) ? 0 : absences + 1;
    }
    this.#dependencies.distrust(false);
    logger.info("kube-proxy has ended");
    await this.#remove(signal);
    this.#dependencies.recheck();
  }

  async #remove(signal: AbortSignal): Promise<void> {
    const { hostChecks, logger } = this.#dependencies;
    const { mode, proxy } = this.#options;
    const options = { dryRun: false, mode, excludeCidrs: excludedServers(proxy), signal };
    logRemoval(logger, await hostChecks.removeKubeProxy(options), {
      removed: "Removed objects of kube-proxy",
      kept: "Objects of kube-proxy remain",
      failed: "Cannot remove objects of kube-proxy",
      done: "Removed leftovers of kube-proxy",
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

  /**
   * Cleans up after every other recorded mode: remaining rules would send packets to endpoints that no
   * longer exist. Without the record the demo on a node of a cluster would remove the rules of the
   * kube-relay there. Failures are logged and tried again at the next start.
   */
  async #removeOtherModes(signal: AbortSignal): Promise<void> {
    const { backends, logger } = this.#dependencies;
    const modes = await this.#modes();
    if (modes === undefined) return;
    for (const other of BACKEND_MODES) {
      const create = backends[other];
      if (!create || other === this.#options.mode || !modes.has(other)) continue;
      let isDone = true;
      for (const family of IP_FAMILIES) {
        if (signal.aborted) return;
        await using backend = create(this.#dependencies, idleBackendOptions(this.#options, family));
        const { removed, failed } = await backend.cleanup();
        for (const what of removed) logger.info("Removed objects of another mode", { other, what });
        for (const what of failed) {
          logger.warn("Cannot remove objects of another mode", { other, what });
          isDone = false;
        }
      }
      if (!isDone) return;
      modes.delete(other);
      await this.#writeModes(modes);
    }
  }

  /**
   * The modes that have run on this machine; `undefined` if the record cannot be read, which must not
   * replace it.
   */
  async #modes(): Promise<Set<string> | undefined> {
    try {
      const text = await Deno.readTextFile(recordOfModes(this.#options.relay));
      return new Set(text.split("\n").filter(Boolean));
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return new Set();
      this.#warn("Cannot read the record of modes", error);
      return undefined;
    }
  }

  async #writeModes(modes: ReadonlySet<string>): Promise<void> {
    const { relay } = this.#options;
    try {
      await Deno.mkdir(relay.stateDirectory, { recursive: true, mode: 0o700 });
      const text = [...modes].map((mode) => `${mode}\n`).join("");
      await writeFile(recordOfModes(relay), "public", text);
    } catch (error) {
      this.#warn("Cannot write the record of modes", error);
    }
  }

  #warn(problem: string, error: unknown): void {
    this.#dependencies.logger.warn(
      `${problem}; leftovers of another mode must be removed with --cleanup`,
      { path: recordOfModes(this.#options.relay), error },
    );
  }
}

/** Removes the record after a cleanup of every mode. Throws as Deno.remove(). */
export async function forgetModes(relay: Pick<RelayOptions, "stateDirectory">): Promise<void> {
  try {
    await Deno.remove(recordOfModes(relay));
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

function recordOfModes({ stateDirectory }: Pick<RelayOptions, "stateDirectory">): string {
  return `${stateDirectory}/modes`;
}
