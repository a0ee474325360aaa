import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  testStatusFamily,
  testStatusReport,
} from "../../../tests/support/builders/status_reports.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import type { ServedAddress } from "../../proxy/service_mode.ts";
import { servicePortKey } from "../../proxy/service_port_name.ts";
import type { StatusReport } from "./status_report.ts";
import type { StatusFamily, StatusService } from "../../app/service/service_status.ts";
import { renderStatus } from "./status_text.ts";

const NOW = Date.UTC(2026, 0, 1, 12);

function address(
  text: string,
  { port = 80, ...rest }: Partial<Omit<ServedAddress, "address" | "port">> & { port?: number } = {},
): ServedAddress {
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
  return { name, protocol: "TCP", addresses: [], endpoints: [], ...rest };
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
        durationMs: 1.2,
        full: false,
        services: 2,
        operations: { listen: 2, close: 1 },
      },
      services,
      ...family,
    })],
  });
}

const WEB = service("demo/web:http", {
  connections: 3,
  addresses: [
    address("10.96.0.10"),
    address("192.168.0.2", { role: "NodePort", port: 30080 }),
  ],
  endpoints: [
    { address: "10.0.1.1:8080", state: "ready", local: true },
    { address: "10.0.1.2:8080", state: "serving, terminating", local: false },
  ],
});

const DNS = service("demo/dns", {
  protocol: "UDP",
  addresses: [address("10.96.0.53", { port: 53, protocol: "UDP", state: "refusing" })],
});

Deno.test("renderStatus() shows the served addresses, sorted by name", () => {
  assertEquals(
    renderStatus(report([WEB, DNS]), { now: NOW }),
    `kube-relay v0.1.0  serving, up 3m12s  (process 42)
Node     node-a, zone eu-1
Source   examples/demo: 12 objects

IPv4     userspace: one address each on lo
Sync     2s ago in 1.2 ms (changes only: 2 listen, 1 close)

SERVICE            ADDRESSES                   ENDPOINTS
demo/dns UDP       10.96.0.53:53 (refusing)    none: refused
demo/web:http TCP  10.96.0.10:80               10.0.1.1:8080 (local)
(3 open)           192.168.0.2:30080 NodePort  10.0.1.2:8080 (serving,
                                               terminating)
`,
  );
});

Deno.test("renderStatus() names quarantined items, with the reason", () => {
  const key = (port: string) =>
    servicePortKey({ namespace: "demo", name: "web", port, protocol: "TCP" });
  const address = "10.96.0.10:80/TCP";
  const reason = "Address already in use by another program; free the port or change the Service";
  const retryAt = new Date(NOW + 90_000).toISOString();
  const text = renderStatus(
    report([{ ...WEB, quarantined: `${address}: ${reason}` }], {
      quarantined: [
        { key: key("http"), address, reason },
        { key: key("https"), reason: "No such file", retryAt },
      ],
      failures: 2,
      pending: true,
      lastError: "Cannot bind",
    }),
    { now: NOW },
  );
  assertStringIncludes(text, "(3 open, quarantined)");
  assertStringIncludes(text, "changes wait, 2 syncs failed");
  assertStringIncludes(text, "         ! Cannot bind\n");
  assertStringIncludes(
    text,
    `In quarantine (the others work):
  demo/web:http/TCP at 10.96.0.10:80/TCP: Address already in use by another
    program; free the port or change the Service; tried again at each sync
  demo/web:https/TCP: No such file; tried again in 1m30s
`,
  );
});

Deno.test("renderStatus() reports it when there is nothing yet", () => {
  const { lastSync: _, ...never } = report([]).families[0]!;
  const text = renderStatus({ ...report([]), families: [never] }, { now: NOW });
  assertStringIncludes(text, "Sync     no sync yet");
  assertStringIncludes(text, "No Services.");
  const filtered = renderStatus(report([WEB]), { now: NOW, filter: "nope" });
  assertStringIncludes(filtered, "No Service matches 'nope'.");
});

