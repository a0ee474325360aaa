import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  testStatusFamily,
  testStatusReport,
} from "../../../tests/support/builders/status_reports.ts";
import type { StatusFamily, StatusService } from "../../app/service/service_status.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import type { ServedAddress } from "../../proxy/service_mode.ts";
import { paintText } from "../report.ts";
import {
  agesAt,
  foremostServices,
  matchesFilter,
  problemCounts,
  statusAnswer,
} from "./status_answer.ts";
import type { StatusReport } from "./status_report.ts";

const NOW = Date.UTC(2026, 0, 1, 12);
const READY = { address: "10.1.0.5:80", state: "ready", local: false } as const;

function address(text: string, port: number, rest: Partial<ServedAddress> = {}): ServedAddress {
  return {
    role: "ClusterIP",
    address: parseIpAddress(text),
    port: parsePort(port),
    protocol: "TCP",
    state: "serving",
    ...rest,
  };
}

function service(name: string, rest: Partial<StatusService> = {}): StatusService {
  return { name, protocol: "TCP", addresses: [], endpoints: [READY], ...rest };
}

function report(
  services: readonly StatusService[],
  family: Partial<StatusFamily> = {},
): StatusReport {
  return testStatusReport({
    pid: 42,
    startedAt: new Date(NOW - 192_000).toISOString(),
    node: { name: "node-a", zone: "eu-1" },
    sources: [{ name: "examples/demo", state: "12 objects", problems: [] }],
    families: [testStatusFamily({
      summary: "one address each on lo",
      lastSync: {
        at: new Date(NOW - 2_000).toISOString(),
        ...{ durationMs: 1.2, full: false, services: 2, operations: { listen: 2, close: 1 } },
      },
      services,
      ...family,
    })],
  });
}

function text(of: StatusReport, options: Partial<Parameters<typeof statusAnswer>[1]> = {}): string {
  return paintText(statusAnswer(of, { time: agesAt(NOW), ...options }));
}

const WEB = service("demo/web:http", {
  connections: 3,
  settings: ["balance: least connections"],
  traffic: { bytesFromClients: 999, bytesToClients: 3_456_000, opened: 12, open: 3 },
  addresses: [
    address("10.96.0.10", 80),
    address("192.168.0.2", 30080, { role: "NodePort" }),
  ],
  endpoints: [
    { address: "10.0.1.1:8080", state: "ready", local: true },
    { address: "10.0.1.2:8080", state: "serving, terminating", local: false },
  ],
});

const DNS = service("demo/dns", {
  protocol: "UDP",
  addresses: [address("10.96.0.53", 53, { protocol: "UDP", state: "refusing" })],
  endpoints: [],
});

Deno.test("statusAnswer() shows the served addresses, sorted by name, and settings below them", () => {
  assertEquals(
    text(report([WEB, DNS])),
    `kube-relay v0.1.0  serving, started 3m12s ago  (process 42)
Summary  2 ServicePorts, 1 without endpoints
Node     node-a, zone eu-1
Source   examples/demo: 12 objects

IPv4
  Mode  userspace: one address each on lo
  Sync  2s ago in 1.2 ms (changes only: 2 listen, 1 close)

SERVICE            HEALTH        ADDRESSES               ENDPOINTS
demo/dns UDP       no endpoints  10.96.0.53:53           none: refused
                                 (refusing)
demo/web:http TCP  1 of 2 ready  10.96.0.10:80           10.0.1.1:8080 (local)
                                 192.168.0.2:30080       10.0.1.2:8080 (serving,
                                 NodePort                terminating)
  3 open, 12 in all, 999 B in, 3.5 MB out
  balance: least connections
`,
  );
});

Deno.test("statusAnswer() begins with a summary and all problems", () => {
  const since = "2026-01-01T00:00:00.000Z";
  const unhealthy = {
    ...READY,
    health: { state: "unhealthy", since, reason: "503\nnot 200" },
  } as const;
  const setting = { name: "net.a", wanted: "2", found: "1", purpose: "p" } as const;
  const base = report([
    { ...WEB, quarantined: "in use" },
    service("demo/sick", { endpoints: [unhealthy, READY] }),
  ], {
    quarantined: [
      { key: "demo/web:http/TCP" as never, address: "10.96.0.10:80/TCP", reason: "in use" },
      {
        key: "demo/web:https/TCP" as never,
        reason: "no such file",
        retryAt: new Date(NOW + 90_000).toISOString(),
      },
    ],
    ...{ failures: 2, pending: true, lastError: "Cannot bind" },
  });
  const status = {
    ...base,
    sources: [{ name: "a.yaml", state: "2 objects", problems: ["12:5: not a port"] }],
    hostSettings: [
      { ...setting, name: "net.kept", state: "kept" },
      { ...setting, state: "refused", reason: "Read-only", cure: "sysctl -w net.a=2" },
    ] as const,
  };
  const shown = text(status);
  assertStringIncludes(
    shown,
    `Summary  2 ServicePorts, 2 in quarantine, 1 unhealthy; 1 failing loop; 1 source
         problem; 1 refused kernel setting
`,
  );
  assertStringIncludes(
    shown,
    `
Problems
  sync        IPv4: 2 syncs failed: Cannot bind
  quarantine  demo/web:http/TCP at 10.96.0.10:80/TCP: in use
                tried again at each sync
  quarantine  demo/web:https/TCP: no such file
                tried again in 1m30s
  source      a.yaml: 12:5: not a port
  kernel      net.a is 1, not 2: Read-only
                where that is allowed:
                sysctl -w net.a=2
  service     demo/sick TCP: 2 of 2 ready, 1 unhealthy
                10.1.0.5:80 (unhealthy since 2026-01-01T00:00:00Z: 503\\u000anot
                  200)

IPv4
`,
  );
  assertStringIncludes(
    shown,
    "(changes only: 2 listen, 1 close), changes wait, 2\n        syncs failed\n",
  );
  const counts = { state: 0, sync: 1, quarantine: 2, source: 1, kernel: 1, service: 1 };
  assertEquals(problemCounts(status), counts);
  // A brief status has the number of unhealthy Services, and names few of them.
  const brief = { ...status.families[0]!, counts: { all: 99, unhealthy: 30, withoutEndpoints: 0 } };
  assertEquals(problemCounts({ ...status, families: [brief] }), { ...counts, service: 30 });
  assertEquals(problemCounts({ ...report([]), phase: "stopping" }).state, 1);
  const only = text(status, { show: "problems", filter: "demo/web:https" });
  assertEquals(only.includes("10.96.0.10"), false);
  assertStringIncludes(only, "demo/web:https/TCP: no such file");
  assertEquals(only.includes("IPv4\n"), false);
});

