/**
 * Gathers what the status page shows. Asks no more often than anybody looks.
 *
 * @module
 */
import type { Clock } from "../../../os/clock.ts";
import type { HostFinding } from "../../../proxy/host_checks.ts";
import type { StatusFamily, StatusReport } from "../status_report.ts";
import type { ChangesReport } from "../../changes/change_entry.ts";
import { pageChanges } from "./page_changes.ts";
import type { PageFindings, PageModel } from "./page_model.ts";

/** Several readers within this time see the same. */
const SHARED_MS = 900;
/** So many ServicePorts are looked at anew after each sync … */
const FEW_SERVICES = 1000;
/** … and more of them no more often than this. */
const SERVICES_MS = 2000;
/** And so often when none has: connections and traffic go on. */
const TRAFFIC_MS = 5000;
/** The look at the machine starts a dozen tools. */
const FINDINGS_MS = 600_000;

/** The running program, as far as the page asks it. */
export interface PageParts {
  readonly status: (options: { readonly brief: boolean }) => Promise<StatusReport>;
  readonly changes: () => Pick<ChangesReport, "entries" | "syncs">;
  /** Looks at the machine, and changes nothing. */
  readonly findings: () => Promise<readonly HostFinding[]>;
}

/** Everything of the page but the filter. */
type SharedModel = Omit<PageModel, "filter">;

/** Models for all readers together. */
export class PageSource {
  readonly #clock: Clock;
  readonly #parts: PageParts;
  #model: { readonly at: number; readonly value: Promise<SharedModel> } | undefined;
  #services: { readonly at: number; readonly mark: string; readonly of: StatusReport } | undefined;
  #isGathering = false;
  #findings: PageFindings = { findings: [] };
  #findingsAskedAt: number | undefined;

  constructor({ clock }: { readonly clock: Clock }, parts: PageParts) {
    this.#clock = clock;
    this.#parts = parts;
  }

  /** What is shown now. */
  async model(filter: string): Promise<PageModel> {
    const now = this.#clock.now();
    // One gathering at a time: behind a program that does not answer they would pile up.
    const isOld = this.#model === undefined || now - this.#model.at >= SHARED_MS;
    if (isOld && !this.#isGathering) this.#model = { at: now, value: this.#gatherAlone() };
    return { ...await this.#model!.value, filter };
  }

  async #gatherAlone(): Promise<SharedModel> {
    this.#isGathering = true;
    try {
      return await this.#gather();
    } finally {
      this.#isGathering = false;
    }
  }

  async #gather(): Promise<SharedModel> {
    this.#lookAtMachine();
    const report = await this.#report();
    const { entries, syncs } = this.#parts.changes();
    return { report, syncs, changes: pageChanges({ entries }), doctor: this.#findings };
  }

  /** Facts of this moment, with Services that may be some seconds old: 10,000 of them take their time. */
  async #report(): Promise<StatusReport> {
    const brief = await this.#parts.status({ brief: true });
    const now = this.#clock.now();
    const mark = JSON.stringify(brief.families.map(({ lastSync }) => lastSync?.at));
    const age = now - (this.#services?.at ?? -Infinity);
    const known = (this.#services?.of.families ?? []).flatMap(({ services }) => services).length;
    const restMs = known <= FEW_SERVICES ? 0 : SERVICES_MS;
    if (
      this.#services === undefined || age >= TRAFFIC_MS ||
      (mark !== this.#services.mark && age >= restMs)
    ) {
      this.#services = { at: now, mark, of: await this.#parts.status({ brief: false }) };
    }
    const { families } = this.#services.of;
    return { ...brief, families: brief.families.map((family) => withServices(family, families)) };
  }

  /** Begins a look when the last one is old. Nothing waits for it. */
  #lookAtMachine(): void {
    const now = this.#clock.now();
    if (this.#findingsAskedAt !== undefined && now - this.#findingsAskedAt < FINDINGS_MS) return;
    this.#findingsAskedAt = now;
    this.#parts.findings().catch((error: unknown): readonly HostFinding[] => [{
      id: "not-looked-at",
      severity: "warning",
      summary: "The machine could not be checked",
      evidence: [String(error)],
    }]).then((findings) => this.#findings = { at: this.#clock.wallNow(), findings });
  }
}

function withServices(family: StatusFamily, from: readonly StatusFamily[]): StatusFamily {
  return {
    ...family,
    services: from.find((other) => other.family === family.family)?.services ?? [],
  };
}
