import { SERVICE } from "../../api/kinds/service.ts";
import { ConfigurationError } from "../../config/load.ts";
import { BadQuestion } from "../control/control_server.ts";
import type { ObservedRun } from "../../app/run/run_tools.ts";
import type { Clock } from "../../os/clock.ts";
import { PacketEndsError } from "./packet_end_text.ts";
import { explainEnds, type ExplainReport, knownNodeAddresses } from "./explain_report.ts";

/**
 * Answers `/explain?from=…&to=…` with the live plan; `&brief` does not ask the machine. Throws a
 * BadQuestion for an invalid or unknown end.
 */
export async function explainRunning(
  clock: Clock,
  { services: { families, node }, configuration, current, informers, startUp }: ObservedRun,
  query: URLSearchParams,
): Promise<ExplainReport> {
  const [from, to] = [query.get("from"), query.get("to")];
  if (from === null || to === null) {
    throw new BadQuestion("Cannot explain a packet without both ends: 'from' and 'to'");
  }
  const { mode } = configuration;
  const nodeName = startUp.node.name;
  const others = families.flatMap(({ pipeline }) => pipeline.interfaceAddresses ?? []);
  const proxies = new Map(families.map((proxy) => [proxy.family, proxy]));
  try {
    return await explainEnds({ clock }, { from, to }, {
      mode,
      nodeName,
      plans: new Map(families.map(({ family, pipeline }) => [family, pipeline.plan])),
      nodeAddresses: knownNodeAddresses({ proxy: current.proxy, nodeName, mode, node, others }),
      services: () => informers.of(SERVICE).values(),
      backend: (family) => proxies.get(family)!.backend,
      quarantined: (family) => proxies.get(family)!.loop.quarantined,
      notAsked: query.has("brief") ? "this was not asked for" : undefined,
    });
  } catch (error) {
    const isWrong = error instanceof ConfigurationError || error instanceof PacketEndsError;
    if (isWrong) throw new BadQuestion(error.message, { cause: error });
    throw error;
  }
}
