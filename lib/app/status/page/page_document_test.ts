import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { testStatusFamily, testStatusReport } from "../../../../tests/support/status_reports.ts";
import type { StatusService } from "../status_report.ts";
import { pageDocument } from "./page_document.ts";
import type { PageModel } from "./page_model.ts";
import { pageSections } from "./page_sections.ts";

const EVIL = `</script><img src=x onerror="alert(1)">'&`;

function service(name: string, fields: Partial<StatusService> = {}): StatusService {
  const endpoints = [{ address: "10.1.0.5:80", state: "ready", local: false }] as const;
  return { name, protocol: "TCP", addresses: [], endpoints, ...fields };
}

function model(services: readonly StatusService[], fields: Partial<PageModel> = {}): PageModel {
  const report = testStatusReport({ families: [testStatusFamily({ mode: "nftables", services })] });
  return { report, filter: "", syncs: [], changes: [], doctor: { findings: [] }, ...fields };
}

function sectionOf(id: string, of: PageModel): string {
  return pageSections(of).find((section) => section.id === id)!.html;
}

Deno.test("pageDocument() shows every section without a script", () => {
  const page = model([service("default/web:http")]);
  const html = pageDocument(page);
  for (const { id, html: section } of pageSections(page)) {
    assertStringIncludes(html, `id="${id}"`);
    assertStringIncludes(html, section);
  }
  assertStringIncludes(html, "default/web:http");
});

Deno.test("pageDocument() makes markup of nothing that a manifest, a tool or a reader says", () => {
  const base = model([service(EVIL, { quarantined: EVIL })]);
  const [family] = base.report.families;
  const html = pageDocument({
    ...base,
    filter: EVIL,
    report: {
      ...base.report,
      node: { name: EVIL, zone: EVIL },
      sources: [{ name: EVIL, state: EVIL, problems: [EVIL] }],
      hostSettings: [{
        name: EVIL,
        purpose: EVIL,
        wanted: EVIL,
        state: "refused",
        reason: EVIL,
        cure: EVIL,
      }],
      families: [{
        ...family!,
        summary: EVIL,
        failures: 1,
        lastError: EVIL,
        quarantined: [{ key: EVIL as never, address: EVIL, reason: EVIL }],
      }],
    },
    changes: [{ at: 0, cause: EVIL, effect: EVIL, attention: "failed" }],
    doctor: {
      at: 0,
      findings: [{ id: "x", severity: "warning", summary: EVIL, evidence: [EVIL], cure: EVIL }],
    },
  });
  assertEquals(html.match(/<img/g), null);
  assertEquals(html.match(/<\/script>/g)?.length, 1, "only the page's own");
  assert(html.split("&lt;img").length > 15, "what it says is shown all the same");
});

Deno.test("pageSections() names Services with trouble first, and says how many are not shown", () => {
  const many = Array.from({ length: 300 }, (_, index) => service(`default/web-${index}:http`));
  const html = sectionOf("services", model([...many, service("zoo/gone:http", { endpoints: [] })]));
  assertStringIncludes(html, "200 of 301");
  assert(html.indexOf("zoo/gone") < html.indexOf("default/web-0"));
  assertStringIncludes(html, "no endpoints: refused");
});

Deno.test("pageSections() filters Services as status does", () => {
  const services = [service("default/web:http"), service("shop/cart:http")];
  const html = sectionOf("services", model(services, { filter: "shop/" }));
  assertStringIncludes(html, "shop/cart");
  assertEquals(html.includes("default/web"), false);
});

Deno.test("pageSections() are equal for equal models, so that nothing is sent that did not change", () => {
  const page = model([service("default/web:http")]);
  assertEquals(pageSections(page), pageSections(structuredClone(page)));
});

Deno.test("pageSections() tells drift among the troubles", () => {
  const change = { at: 0, cause: "chain services", effect: "put back" };
  const quiet = sectionOf("trouble", model([], { changes: [change] }));
  assertStringIncludes(quiet, "no drift was seen");
  const drifted = sectionOf("trouble", model([], { changes: [{ ...change, attention: "drift" }] }));
  assertStringIncludes(drifted, "chain services: put back");
});