Deno.test("renderStatus() fits the terminal, whatever the names", () => {
  const long = "x".repeat(63);
  const services = [
    service(`${long}/${long}:${long.slice(0, 15)}`, {
      addresses: [address("fd00:1234:5678:9abc:def0:1234:5678:9abc", { role: "LoadBalancer" })],
      endpoints: [{
        address: "[fd00:1234:5678:9abc:def0:1234:5678:9abc]:65535",
        state: "serving, terminating",
        local: true,
      }],
    }),
  ];
  for (const columns of [20, 60, 80, 100, 200]) {
    const text = renderStatus(report(services), { now: NOW, columns });
    const table = text.slice(text.indexOf("SERVICE"));
    for (const line of table.split("\n")) assert(line.length <= Math.max(60, columns), line);
    const letters = table.replaceAll(/[^x]/g, "").length;
    assertEquals(letters, 63 + 63 + 15, `cut off at ${columns} columns`);
  }
});

Deno.test("renderStatus() shows the traffic of a Service, if it is counted", () => {
  const traffic = { bytesFromClients: 999, bytesToClients: 3_456_000, opened: 12, open: 3 };
  const text = renderStatus(report([{ ...WEB, traffic }]), { now: NOW, columns: 120 });
  assertStringIncludes(text, "(3 open, 12 in all, 999 B in, 3.5 MB out)");
});

Deno.test("renderStatus() has colour only when asked for", () => {
  const escape = "\u001b[";
  const services = [{ ...WEB, quarantined: "x" }];
  assert(!renderStatus(report(services), { now: NOW }).includes(escape));
  assert(renderStatus(report(services), { now: NOW, color: true }).includes(escape));
});

Deno.test("renderStatus() lets no text from a manifest move the cursor", () => {
  const evil = "a\u001b[2Jb\n\u009bc";
  const text = renderStatus(
    {
      ...report([service(evil, { quarantined: evil })], { summary: evil, lastError: evil }),
      node: { name: evil, zone: evil },
      sources: [{ name: evil, state: evil, problems: [evil] }],
    },
    { now: NOW },
  );
  // deno-lint-ignore no-control-regex
  assertEquals(text.replaceAll("\n", "").match(/[\x00-\x1f\x7f-\x9f]/), null);
});

Deno.test("renderStatus() names kernel settings that were refused, with the command for an admin", () => {
  const setting = { name: "net.a", wanted: "2", found: "1", purpose: "p" } as const;
  const text = renderStatus({
    ...report([]),
    hostSettings: [
      { ...setting, name: "net.kept", state: "kept" },
      {
        ...setting,
        state: "refused",
        reason: "Read-only file system",
        cure: "sysctl -w net.a=2",
      },
    ],
  }, { now: NOW });
  assertStringIncludes(
    text,
    "Kernel   net.a is 1, not 2: Read-only file system; where that is allowed:\n",
  );
  assertStringIncludes(text, "         sysctl -w net.a=2\n");
  assert(!text.includes("net.kept"));
});

Deno.test("renderStatus() wraps problems of a source and a sync like other texts", () => {
  const problem =
    "/etc/manifests/shop.yaml:12:5: Service shop/web: spec.ports[0].port is 70000: it " +
    "has to be a whole number between 1 and 65535; the Service is left out until this is fixed";
  const text = renderStatus({
    ...report([], { lastError: `${problem} ${problem}`, failures: 2 }),
    sources: [
      {
        name: "/etc/manifests/shop.yaml",
        state: "2 objects".repeat(8),
        problems: [problem, "short"],
      },
    ],
  }, { now: NOW });
  for (const line of text.split("\n")) assert(line.length <= 80, line);
  assertStringIncludes(
    text,
    `
         ! /etc/manifests/shop.yaml:12:5: Service shop/web: spec.ports[0].port
           is 70000: it has to be a whole number between 1 and 65535; the
           Service is left out until this is fixed
         ! short
`,
  );
});
