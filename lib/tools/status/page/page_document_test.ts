import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  testStatusFamily,
  testStatusReport,
} from "../../../../tests/support/builders/status_reports.ts";
import type { ChangeEntry } from "../../changes/change_entry.ts";
import type { StatusService } from "../../../app/service/service_status.ts";
import { pageDocument, type PageModel, pageSections } from "./page_document.ts";

const EVIL = `</script><img src=x onerror="alert(1)">'&`;

function service(name: string, fields: Partial<StatusService> = {}): StatusService {
  const endpoints = [{ address: "10.1.0.5:80", state: "ready", local: false }] as const;
  return { name, protocol: "TCP", addresses: [], endpoints, ...fields };
}

function model(services: readonly StatusService[], fields: Partial<PageModel> = {}): PageModel {
  const report = testStatusReport({ families: [testStatusFamily({ mode: "nftables", services })] });
  return { report, filter: "", syncs: [], changes: [], doctor: { findings: [] }, ...fields };
}

function sectionsOf(of: PageModel) {
  return [...pageSections(of)];
}

function documentOf(of: PageModel): string {
  return pageDocument(of, sectionsOf(of));
}

function sectionOf(id: string, of: PageModel): string {
  return sectionsOf(of).find((section) => section.id === id)!.html;
}

Deno.test("pageDocument() shows every section without a script", () => {
  const page = model([service("default/web:http")]);
  const html = documentOf(page);
  for (const { id, html: section } of sectionsOf(page)) {
    assertStringIncludes(html, `id="${id}"`);
    assertStringIncludes(html, section);
  }
  assertStringIncludes(html, "default/web:http");
});

Deno.test("pageDocument() shows control characters as text", () => {
  const name = "default/a\u001b[2J\u202eb";
  const settings = ["on\u0085e"];
  const html = documentOf(model([service(name, { quarantined: name, settings })]));
  // deno-lint-ignore no-control-regex
  assertEquals(html.match(/[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]/g), null);
  assertStringIncludes(html, "\\u001b[2J");
});

Deno.test("pageDocument() escapes all text of a manifest, a tool or a reader", () => {
  const base = model([service(EVIL, { quarantined: EVIL })]);
  const [family] = base.report.families;
  const html = documentOf({
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
    changes: [{
      ...{ kind: "quarantine", sequence: 1, at: "2026-01-01T00:00:00Z", family: "IPv4" },
      lines: [{ tone: "bad", text: EVIL }],
    }],
    doctor: {
      at: 0,
      findings: [{ id: "x", severity: "warning", summary: EVIL, evidence: [EVIL], cure: EVIL }],
    },
  });
  assertEquals(html.match(/<img/g), null);
  assertEquals(html.match(/<\/script>/g)?.length, 1, "only the page's own");
  assert(html.split("&lt;img").length > 15, "its content is shown nevertheless");
});

Deno.test("pageSections() names Services with trouble first, and says how many are not shown", () => {
  const many = Array.from({ length: 300 }, (_, index) => service(`default/web-${index}:http`));
  const html = sectionOf("services", model([...many, service("zoo/gone:http", { endpoints: [] })]));
  assertStringIncludes(html, "200 of 301");
  assert(html.indexOf("zoo/gone") < html.indexOf("default/web-0"));
  assertStringIncludes(html, "none: refused");
});

Deno.test("pageSections() filters Services as status does", () => {
  const services = [service("default/web:http"), service("shop/cart:http")];
  const html = sectionOf("services", model(services, { filter: "shop/" }));
  assertStringIncludes(html, "shop/cart");
  assertEquals(html.includes("default/web"), false);
});

Deno.test("pageSections() lists drift among the problems", () => {
  assertStringIncludes(sectionOf("problems", model([])), "no drift was seen");
  const drift: ChangeEntry = {
    kind: "drift",
    sequence: 1,
    at: "2026-01-01T00:00:01.000Z",
    family: "IPv4",
    lines: [{ text: "DRIFT: 1 chain not as written, 1 repaired", tone: "warning" }],
  };
  const html = sectionOf("problems", model([], { changes: [drift] }));
  assertStringIncludes(html, "DRIFT: 1 chain not as written, 1 repaired");
});

Deno.test("pageDocument() explains an endpoint by the protocol of its Service", () => {
  const endpoints = [{ address: "10.1.0.5:53", state: "ready", local: false }] as const;
  const html = String(
    sectionOf("services", model([service("a/dns", { protocol: "UDP", endpoints })])),
  );
  assertStringIncludes(html, `to=${encodeURIComponent("10.1.0.5:53/UDP")}`);
});
