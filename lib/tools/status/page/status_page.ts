import { answerText, isLocalRequest } from "../../../metrics/plain_answer.ts";
import type { LocalPages } from "../../../app/run/run_tools.ts";
import type { Clock } from "../../../os/clock.ts";
import css from "./page.css" with { type: "text" };
import icon from "./icon.svg" with { type: "text" };
import js from "./page.js" with { type: "text" };
import type { Query } from "../../control/routes.ts";
import { type ExplainReport, explanationReport } from "../../explain/explain_report.ts";
import { messageOf } from "../../../log/message_of.ts";
import { pageDocument, reportDocument } from "./page_document.ts";
import { type PageParts, PageSource } from "./page_source.ts";

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

/**
 * Creates the read-only status page. Its paths do not exist for other methods than GET, for requests from
 * other machines, and for host names other than `localhost` or an IP address.
 */
export function createStatusPage(
  { clock }: { readonly clock: Clock },
  parts: PageParts & {
    /** Explains a packet without asking the machine. Rejects for a wrong question. */
    readonly explain: (query: Query<"/explain">) => Promise<ExplainReport>;
  },
): LocalPages {
  const source = new PageSource({ clock }, parts);
  const page = async (filter: string) => {
    const { model, sections } = await source.page(filter);
    return answer(pageDocument(model, sections), "text/html");
  };
  const explanation = async (_: string, query: URLSearchParams) => {
    const { from, to }: Readonly<Record<string, string>> = Object.fromEntries(query);
    const title = `From ${from} to ${to}`;
    try {
      const report = await parts.explain({ from, to, brief: "" });
      return answer(
        reportDocument(report.nodeName, title, explanationReport(report)),
        "text/html",
      );
    } catch (error) {
      return answerText(`${messageOf(error)}\n`, 400);
    }
  };
  const paths: Readonly<
    Record<string, (filter: string, query: URLSearchParams) => Promise<Response>>
  > = {
    "/": page,
    "/explain": explanation,
    "/page.css": () => Promise.resolve(answer(css, "text/css")),
    "/page.js": () => Promise.resolve(answer(js, "text/javascript")),
    "/icon.svg": () => Promise.resolve(answer(icon, "image/svg+xml")),
    "/sections": async (filter) =>
      answer(JSON.stringify((await source.page(filter)).sections), "application/json"),
  };
  return (request, peer) => {
    const { pathname, searchParams } = new URL(request.url);
    if (!Object.hasOwn(paths, pathname)) return undefined;
    if (request.method !== "GET" || !isLocalRequest(request, peer)) return undefined;
    const filter = (searchParams.get("filter") ?? "").slice(0, LONGEST_FILTER);
    return paths[pathname]!(filter, searchParams);
  };
}

function answer(body: string, type: string): Response {
  return new Response(body, { headers: { ...HEADERS, "content-type": `${type}; charset=utf-8` } });
}
