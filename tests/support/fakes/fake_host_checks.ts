import type { BackendMode } from "../../../lib/proxy/backend.ts";
import type { ProbeResult } from "../../../lib/proxy/service_mode.ts";
import type { FindingOptions, HostChecks, HostFinding } from "../../../lib/proxy/host_checks.ts";

/** The software and features of the machine. */
export interface FakeHost {
  /** @default nothing is missing */
  readonly probes?: Readonly<Partial<Record<BackendMode, readonly ProbeResult[]>>>;
  /** @default {[]} */
  readonly findings?: readonly HostFinding[];
  /** Called with the options of each search for findings. */
  readonly onFindings?: (options: FindingOptions) => void;
}

/** {@linkcode HostChecks} of that machine; `asked` gets the modes that were probed. */
export function fakeHostChecks(
  { probes = {}, findings = [], onFindings = () => {} }: FakeHost = {},
  asked: BackendMode[] = [],
): HostChecks {
  return {
    probeMode(mode) {
      asked.push(mode);
      return Promise.resolve(probes[mode] ?? []);
    },
    findings: (options = {}) => {
      onFindings(options);
      return Promise.resolve(findings);
    },
    removeKubeProxy: () => Promise.resolve({ removed: [], failed: [] }),
    removeKubeRouterPolicies: () => Promise.resolve({ removed: [], failed: [] }),
  };
}

/** A required thing that is missing. */
export function missingFeature(feature: string, more: Partial<ProbeResult> = {}): ProbeResult {
  return {
    feature,
    available: false,
    required: true,
    detail: `no ${feature}`,
    cure: `get ${feature}`,
    ...more,
  };
}
