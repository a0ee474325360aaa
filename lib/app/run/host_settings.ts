/**
 * Brings kernel settings to what the configuration and the mode need, as far as the machine lets us.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import type { CommandRunner } from "../../os/command_runner.ts";
import { createSysctl, type Sysctl, type SysctlProblem } from "../../os/sysctl.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import type { HostSettingOutcome, HostSettingRequest } from "../../proxy/host_setting.ts";
import type { SyncObserver } from "../service/sync_observer.ts";

/** What {@linkcode HostSettings} stands on. */
interface HostSettingsDependencies {
  readonly commands: CommandRunner;
  readonly logger: Logger;
}

/**
 * Requests and what became of them. No refusal ends the process: a proxy that does so leaves a node
 * without Services, for a number that may be right enough.
 */
export class HostSettings implements SyncObserver {
  readonly #logger: Logger;
  readonly #sysctl: Sysctl;
  readonly #requests: HostSettingRequest[];
  readonly #outcomes = new Map<string, HostSettingOutcome>();
  readonly #firstSync = Promise.withResolvers<void>();
  /** Settings that the kernel did not know at first: a module brings them. */
  #unknown: readonly HostSettingRequest[] = [];

  constructor(
    { commands, logger }: HostSettingsDependencies,
    requests: readonly HostSettingRequest[],
  ) {
    this.#logger = logger;
    this.#sysctl = createSysctl(commands);
    // Backends of both families ask for the same; the first one stands.
    this.#requests = [
      ...new Map(requests.toReversed().map((request) => [request.name, request])).values(),
    ]
      .toReversed();
  }

  /** What became of each request, in their order. */
  get outcomes(): readonly HostSettingOutcome[] {
    return this.#requests.flatMap(({ name }) => this.#outcomes.get(name) ?? []);
  }

  /**
   * Reads all, writes what differs, reads that again. Settings that the kernel doesn't know yet are
   * left to {@linkcode run}, unless nothing will come after this (`final`).
   */
  async apply({ final = false }: { readonly final?: boolean } = {}): Promise<void> {
    const unknown = await this.#apply(this.#requests);
    this.#unknown = final ? [] : unknown;
    for (const request of this.#requests) if (!this.#unknown.includes(request)) this.#tell(request);
  }

  /** Comes back once to what the kernel did not know: the first rules load `nf_conntrack`. */
  async run(signal: AbortSignal): Promise<void> {
    if (this.#unknown.length === 0) return;
    await Promise.race([this.#firstSync.promise, whenAborted(signal)]);
    if (signal.aborted) return;
    const again = this.#unknown;
    this.#unknown = [];
    await this.#apply(again);
    for (const request of again) this.#tell(request);
  }

  /** Takes requests that may be known already: a new interface has settings of its own. */
  async add(requests: readonly HostSettingRequest[]): Promise<void> {
    const known = new Set(this.#requests.map(({ name }) => name));
    const fresh = requests.filter(({ name }) => !known.has(name));
    if (fresh.length === 0) return;
    this.#requests.push(...fresh);
    await this.#apply(fresh);
    for (const request of fresh) this.#tell(request);
  }

  synced(): void {
    this.#firstSync.resolve();
  }

  /** Returns the requests that the kernel knows nothing of. */
  async #apply(requests: readonly HostSettingRequest[]): Promise<readonly HostSettingRequest[]> {
    const { values, problems } = await this.#sysctl.read(requests.map(({ name }) => name));
    const written: HostSettingRequest[] = [];
    const reasons = new Map<string, string>();
    for (const request of requests) {
      const found = values.get(request.name);
      const problem = problems.get(request.name);
      if (problem !== undefined) this.#outcomes.set(request.name, unreadable(request, problem));
      else if (satisfies(request, found)) {
        this.#outcomes.set(request.name, outcome(request, "kept", found));
      } else {
        const reason = await this.#sysctl.write(request.name, request.value);
        if (reason !== undefined) reasons.set(request.name, reason);
        written.push(request);
      }
    }
    await this.#check(written, { before: values, reasons });
    return requests.filter(({ name }) => problems.get(name)?.kind === "unknown");
  }

  /** What was written is read again: not every refusal has an exit code, and kernels round. */
  async #check(
    written: readonly HostSettingRequest[],
    { before, reasons }: {
      readonly before: ReadonlyMap<string, string>;
      readonly reasons: ReadonlyMap<string, string>;
    },
  ): Promise<void> {
    const { values } = await this.#sysctl.read(written.map(({ name }) => name));
    for (const request of written) {
      const { name } = request;
      const found = before.get(name);
      if (satisfies(request, values.get(name))) {
        this.#outcomes.set(name, outcome(request, "changed", found));
        continue;
      }
      this.#outcomes.set(name, {
        ...outcome(request, "refused", found),
        reason: reasons.get(name) ?? `it is ${values.get(name) ?? "not to be read"} all the same`,
        cure: cureOf(request),
      });
    }
  }

  #tell({ name }: HostSettingRequest): void {
    const told = this.#outcomes.get(name);
    if (told?.state === "refused") {
      this.#logger.warn("Cannot change kernel setting; continuing without it", { ...told });
    } else if (told?.state === "changed") {
      const { found, wanted, purpose } = told;
      this.#logger.info("Set kernel setting", { name, before: found, now: wanted, purpose });
    }
  }
}

/** Whether a value is good enough. Numbers compare as numbers where a larger one is as good. */
function satisfies({ value, atLeast }: HostSettingRequest, found: string | undefined): boolean {
  if (found === undefined) return false;
  return atLeast ? Number(found) >= Number(value) : found === value;
}

function outcome(
  { name, value, purpose }: HostSettingRequest,
  state: HostSettingOutcome["state"],
  found: string | undefined,
): HostSettingOutcome {
  return { name, wanted: value, ...(found !== undefined && { found }), state, purpose };
}

function unreadable(
  request: HostSettingRequest,
  { kind, reason }: SysctlProblem,
): HostSettingOutcome {
  const module = kind === "unknown" ? moduleOf(request) : undefined;
  return {
    ...outcome(request, "refused", undefined),
    reason: module === undefined ? reason : `${reason}: module ${module} is not loaded`,
    cure: `${module === undefined ? "" : `modprobe ${module} && `}${cureOf(request)}`,
  };
}

/** The module without which a setting does not exist. */
function moduleOf({ name }: HostSettingRequest): string | undefined {
  if (name.includes(".nf_conntrack_")) return "nf_conntrack";
  return name.startsWith("net.bridge.bridge-nf-") ? "br_netfilter" : undefined;
}

/** The exact command for an admin, on the host itself rather than in a container. */
function cureOf({ name, value }: HostSettingRequest): string {
  return `sysctl -w ${name}=${value}`;
}
