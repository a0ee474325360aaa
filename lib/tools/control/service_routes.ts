/**
 * Answers questions about Services with the live plan. Only a repair changes anything.
 *
 * @module
 */
import { SERVICE } from "../../api/kinds/service.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { NetworkPolicyController } from "../../app/policy/policy_controller.ts";
import { RoutingController } from "../../app/routing/routing_controller.ts";
import type { ObservedRun } from "../../app/run/run_tools.ts";
import type { ServiceFamily } from "../../app/service/services.ts";
import { messageOf } from "../../log/message_of.ts";
import { IP_FAMILIES, ipFamilyOf, tryParseIpAddress } from "../../net/ip_address.ts";
import { PROTOCOLS, tryParsePort } from "../../net/port.ts";
import type { FlowQuery, WatchedFlow } from "../../proxy/flow_watches.ts";
import { OneAtATime } from "../../net/one_at_a_time.ts";
import type { Clock } from "../../os/clock.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import type { ChangeLog } from "../changes/change_log.ts";
import { compareRouting, machineAddresses } from "../diff/compare_routing.ts";
import {
  type ChosenKeys,
  compareFamily,
  comparePolicyRules,
  type FamilyDifference,
  type NodeDifference,
} from "../diff/node_difference.ts";
import { compareSettled, repairSettled } from "../diff/settled_comparison.ts";
import {
  type AskMachine,
  explainEnds,
  type ExplainReport,
  knownNodeAddresses,
} from "../explain/explain_report.ts";
import { checkService, servicePortsOf } from "../explain/find_service_ports.ts";
import { PacketEndsError } from "../explain/packet_ends.ts";
import { seeRouting } from "../explain/see_routing.ts";
import { BadQuestion } from "./control_server.ts";
import type { Query, Routes } from "./routes.ts";

/** Most names for the completion of a shell. */
const MOST_NAMES = 1000;

/** What answers questions about what is on the machine. It rejects with a BadQuestion for an invalid query. */
export function serviceRoutes(
  edges: Pick<Dependencies, "clock" | "network">,
  run: ObservedRun,
  changes: Pick<ChangeLog, "repaired">,
): Pick<
  Routes,
  "/services" | "/flow" | "/difference" | "POST /difference" | "/explain" | "/routing/seen"
> {
  const { clock } = edges;
  // Each comparison holds all rules of the kernel in memory.
  const turns = new OneAtATime();
  return {
    "/services": ({ prefix = "" }) => serviceNames(clock, run, prefix),
    // A separate function, so that its exceptions become rejections.
    "/flow": async (query) => await answerFlow(clock, run.services.families, query),
    "/difference": (query, signal) =>
      turns.run(async () => {
        signal?.throwIfAborted();
        return await compare(edges, run, query);
      }),
    "POST /difference": (query) => turns.run(() => compare(edges, run, query, changes)),
    "/explain": (query, signal) =>
      explain(clock, run, query, (family, compare) =>
        turns.run(async () => {
          signal?.throwIfAborted();
          const { loop, services } = run.services.families.find((each) => each.family === family)!;
          return await compareSettled({ clock }, loop, () => compare(services.plan));
        })),
    "/routing/seen": async () => {
      const routing = routingOf(run);
      return await seeRouting({ bgp: routing?.bgp, held: routing?.held ?? [] });
    },
  };
}

/** Returns the sorted names of Services with a prefix, limited in number. */
async function serviceNames(
  clock: Clock,
  { services }: Pick<ObservedRun, "services">,
  prefix: string,
): Promise<readonly string[]> {
  const names = new Set<string>();
  let seen = 0;
  for (const { services: { plan } } of services.families) {
    for (const { name } of plan.services.values()) {
      if (++seen % 256 === 0) await clock.yieldToEventLoop();
      const text = serviceKey(name);
      if (text.startsWith(prefix)) names.add(text);
      if (names.size >= MOST_NAMES) break;
    }
  }
  return [...names].sort();
}

