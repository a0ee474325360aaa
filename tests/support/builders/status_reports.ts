/** Builds the status of a running kube-relay, with only the fields under test. */
import type { StatusReport } from "../../../lib/tools/status/status_report.ts";
import type { StatusFamily } from "../../../lib/app/service/service_status.ts";

/**
 * The status of process 4711 on node `node-a`, serving since the beginning of 2026, with overrides.
 */
export function testStatusReport(overrides: Partial<StatusReport> = {}): StatusReport {
  return {
    version: "0.1.0",
    pid: 4711,
    startedAt: "2026-01-01T00:00:00.000Z",
    phase: "serving",
    largestEventLoopDelayMs: 3,
    node: { name: "node-a" },
    sources: [],
    hostSettings: [],
    families: [],
    ...overrides,
  };
}

/** The status of IPv4 in userspace mode, without Services and syncs, with overrides. */
export function testStatusFamily(overrides: Partial<StatusFamily> = {}): StatusFamily {
  return {
    family: "IPv4",
    mode: "userspace",
    summary: "",
    pending: false,
    failures: 0,
    services: [],
    quarantined: [],
    ...overrides,
  };
}
