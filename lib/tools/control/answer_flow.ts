import { ipFamilyOf, tryParseIpAddress } from "../../net/ip_address.ts";
import { PROTOCOLS, tryParsePort } from "../../net/port.ts";
import type { Clock } from "../../os/clock.ts";
import type { FlowQuery, WatchedFlow } from "../../proxy/flow_watches.ts";
import { BadQuestion } from "./control_server.ts";
import type { Query } from "./routes.ts";
import type { ServiceFamily } from "../../app/service/services.ts";

export interface FlowParts {
  readonly clock: Clock;
  readonly families: readonly Pick<ServiceFamily, "backend" | "family">[];
}

const ID = /^[\w-]{1,64}$/;

/**
 * Answers `trace` in userspace mode with the events of a connection since the first request with
 * this id. The watch ends 10 s after the last request. Throws a BadQuestion for an invalid query or
 * in another mode.
 */
export async function answerFlow(
  { clock, families }: FlowParts,
  query: Query<"/flow">,
): Promise<readonly WatchedFlow[]> {
  const { id = "" } = query;
  if (!ID.test(id)) throw new BadQuestion("Cannot watch without an 'id' of letters and digits");
  const wanted = parseFlowQuery(query);
  const family = families.find(({ family }) => family === ipFamilyOf(wanted.to));
  const connections = family?.backend.connections;
  if (!connections) throw new BadQuestion("Cannot watch: this mode sees no connections");
  const ask = () => connections.watches.ask(id, { query: wanted, now: clock.now() });
  ask();
  await connections.refresh();
  return ask();
}

function parseFlowQuery(query: Query<"/flow">): FlowQuery {
  const protocol = PROTOCOLS.find((each) => each === query.protocol);
  const to = tryParseIpAddress(query.to ?? "");
  const port = tryParsePort(query.port ?? "");
  const from = optional(query.from, tryParseIpAddress);
  const sourcePort = optional(query.sourcePort, tryParsePort);
  if (!protocol || !to || !port || from === "wrong" || sourcePort === "wrong") {
    throw new BadQuestion(
      "Cannot watch: expected protocol, to, port, and perhaps from, sourcePort",
    );
  }
  return { protocol, to, port, ...(from && { from }), ...(sourcePort && { sourcePort }) };
}

function optional<Value>(
  text: string | undefined,
  parse: (text: string) => Value | undefined,
): Value | "wrong" | undefined {
  return text === undefined ? undefined : parse(text) ?? "wrong";
}