Deno.test("statusAnswer() only counts many Services and problems, unless they are asked for", () => {
  const services = Array.from({ length: 40 }, (_, index) => service(`demo/web-${index}`));
  const quarantined = services.map(({ name }) => ({ key: `${name}/TCP` as never, reason: "no" }));
  const many = report(services, { quarantined });
  assertStringIncludes(text(many), "40 ServicePorts: --all lists them");
  assertStringIncludes(text(many), "and 10 more; --problems lists all");
  for (const [options, rows] of [[{ show: "all" }, 40], [{ filter: "web-1" }, 1]] as const) {
    const { length } = text(many, options).match(/^demo\/web-\S+ TCP /gm) ?? [];
    assertEquals(length, rows);
  }
  assertStringIncludes(text(report([]), {}), "Services  No Services");
  assertStringIncludes(text(many, { filter: "x" }), "Services  No Service matches 'x'");
});

Deno.test("statusAnswer() says which process is not serving, and that there was no sync", () => {
  const { lastSync: _, ...never } = report([]).families[0]!;
  const shown = text({ ...report([]), phase: "waiting for objects", families: [never] });
  assertStringIncludes(shown, "state  waiting for objects");
  assertStringIncludes(shown, "Sync      no sync yet");
});

Deno.test("statusAnswer() counts further endpoints and addresses, those with a problem first", () => {
  const stateAt = new Map<number, ServedAddress["state"]>([[1998, "refusing"], [
    1999,
    "quarantined",
  ]]);
  const addresses = Array.from(
    { length: 2000 },
    (_, index) => address("192.0.2.1", index + 1, { state: stateAt.get(index) ?? "serving" }),
  );
  const since = "2026-01-01T00:00:00.000Z";
  const ejected = { ...READY, health: { state: "ejected", since, reason: "refused" } } as const;
  const endpoints = [...Array.from({ length: 99 }, () => READY), ejected];
  const { parts } = statusAnswer(report([service("a", { addresses, endpoints })]), {
    time: agesAt(NOW),
  });
  const [, , shown, ends] = parts.at(-1)!.parts[0]!.rows[0]!.cells.map((cell) => cell.split("\n"));
  assertEquals(shown?.slice(0, 3), [
    "192.0.2.1:2000 (quarantined)",
    "192.0.2.1:1999 (refusing)",
    "192.0.2.1:1",
  ]);
  assertEquals([shown?.length, shown?.at(-1)], [65, "and 1936 more"]);
  assertEquals([ends?.length, ends?.at(-1)], [9, "and 92 more"]);
  assertStringIncludes(ends![0]!, "(ejected since 2026-01-01T00:00:00Z: refused)");
});

Deno.test("matchesFilter() matches the start of the name or a whole word of it", () => {
  const name = "demo/web:http";
  for (const filter of ["", "demo", "demo/we", "web", "http", "demo/web:http"]) {
    assert(matchesFilter(name, filter), filter);
  }
  for (const filter of ["eb", "htt", "other"]) assert(!matchesFilter(name, filter), filter);
});

Deno.test("foremostServices() judges each Service once", () => {
  let reads = 0;
  const services = Array.from({ length: 100 }, (_, index) => ({
    ...service(`default/${index}`),
    get quarantined() {
      reads++;
      return "in use";
    },
  }));
  foremostServices(report(services), "", 10);
  assertEquals(reads, 100);
});

Deno.test("foremostServices() puts problems first, then traffic, then names", () => {
  const traffic = { bytesFromClients: 1, bytesToClients: 1, opened: 9 };
  const services = [
    service("a/quiet"),
    service("a/busy", { traffic }),
    service("a/dead", { endpoints: [{ ...READY, state: "not ready" }] }),
    service("a/refused", { quarantined: "no such file" }),
    service("b/other"),
  ];
  const shown = foremostServices(report(services), "a", 3);
  assertEquals(shown.map(({ name }) => name), ["a/refused", "a/dead", "a/busy"]);
});

Deno.test("statusAnswer() takes the numbers of a brief status, and counts unhealthy Services that it does not name", () => {
  const sick = service("demo/sick", { endpoints: [{ ...READY, state: "not ready" }] });
  const shown = text(
    report([sick], { counts: { all: 9000, unhealthy: 31, withoutEndpoints: 7 } }),
    { show: "problems", mostProblems: 5 },
  );
  assertStringIncludes(shown, "Summary  9,000 ServicePorts, 31 unhealthy, 7 without endpoints\n");
  assertStringIncludes(shown, "demo/sick TCP: 0 of 1 ready");
  assertStringIncludes(shown, "and 30 more; --problems lists all");
});
