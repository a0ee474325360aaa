import type { LocalPages } from "../../../app/run/run_tools.ts";
import { messageOf } from "../../../log/message_of.ts";
import { answerText, isLocalRequest } from "../../../os/plain_answer.ts";
import type { Clock } from "../../../os/clock.ts";
import type { HostFinding } from "../../../proxy/host_checks.ts";
import type { ChangesReport } from "../../changes/change_entry.ts";
import type { Query } from "../../control/routes.ts";
import type { ExplainReport } from "../../explain/explain_report.ts";
import { explanationReport } from "../../explain/explanation_view.ts";
import type { StatusReport } from "../status_report.ts";
import type { TrafficRate } from "../traffic.ts";
import icon from "./icon.svg" with { type: "text" };
import css from "./page.css" with { type: "text" };
import js from "./page.js" with { type: "text" };
import {
  pageDocument,
  type PageModel,
  type PageSection,
  pageSections,
  reportDocument,
} from "./page_document.ts";

/** The browser may load nothing from other hosts, and other pages may not embed this one. */
const HEADERS = {
  "content-security-policy":
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  "x-frame-options": "DENY",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cache-control": "no-store",
};

/** No name of a Service is longer. */
const LONGEST_FILTER = 512;

/** The parts of the running program that the page shows. */
interface PageParts {
  readonly status: (options: { readonly brief: boolean }) => Promise<StatusReport>;
  readonly changes: () => Pick<ChangesReport, "entries" | "syncs">;
  /** The last hour, oldest first; absent where traffic is not counted. */
  readonly traffic?: readonly TrafficRate[] | undefined;
  /** Checks the machine; changes nothing. */
  readonly findings: () => Promise<readonly HostFinding[]>;
  /** Explains a packet without asking the machine. Rejects for a wrong question. */
  readonly explain: (query: Query<"/explain">) => Promise<ExplainReport>;
}

/**
 * Creates the read-only status page. Its paths do not exist for other methods than GET, for requests from
 * other machines, and for host names other than `localhost` or an IP address.
 */
export function createStatusPage(
  { clock }: { readonly clock: Clock },
  parts: PageParts,
): LocalPages {
  const source = new PageSource(clock, parts);
  const answer = (body: string, type: string) => {
    const headers = { ...HEADERS, "content-type": `${type}; charset=utf-8` };
    return Promise.resolve(new Response(body, { headers }));
  };
  const paths: Readonly<
    Record<string, (filter: string, query: URLSearchParams) => Promise<Response>>
  > = {
    async "/"(filter) {
      const { model, sections } = await source.page(filter);
      return answer(pageDocument(model, sections), "text/html");
    },
    async "/sections"(filter) {
      return answer(JSON.stringify((await source.page(filter)).sections), "application/json");
    },
    async "/explain"(_, query) {
      const { from, to }: Readonly<Record<string, string>> = Object.fromEntries(query);
      try {
        const report = await parts.explain({ from, to, brief: "" });
        const title = `From ${from} to ${to}`;
        const text = reportDocument(report.nodeName, title, explanationReport(report));
        return answer(text, "text/html");
      } catch (error) {
        return answerText(`${messageOf(error)}\n`, 400);
      }
    },
    "/page.css": () => answer(css, "text/css"),
    "/page.js": () => answer(js, "text/javascript"),
    "/icon.svg": () => answer(icon, "image/svg+xml"),
  };
  return (request, peer) => {
    const { pathname, searchParams } = new URL(request.url);
    if (!Object.hasOwn(paths, pathname)) return undefined;
    if (request.method !== "GET" || !isLocalRequest(request, peer)) return undefined;
    const filter = (searchParams.get("filter") ?? "").slice(0, LONGEST_FILTER);
    return paths[pathname]!(filter, searchParams);
  };
}

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
/** Filters whose sections are kept. */
const MOST_FILTERS = 16;

type SharedModel = Omit<PageModel, "filter">;

interface RenderedPage {
  readonly model: PageModel;
  readonly sections: readonly PageSection[];
}

/** Collects the page for all its readers together, and only while there are readers. */
class PageSource {
  readonly #clock: Clock;
  readonly #parts: PageParts;
  #page:
    | {
      readonly at: number;
      readonly model: Promise<SharedModel>;
      readonly byFilter: Map<string, Promise<RenderedPage>>;
    }
    | undefined;
  #isCollecting = false;
  #services: { readonly at: number; readonly mark: string; readonly of: StatusReport } | undefined;
  #findings: PageModel["doctor"] = { findings: [] };
  #findingsAskedAt = -Infinity;

  constructor(clock: Clock, parts: PageParts) {
    this.#clock = clock;
    this.#parts = parts;
  }

  /** Returns the current page. Readers with the same filter share it. */
  async page(filter: string): Promise<RenderedPage> {
    const now = this.#clock.now();
    // One collection at a time: they would pile up while the program does not answer.
    if (!this.#page || (now - this.#page.at >= SHARED_MS && !this.#isCollecting)) {
      this.#isCollecting = true;
      const model = this.#collect().finally(() => this.#isCollecting = false);
      this.#page = { at: now, model, byFilter: new Map() };
    }
    const { model, byFilter } = this.#page;
    const page = byFilter.getOrInsertComputed(filter, () => this.#render(model, filter));
    const [oldest] = byFilter.keys();
    if (byFilter.size > MOST_FILTERS) byFilter.delete(oldest!);
    return await page;
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

  /** Services may be some seconds old: collecting 10,000 takes long. */
  async #collect(): Promise<SharedModel> {
    this.#checkMachine();
    const brief = await this.#parts.status({ brief: true });
    const now = this.#clock.now();
    const mark = JSON.stringify(brief.families.map(({ lastSync }) => lastSync?.at));
    const known = this.#services;
    const count = known?.of.families.reduce((sum, { services }) => sum + services.length, 0) ?? 0;
    const age = now - (known?.at ?? -Infinity);
    const restMs = known?.mark === mark ? TRAFFIC_MS : count <= FEW_SERVICES ? 0 : SERVICES_MS;
    if (age >= restMs) {
      this.#services = { at: now, mark, of: await this.#parts.status({ brief: false }) };
    }
    const full = this.#services!.of.families;
    const families = brief.families.map(({ counts: _, ...family }) => ({
      ...family,
      services: full.find((other) => other.family === family.family)?.services ?? [],
    }));
    const { entries: changes, syncs } = this.#parts.changes();
    const { traffic } = this.#parts;
    return {
      report: { ...brief, families },
      ...{ syncs, changes, doctor: this.#findings },
      ...(traffic && { traffic: [...traffic] }),
    };
  }

  /** Starts a check of the machine if the last one is old, without waiting for it. */
  #checkMachine(): void {
    const now = this.#clock.now();
    if (now - this.#findingsAskedAt < FINDINGS_MS) return;
    this.#findingsAskedAt = now;
    this.#parts.findings().catch((error: unknown): readonly HostFinding[] => [{
      id: "not-looked-at",
      severity: "warning",
      summary: "The machine could not be checked",
      evidence: [String(error)],
    }]).then((findings) => this.#findings = { at: this.#clock.wallNow(), findings });
  }
}