/** Compares the loops of Services and of policies, and addresses and routes; `changes`: for a repair. */
async function compare(
  { clock, network }: Pick<Dependencies, "clock" | "network">,
  run: ObservedRun,
  { family: wanted, service }: Query<"/difference">,
  changes?: Pick<ChangeLog, "repaired">,
): Promise<NodeDifference> {
  const proxies = proxiesOf(run, wanted);
  const { phase } = run.manager;
  if (phase !== "serving" && proxies.some(({ loop }) => loop.lastSync === undefined)) {
    throw new BadQuestion(
      `Cannot compare this machine with the plan: kube-relay is '${phase}' and has not synced yet; ` +
        "ask again when 'kube-relay status' says serving",
    );
  }
  const keys = keysOf(run, service, proxies);
  // Rules of NetworkPolicies, addresses and routes belong to no single Service.
  const policies = service === undefined ? policyController(run)?.families ?? [] : [];
  const compared = [
    ...proxies.map(({ backend, services, loop }) => ({
      loop,
      async compare() {
        // Only this process knows its open sockets.
        const serving = MODE_TRAITS[backend.mode].forwardsItself &&
          (await backend.inspect()).services;
        const { quarantined } = loop;
        const machine = { backend, plan: services.plan, quarantined, ...(serving && { serving }) };
        return await compareFamily(machine, keys);
      },
      repair: () => backend.repair(services.plan),
    })),
    ...policies.filter(({ family }) => wanted === undefined || family === wanted).map((each) => ({
      loop: each.loop,
      compare: () => comparePolicyRules(each.backend, each.plan, each.loop.quarantined),
      repair: async () => await each.backend?.repair() ?? {},
    })),
  ];
  const families: FamilyDifference[] = [];
  for (const { loop, compare, repair } of compared) {
    const settled = changes
      ? repairSettled({ clock, changes }, loop, compare, repair)
      : compareSettled({ clock }, loop, compare);
    const difference = await settled;
    const { failures, lastError } = loop.status("");
    families.push({
      ...difference,
      ...(failures > 0 && { failures, ...(lastError !== undefined && { lastError }) }),
    });
  }
  const routing = service === undefined && wanted === undefined ? routingOf(run) : undefined;
  return {
    mode: run.configuration.mode,
    nodeName: run.startUp.node.name,
    families,
    ...(routing && {
      routing: await compareRouting({
        bgp: routing.bgp,
        pods: routing.pods,
        layer2: {
          ...(routing.layer2?.compared ?? { owned: new Set(), others: [] }),
          ...machineAddresses(network.interfaceAddresses()),
        },
      }),
    }),
  };
}

function policyController({ others }: Pick<ObservedRun, "others">) {
  return others.find((each) => each instanceof NetworkPolicyController);
}

function routingOf({ others }: Pick<ObservedRun, "others">) {
  return others.find((each) => each instanceof RoutingController);
}

function proxiesOf(
  { services: { families } }: ObservedRun,
  wanted: string | undefined,
): readonly ServiceFamily[] {
  if (wanted === undefined) return families;
  const known = IP_FAMILIES.join(", ");
  if (!IP_FAMILIES.some((family) => family === wanted)) {
    throw new BadQuestion(`Cannot use '${wanted}' for 'family': expected one of ${known}`);
  }
  const found = families.filter(({ family }) => family === wanted);
  if (found.length > 0) return found;
  const served = families.map(({ family }) => family).join(" and ");
  throw new BadQuestion(`Cannot compare ${wanted}: this kube-relay serves ${served} alone`);
}

function keysOf(
  { informers }: ObservedRun,
  service: string | undefined,
  proxies: readonly ServiceFamily[],
): ChosenKeys {
  if (service === undefined) return undefined;
  const plans = proxies.map(({ services }) => services.plan);
  const all = [...informers.of(SERVICE).values()].map((each) => serviceKey(namespacedNameOf(each)));
  try {
    checkService(service, { plans, all: new Set(all) });
  } catch (error) {
    throw new BadQuestion(messageOf(error), { cause: error });
  }
  // The compared plan may be a later one.
  return (plan) => servicePortsOf(plan, service);
}

/**
 * Answers with both ends given. With `brief` or without `askMachine`, the machine is not asked. Rejects
 * with a BadQuestion.
 */
export async function explain(
  clock: Clock,
  run: ObservedRun,
  { from, to, brief }: Query<"/explain">,
  askMachine?: AskMachine,
): Promise<ExplainReport> {
  const { services: { families, node }, configuration, current, informers, startUp } = run;
  if (from === undefined || to === undefined) {
    throw new BadQuestion("Cannot explain a packet without both ends: 'from' and 'to'");
  }
  const { mode } = configuration;
  const nodeName = startUp.node.name;
  const addresses = families.flatMap(({ services }) => services.interfaceAddresses ?? []);
  const proxies = new Map(families.map((proxy) => [proxy.family, proxy]));
  try {
    return await explainEnds(clock, { from, to }, {
      mode,
      nodeName,
      plans: new Map(families.map(({ family, services }) => [family, services.plan])),
      nodeAddresses: knownNodeAddresses(current.proxy, { nodeName, mode }, node, addresses),
      services: () => informers.of(SERVICE).values(),
      otherPorts: (family, key) => proxies.get(family)!.services.endpoints.otherPorts(key),
      backend: (family) => proxies.get(family)!.backend,
      quarantined: (family) => proxies.get(family)!.loop.quarantined,
      policies: policyController(run)?.state,
      machine: brief === undefined && askMachine
        ? askMachine
        : "the page does not ask it; 'kube-relay explain' does",
    });
  } catch (error) {
    if (error instanceof PacketEndsError) throw new BadQuestion(error.message, { cause: error });
    throw error;
  }
}

const ID = /^[\w-]{1,64}$/;

/**
 * Answers `trace` in userspace mode with the events of a connection since the first request with
 * this id. The watch ends 10 s after the last request. Throws a BadQuestion for an invalid query or
 * in another mode.
 */
export async function answerFlow(
  clock: Clock,
  families: readonly Pick<ServiceFamily, "backend" | "family">[],
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
