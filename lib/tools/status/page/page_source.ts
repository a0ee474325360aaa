import type { Clock } from "../../../os/clock.ts";
import type { HostFinding } from "../../../proxy/host_checks.ts";
import type { StatusReport } from "../status_report.ts";
import type { ChangesReport } from "../../changes/change_entry.ts";
import type { TrafficRate } from "../traffic.ts";
import {
  type PageFindings,
  type PageModel,
  type PageSection,
  pageSections,
} from "./page_document.ts";

/** Readers within this time get the same model. */
const SHARED_MS = 900;
/** Up to this number of ServicePorts, all are collected again after each sync. */
const FEW_SERVICES = 1000;
/** Shortest time between two collections of more ServicePorts. */
const SERVICES_MS = 2000;
/** Longest time between two collections: connections and traffic change without a sync. */
const TRAFFIC_MS = 5000;
/** Time between two checks of the machine, each of which starts a dozen tools. */
const FINDINGS_MS = 600_000;

/** The parts of the running program that the page shows. */
export interface PageParts {
  readonly status: (options: { readonly brief: boolean }) => Promise<StatusReport>;
  readonly changes: () => Pick<ChangesReport, "entries" | "syncs">;
  /** The last hour, oldest first; absent where traffic is not counted. */
  readonly traffic?: readonly TrafficRate[] | undefined;
  /** Checks the machine; changes nothing. */
  readonly findings: () => Promise<readonly HostFinding[]>;
}

/** Filters whose sections are kept. */
const MOST_FILTERS = 16;

type SharedModel = Omit<PageModel, "filter">;

interface RenderedPage {
  readonly model: PageModel;
  readonly sections: readonly PageSection[];
}

interface SharedPage {
  readonly at: number;
  readonly model: Promise<SharedModel>;
  /** By filter. */
  readonly rendered: Map<string, Promise<RenderedPage>>;
}

/** Collects the page for all its readers together, and only while there are readers. */
export class PageSource {
  readonly #clock: Clock;
  readonly #parts: PageParts;
  #page: SharedPage | undefined;
  #services: { readonly at: number; readonly mark: string; readonly of: StatusReport } | undefined;
  #isCollecting = false;
  #findings: PageFindings = { findings: [] };
  #findingsAskedAt: number | undefined;

  constructor({ clock }: { readonly clock: Clock }, parts: PageParts) {
    this.#clock = clock;
    this.#parts = parts;
  }

  /** Returns the current page. Readers with the same filter share it. */
  async page(filter: string): Promise<RenderedPage> {
    const { model, rendered } = this.#shared();
    const known = rendered.get(filter);
    if (known !== undefined) return await known;
    const page = this.#render(model, filter);
    rendered.set(filter, page);
    const [oldest] = rendered.keys();
    if (rendered.size > MOST_FILTERS) rendered.delete(oldest!);
    return await page;
  }

  #shared(): SharedPage {
    const now = this.#clock.now();
    // One collection at a time: they would pile up while the program does not answer.
    const isOld = this.#page === undefined || now - this.#page.at >= SHARED_MS;
    if (isOld && !this.#isCollecting) {
      this.#isCollecting = true;
      const model = this.#collect().finally(() => this.#isCollecting = false);
      this.#page = { at: now, model, rendered: new Map() };
    }
    return this.#page!;
  }

  /** Other tasks run between two sections: each walks over all Services. */
  async #render(shared: Promise<SharedModel>, filter: string): Promise<RenderedPage> {
    const model = { ...await shared, filter };
    const sections: PageSection[] = [];
    for (const section of pageSections(model)) {
      sections.push(section);
      await this.#clock.yieldToEventLoop();
    }
    return { model, sections };
  }

  async #collect(): Promise<SharedModel> {
    this.#checkMachine();
    const report = await this.#report();
    const { entries, syncs } = this.#parts.changes();
    const { traffic } = this.#parts;
    const shown = traffic && { traffic: [...traffic] };
    return { report, syncs, changes: entries, ...shown, doctor: this.#findings };
  }

  /** The current status, with Services that may be some seconds old: collecting 10,000 takes long. */
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
    const { families: full } = this.#services.of;
    const families = brief.families.map(({ counts: _, ...family }) => ({
      ...family,
      services: full.find((other) => other.family === family.family)?.services ?? [],
    }));
    return { ...brief, families };
  }

  /** Starts a check of the machine if the last one is old, without waiting for it. */
  #checkMachine(): void {
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
