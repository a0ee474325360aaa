/** Explains addresses and routes by objects, and by what the running process sees on the machine. */
import { ConfigurationError } from "../../config/configuration_error.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { type Cidr, hostCidr, tryParseCidr } from "../../net/cidr.ts";
import { type IpAddress, tryParseIpAddress } from "../../net/ip_address.ts";
import {
  type AddressReport,
  explainAddress,
  explainPrefix,
  explainService,
  type PrefixReport,
  type SeenRouting,
  type ServiceAddressReport,
} from "../../routing/explain_routing.ts";
import { type ServiceKey, serviceKey } from "../../proxy/service_port_name.ts";
import { askControl } from "../control/control_client.ts";
import { planRunningNode } from "../offline/plan_node.ts";
import {
  type PlannedNode,
  type PlanNodeDependencies,
  planRouting,
} from "../offline/planned_node.ts";
import { type Report, sentence } from "../report.ts";

/** A question about a prefix or an address. */
export type RoutingQuestion =
  | { readonly kind: "address"; readonly address: IpAddress }
  | { readonly kind: "service"; readonly service: ServiceKey }
  | { readonly kind: "bgp"; readonly prefix: Cidr };

/** The answer, and what is not known. */
interface ExplainedRouting {
  readonly subject: string;
  readonly report: PrefixReport | AddressReport | ServiceAddressReport;
  readonly notes: readonly string[];
}

/** Returns the question; `undefined` if the operands are ends of a packet. */
export function parseRoutingQuestion(from: string, to: string): RoutingQuestion | undefined {
  const address = tryParseIpAddress(to);
  if (from === "address") {
    if (address !== undefined) return { kind: "address", address };
    const [, namespace, name] = /^([-a-z0-9]+)\/([-a-z0-9]+)$/.exec(to) ?? [];
    if (namespace !== undefined && name !== undefined) {
      return { kind: "service", service: serviceKey({ namespace, name }) };
    }
    throw new ConfigurationError([
      `Cannot explain address '${to}': expected an IP address such as 192.0.2.10, or a Service such as ` +
      "shop/web",
    ]);
  }
  if (from !== "bgp") return undefined;
  const prefix = address === undefined ? tryParseCidr(to) : hostCidr(address);
  if (prefix !== undefined) return { kind: "bgp", prefix };
  throw new ConfigurationError([
    `Cannot explain prefix '${to}': expected a CIDR such as 192.0.2.0/28, or an address`,
  ]);
}

/** Explains by the objects of a plan. `seen` is what the running process sees. */
export async function explainPlannedRouting(
  planned: PlannedNode,
  question: RoutingQuestion,
  seen?: SeenRouting,
  notes: readonly string[] = [],
): Promise<ExplainedRouting> {
  const routing = await planRouting(planned);
  if (!routing) {
    throw new Error(
      "Cannot explain addresses and routes: they are left alone without --routing " +
        "(routing.enabled in the configuration)",
    );
  }
  if (question.kind === "bgp") {
    const { prefix } = question;
    return { subject: prefix, report: explainPrefix(routing, { prefix, seen: seen?.bgp }), notes };
  }
  if (question.kind === "service") {
    const { service } = question;
    const report = explainService(routing, { service, ...(seen && { seen }) });
    return { subject: service, report, notes };
  }
  const { address } = question;
  const report = explainAddress(routing, { address, ...(seen && { seen }) });
  return { subject: address, report, notes };
}

/** Explains by the running process: it gives its inputs, and what it sees on the machine. */
export async function explainRunningRouting(
  dependencies: PlanNodeDependencies,
  relay: LoadedConfiguration["relay"],
  question: RoutingQuestion,
): Promise<ExplainedRouting> {
  const planned = await planRunningNode(dependencies, relay);
  if (!planned.configuration.proxy.routing.enabled) {
    return await explainPlannedRouting(planned, question);
  }
  const { held, sessions, sent, problem } = await askControl(relay.controlSocket, "/routing/seen");
  const seen = {
    held: new Map(held.map(({ address, device }) => [address, device])),
    // A daemon that does not answer sends nothing.
    ...((sessions ?? problem) !== undefined && {
      bgp: {
        sessions: new Map(sessions?.map(({ peer, description }) => [peer, description])),
        sent: new Map(sent?.map(({ peer, prefixes }) => [peer, new Set(prefixes)])),
      },
    }),
  };
  const notes = problem === undefined ? [] : [`the BGP daemon does not answer: ${problem}`];
  return await explainPlannedRouting(planned, question, seen, notes);
}

/** Shows the answer about a prefix or an address, what is not known, and the steps. */
export function routingReport({ subject, report, notes }: ExplainedRouting): Report {
  const { headline, steps } = report;
  const isGood = /^(?:ANNOUNCED|REACHABLE|FREE|HAS|WAITS)/.test(headline);
  const rows = [
    sentence(headline, isGood ? "good" : "bad"),
    ...notes.map((text) => sentence(`Note: ${text}`, "warning")),
    ...steps.map(({ topic, text, items = [] }) => ({ cells: [topic, text], detail: items })),
  ];
  return { title: "", rows: [], parts: [{ title: subject, rows, parts: [] }] };
}
