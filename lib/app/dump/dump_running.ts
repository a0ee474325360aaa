/**
 * The dump of a running program.
 *
 * @module
 */
import type { Clock } from "../../os/clock.ts";
import type { ChangesReport } from "../changes/change_entry.ts";
import type { ProcessInfo } from "../dependencies.ts";
import type { FamilyProxy } from "../service/family_proxy.ts";
import type { IntrospectedParts } from "../control/introspection.ts";
import type { StatusReport } from "../status/status_report.ts";
import { collectDump, type DumpedFamily } from "./collect_dump.ts";

/**
 * What the parts know, for `jsonPieces()`, beside what was just collected; where nothing was, only what
 * it is planned from.
 */
export function dumpRunning(
  { clock, process }: {
    readonly clock: Clock;
    readonly process: Pick<ProcessInfo, "kernelRelease">;
  },
  { families, startUp, configuration, informers, node }: IntrospectedParts,
  collected: { readonly status: StatusReport; readonly changes: ChangesReport } | undefined,
): unknown {
  const { proxy, relay, mode } = configuration();
  return collectDump({ clock, kernelRelease: process.kernelRelease }, {
    mode,
    nodeName: startUp.node.name,
    configuration: { proxy, relay },
    informers: informers(),
    node: node(),
    families: families.map(familyOf),
    ...(collected ?? { onlyInputs: true }),
  });
}

function familyOf({ family, backend, pipeline, syncer }: FamilyProxy): DumpedFamily {
  const facts = backend.facts();
  const { plan, interfaceAddresses } = pipeline;
  return {
    family,
    plan,
    quarantined: syncer.quarantined,
    ...(interfaceAddresses && { interfaceAddresses }),
    ...(facts && { facts }),
  };
}
