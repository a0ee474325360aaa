import { SERVICE } from "../../api/kinds/service.ts";
import { ConfigurationError } from "../../config/load.ts";
import type { Clock } from "../../os/clock.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import { BadQuestion } from "../control/control_server.ts";
import type { FamilyProxy } from "../service/family_proxy.ts";
import type { IntrospectedParts } from "../control/introspection.ts";
import { PacketEndsError } from "./packet_scope.ts";
import { askMachine } from "./machine_questions.ts";
import { explainEnds, type ExplainReport } from "./explain_report.ts";
import { knownNodeAddresses } from "./known_addresses.ts";

/**
 * Answers `/explain?from=…&to=…`; with `&brief` nothing is asked of the machine. Throws a BadQuestion
 * where an end is wrong or not there.
 */
export async function explainRunning(
  { clock }: { readonly clock: Clock },
  parts: IntrospectedParts,
  query: URLSearchParams,
): Promise<ExplainReport> {
  const [from, to] = [query.get("from"), query.get("to")];
  if (from === null || to === null) {
    throw new BadQuestion("Cannot explain a packet without both ends: 'from' and 'to'");
  }
  const { families, configuration, informers, startUp, node } = parts;
  const { mode, proxy } = configuration();
  const nodeName = startUp.node.name;
  const others = families.flatMap(({ pipeline }) => pipeline.interfaceAddresses ?? []);
  const of = (family: IpFamily) => proxyOf(families, family);
  try {
    return await explainEnds({ clock }, { from, to }, {
      mode,
      nodeName,
      plans: new Map(families.map(({ family, pipeline }) => [family, pipeline.plan])),
      nodeAddresses: knownNodeAddresses({ proxy, nodeName, mode, node: node(), others }),
      services: () => informers().of(SERVICE).values(),
      backend: (family) => of(family).backend,
      quarantined: (family) => of(family).loop.quarantined,
      machine: query.has("brief") ? { notAsked: "this was not asked for" } : {
        kernel: (plan, explanation) =>
          askMachine({ clock }, of(plan.family).backend).kernel(plan, explanation),
        affinity: (plan, explanation) =>
          askMachine({ clock }, of(plan.family).backend).affinity(plan, explanation),
      },
    });
  } catch (error) {
    const isWrong = error instanceof ConfigurationError || error instanceof PacketEndsError;
    if (isWrong) throw new BadQuestion(error.message, { cause: error });
    throw error;
  }
}

function proxyOf(families: readonly FamilyProxy[], wanted: IpFamily): FamilyProxy {
  const found = families.find(({ family }) => family === wanted);
  if (found === undefined) {
    throw new Error(`Cannot explain a packet of ${wanted}: it is turned off`);
  }
  return found;
}
