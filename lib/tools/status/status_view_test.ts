import { assert, assertEquals } from "@std/assert";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import {
  testStatusFamily,
  testStatusReport,
} from "../../../tests/support/builders/status_reports.ts";
import type { ServedAddress } from "../../proxy/service_mode.ts";
import type { StatusService } from "../../app/service/service_status.ts";
import { foremostServices, matchesFilter, serviceViews, statusView } from "./status_view.ts";

const READY = { address: "10.1.0.5:80", state: "ready", local: false } as const;

function service(name: string, fields: Partial<StatusService> = {}): StatusService {
  return { name, protocol: "TCP", addresses: [], endpoints: [READY], ...fields };
}

Deno.test("matchesFilter() matches the start of the name or a whole word of it", () => {
  const name = "demo/web:http";
  for (const filter of ["", "demo", "demo/we", "web", "http", "demo/web:http"]) {
    assert(matchesFilter(name, filter), filter);
  }
  for (const filter of ["eb", "htt", "other"]) assert(!matchesFilter(name, filter), filter);
});

Deno.test("foremostServices() puts problems first, then traffic, then names", () => {
  const traffic = { bytesFromClients: 1, bytesToClients: 1, opened: 9 };
  const services = [
    service("a/quiet"),
    service("a/busy", { traffic }),
    service("a/partly", { endpoints: [READY, { ...READY, state: "not ready" }] }),
    service("a/empty", { endpoints: [] }),
    service("a/refused", { quarantined: "no such file" }),
    service("b/other"),
  ];
  const report = testStatusReport({ families: [testStatusFamily({ services })] });
  const { shown, all } = foremostServices(report, { filter: "a", most: 4 });
  assertEquals(
    [all, ...shown.map(({ name, health }) => `${name}: ${health.text}, ${health.tone}`)],
    [
      6,
      "a/refused: in quarantine: no such file, bad",
      "a/empty: no endpoints, bad",
      "a/partly: 1 of 2 ready, bad",
      "a/busy: 1 of 1 ready, good",
    ],
  );
});

Deno.test("serviceViews() sorts by name and protocol, and counts further endpoints", () => {
  const endpoints = Array.from({ length: 100 }, () => READY);
  const services = [service("b"), service("a", { endpoints }), service("a", { protocol: "SCTP" })];
  const views = serviceViews({ services }, "");
  assertEquals(views.map(({ name, protocol }) => `${name} ${protocol}`), [
    "a SCTP",
    "a TCP",
    "b TCP",
  ]);
  assertEquals([views[1]!.endpoints.length, views[1]!.endpoints.at(-1)], [9, "and 92 more"]);
});

Deno.test("serviceViews() counts further addresses of a Service with very many", () => {
  const addresses = Array.from({ length: 2000 }, (_, index) => ({
    role: "ExternalIP" as const,
    address: parseIpAddress("192.0.2.1"),
    port: parsePort(index + 1),
    protocol: "TCP" as const,
    state: "serving" as const,
  }));
  const [view] = serviceViews({ services: [service("a", { addresses })] }, "");
  assertEquals([view?.addresses.length, view?.addresses.at(-1)], [65, "and 1936 more"]);
});

Deno.test("serviceViews() puts addresses with a problem before those that serve", () => {
  const stateAt = new Map<number, ServedAddress["state"]>([
    [1998, "refusing"],
    [1999, "quarantined"],
  ]);
  const addresses = Array.from({ length: 2000 }, (_, index) => ({
    role: "ClusterIP" as const,
    address: parseIpAddress("192.0.2.1"),
    port: parsePort(index + 1),
    protocol: "TCP" as const,
    state: stateAt.get(index) ?? "serving" as const,
  }));
  const [view] = serviceViews({ services: [service("a", { addresses })] }, "");
  assertEquals(view?.addresses.slice(0, 3), [
    "192.0.2.1:2000 (quarantined)",
    "192.0.2.1:1999 (refusing)",
    "192.0.2.1:1",
  ]);
});

Deno.test("statusView() filters the quarantine, and notes problems", () => {
  const quarantined = ["a/web:http/TCP", "b/web/UDP"].map((key) => ({
    ...{ key: key as never, reason: "in use" },
  }));
  const families = [testStatusFamily({ quarantined, pending: true, failures: 1 })];
  const [services] = statusView(testStatusReport({ families }), "a").controllers;
  const family = services?.families[0];
  assertEquals(family?.quarantine, [{ text: "a/web:http/TCP: in use" }]);
  assertEquals(family?.notes.map(({ tone, text }) => `${tone}: ${text}`), [
    "plain: no sync yet",
    "plain: changes wait",
    "bad: 1 sync failed",
  ]);
});

Deno.test("serviceViews() shows unhealthy endpoints first, with the reason", () => {
  const since = "2026-01-01T00:00:00.000Z";
  const health = (state: "unhealthy" | "ejected" | "healthy" | "unchecked", reason?: string) => ({
    health: { state, since, ...(reason !== undefined && { reason }) },
  });
  const endpoints = [
    ...Array.from({ length: 8 }, () => ({ ...READY, ...health("healthy") })),
    { ...READY, address: "10.1.0.6:80", ...health("unhealthy", "503 instead of\n200") },
    { ...READY, address: "10.1.0.7:80", ...health("ejected", "refused") },
    { ...READY, address: "10.1.0.8:80", ...health("unchecked", "not checked: no") },
  ];
  const [view] = serviceViews({ services: [service("a", { endpoints })] }, "");
  assertEquals(view?.health, { tone: "bad", text: "11 of 11 ready, 2 unhealthy" });
  assertEquals(view?.endpoints.slice(0, 3), [
    "10.1.0.6:80 (unhealthy since 2026-01-01T00:00:00Z: 503 instead of\\u000a200)",
    "10.1.0.7:80 (ejected since 2026-01-01T00:00:00Z: refused)",
    "10.1.0.5:80",
  ]);
  const [last] = serviceViews({ services: [service("a", { endpoints: endpoints.slice(10) })] }, "");
  assertEquals(last?.endpoints, ["10.1.0.8:80 (not checked: no)"]);
});
