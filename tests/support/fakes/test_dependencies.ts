import type { Dependencies, ProcessInfo } from "../../../lib/app/dependencies.ts";
import type { Machine, ProgramDependencies } from "../../../lib/app/run/run_tools.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import { ToolsOfRun } from "../../../lib/tools/control/run_tools.ts";
import type { PolicyBackendTable } from "../../../lib/app/policy/policy_backend.ts";
import { FakePolicyBackend } from "./fake_policy_backend.ts";
import { fakeHostChecks } from "./fake_host_checks.ts";

/** A process of root without environment and terminal. */
export const TEST_PROCESS: ProcessInfo = {
  pid: 1,
  uid: 0,
  hostname: "host-a",
  env: () => undefined,
  stdoutIsTerminal: false,
  columns: 80,
};

/** Data planes of NetworkPolicy that have nothing to remove. */
export const NO_POLICY_BACKENDS: PolicyBackendTable = {
  nftables: (_, { family }) => new FakePolicyBackend(family),
  iptables: (_, { family }) => new FakePolicyBackend(family),
};

/**
 * The edges of an application: real time, the real network and healthy host checks, without programs,
 * modes and output, unless a test has its own.
 */
export function testDependencies(
  { process, ...edges }: Partial<Omit<ProgramDependencies, "process">> & {
    readonly process?: Partial<ProcessInfo>;
  } = {},
): ProgramDependencies {
  return {
    clock: systemClock,
    network: systemNetwork,
    commands: { run: (program) => Promise.reject(new Error(`Unexpected start of ${program}`)) },
    random: () => 0.5,
    backends: {},
    policyBackends: NO_POLICY_BACKENDS,
    hostChecks: fakeHostChecks(),
    createTools: (edges) => new ToolsOfRun(edges),
    print: () => {},
    complain: () => {},
    ...edges,
    process: { ...TEST_PROCESS, ...process },
  };
}

/** The machine of a command line that has these edges. */
export function machineOf(edges: Dependencies): Machine {
  return { ...edges, loadAll: () => Promise.resolve(edges) };
}
