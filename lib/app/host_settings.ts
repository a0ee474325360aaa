/**
 * Brings kernel settings to what the configuration and the mode need, as far as the machine lets us.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import type { CommandRunner } from "../os/command_runner.ts";
import { createSysctl, type Sysctl, type SysctlProblem } from "../os/sysctl.ts";
import { whenAborted } from "../os/when_aborted.ts";
import type { HostSettingOutcome, HostSettingWish } from "../proxy/host_setting.ts";
import type { SyncObserver } from "./sync_observer.ts";

/** What {@linkcode HostSettings} stands on. */
interface HostSettingsDependencies {
  readonly commands: CommandRunner;
  readonly logger: Logger;
}

/**
 * Wishes and what became of them. No refusal ends the process: a proxy that does so leaves a node
 * without Services, for a number that may be right enough.
 */
export class HostSettings implements SyncObserver {
  readonly #logger: Logger;
  readonly #sysctl: Sysctl;
  readonly #wishes: HostSettingWish[];
  readonly #outcomes = new Map<string, HostSettingOutcome>();
  readonly #firstSync = Promise.withResolvers<void>();
  /** Settings that the kernel did not know at first: a module brings them. */
  #unknown: readonly HostSettingWish[] = [];

  constructor({ commands, logger }: HostSettingsDependencies, wishes: readonly HostSettingWish[]) {
    this.#logger = logger;
    this.#sysctl = createSysctl(commands);
    // Backends of both families wish for the same; the first one stands.
    this.#wishes = [...new Map(wishes.toReversed().map((wish) => [wish.name, wish])).values()]
      .toReversed();
  }

  /** What became of each wish, in their order. */
  get outcomes(): readonly HostSettingOutcome[] {
    return this.#wishes.flatMap(({ name }) => this.#outcomes.get(name) ?? []);
  }

  /**
   * Reads all, writes what differs, reads that again. Settings that the kernel doesn't know yet are
   * left to {@linkcode run}, unless nothing will come after this (`final`).
   */
  async apply({ final = false }: { readonly final?: boolean } = {}): Promise<void> {
    const unknown = await this.#apply(this.#wishes);
    this.#unknown = final ? [] : unknown;
    for (const wish of this.#wishes) if (!this.#unknown.includes(wish)) this.#tell(wish);
  }

  /** Comes back once to what the kernel did not know: the first rules load `nf_conntrack`. */
  async run(signal: AbortSignal): Promise<void> {
    if (this.#unknown.length === 0) return;
    await Promise.race([this.#firstSync.promise, whenAborted(signal)]);
    if (signal.aborted) return;
    const again = this.#unknown;
    this.#unknown = [];
    await this.#apply(again);
    for (const wish of again) this.#tell(wish);
  }

  /** Takes wishes that may be known already: a new interface has settings of its own. */
  async add(wishes: readonly HostSettingWish[]): Promise<void> {
    const known = new Set(this.#wishes.map(({ name }) => name));
    const fresh = wishes.filter(({ name }) => !known.has(name));
    if (fresh.length === 0) return;
    this.#wishes.push(...fresh);
    await this.#apply(fresh);
    for (const wish of fresh) this.#tell(wish);
  }

  synced(): void {
    this.#firstSync.resolve();
  }

  /** Returns the wishes that the kernel knows nothing of. */
  async #apply(wishes: readonly HostSettingWish[]): Promise<readonly HostSettingWish[]> {
    const { values, problems } = await this.#sysctl.read(wishes.map(({ name }) => name));
    const written: HostSettingWish[] = [];
    const reasons = new Map<string, string>();
    for (const wish of wishes) {
      const found = values.get(wish.name);
      const problem = problems.get(wish.name);
      if (problem !== undefined) this.#outcomes.set(wish.name, unreadable(wish, problem));
      else if (satisfies(wish, found)) this.#outcomes.set(wish.name, outcome(wish, "kept", found));
      else {
        const reason = await this.#sysctl.write(wish.name, wish.value);
        if (reason !== undefined) reasons.set(wish.name, reason);
        written.push(wish);
      }
    }
    await this.#check(written, { before: values, reasons });
    return wishes.filter(({ name }) => problems.get(name)?.kind === "unknown");
  }

  /** What was written is read again: not every refusal has an exit code, and kernels round. */
  async #check(
    written: readonly HostSettingWish[],
    { before, reasons }: {
      readonly before: ReadonlyMap<string, string>;
      readonly reasons: ReadonlyMap<string, string>;
    },
  ): Promise<void> {
    const { values } = await this.#sysctl.read(written.map(({ name }) => name));
    for (const wish of written) {
      const { name } = wish;
      const found = before.get(name);
      if (satisfies(wish, values.get(name))) {
        this.#outcomes.set(name, outcome(wish, "changed", found));
        continue;
      }
      this.#outcomes.set(name, {
        ...outcome(wish, "refused", found),
        reason: reasons.get(name) ?? `it is ${values.get(name) ?? "not to be read"} all the same`,
        cure: cureOf(wish),
      });
    }
  }

  #tell({ name }: HostSettingWish): void {
    const told = this.#outcomes.get(name);
    if (told?.state === "refused") {
      this.#logger.warn("Cannot set kernel setting, and goes on without", { ...told });
    } else if (told?.state === "changed") {
      const { found, wanted, purpose } = told;
      this.#logger.info("Set kernel setting", { name, before: found, now: wanted, purpose });
    }
  }
}

/** Whether a value is good enough. Numbers compare as numbers where a larger one is as good. */
function satisfies({ value, atLeast }: HostSettingWish, found: string | undefined): boolean {
  if (found === undefined) return false;
  return atLeast ? Number(found) >= Number(value) : found === value;
}

function outcome(
  { name, value, purpose }: HostSettingWish,
  state: HostSettingOutcome["state"],
  found: string | undefined,
): HostSettingOutcome {
  return { name, wanted: value, ...(found !== undefined && { found }), state, purpose };
}

function unreadable(wish: HostSettingWish, { kind, reason }: SysctlProblem): HostSettingOutcome {
  const isConntrack = kind === "unknown" && wish.name.includes(".nf_conntrack_");
  return {
    ...outcome(wish, "refused", undefined),
    reason: isConntrack ? `${reason}: module nf_conntrack is not loaded` : reason,
    cure: `${isConntrack ? "modprobe nf_conntrack && " : ""}${cureOf(wish)}`,
  };
}

/** The exact command for an admin, on the host itself rather than in a container. */
function cureOf({ name, value }: HostSettingWish): string {
  return `sysctl -w ${name}=${value}`;
}
