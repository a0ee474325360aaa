/**
 * Answers questions about Services with the live plan. Only a repair changes anything.
 *
 * @module
 */
import { SERVICE } from "../../api/kinds/service.ts";
import { NetworkPolicyController } from "../../app/policy/policy_controller.ts";
import type { ObservedRun } from "../../app/run/run_tools.ts";
import type { ServiceFamily } from "../../app/service/services.ts";
import { messageOf } from "../../log/message_of.ts";
import { OneAtATime } from "../../net/one_at_a_time.ts";
import type { Clock } from "../../os/clock.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import type { ChangeLog } from "../changes/change_log.ts";
import {
  type ChosenKeys,
  compareFamily,
  type FamilyDifference,
  type NodeDifference,
} from "../diff/node_difference.ts";
import { compareSettled, repairSettled } from "../diff/settled_comparison.ts";
import { explainEnds, type ExplainReport, knownNodeAddresses } from "../explain/explain_report.ts";
import { checkService, servicePortsOf } from "../explain/find_service_ports.ts";
import { PacketEndsError } from "../explain/packet_end_text.ts";
import { explainWithPolicies } from "../explain/policy_steps.ts";
import { answerFlow } from "./answer_flow.ts";
import { askedFamily, BadQuestion, type ControlRoutes } from "./control_server.ts";

/** Most names for the completion of a shell. */
const MOST_NAMES = 1000;

/** Returns the routes by path. They reject with a BadQuestion for an invalid query. */
export function serviceRoutes(
  clock: Clock,
  run: ObservedRun,
  changes: Pick<ChangeLog, "repaired">,
): ControlRoutes {
  // Each comparison holds all rules of the kernel in memory.
  const turns = new OneAtATime();
  return {
    "/services": (query) => serviceNames(clock, run, query.get("prefix") ?? ""),
    // A separate function, so that its exceptions become rejections.
    "/flow": async (query) => await answerFlow({ clock, families: run.services.families }, query),
    "/difference": (query, signal) =>
      turns.run(async () => {
        signal?.throwIfAborted();
        return await compare(clock, run, query);
      }),
    "POST /difference": (query) => turns.run(() => compare(clock, run, query, changes)),
    "/explain": (query) => explain(clock, run, query),
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

/** `?family=IPv4&service=NAMESPACE/NAME`; `changes`: for a repair of what differs. */
async function compare(
  clock: Clock,
  run: ObservedRun,
  query: URLSearchParams,
  changes?: Pick<ChangeLog, "repaired">,
): Promise<NodeDifference> {
  const proxies = proxiesOf(run, query.get("family"));
  const { phase } = run.manager;
  if (phase !== "serving" && proxies.some(({ loop }) => loop.lastSync === undefined)) {
    throw new BadQuestion(
      `Cannot compare this machine with the plan: kube-relay is '${phase}' and has not synced yet; ` +
        "ask again when 'kube-relay status' says serving",
    );
  }
  if (changes && query.has("service")) throw new BadQuestion("Cannot repair only one Service");
  const keys = keysOf(run, query.get("service"), proxies);
  const families: FamilyDifference[] = [];
  for (const { backend, services, loop } of proxies) {
    const compareOnce = async () => {
      // Only this process knows its open sockets.
      const serving = MODE_TRAITS[backend.mode].forwardsItself &&
        (await backend.inspect()).services;
      return await compareFamily({
        backend,
        plan: services.plan,
        quarantined: loop.quarantined,
        ...(serving && { serving }),
      }, keys);
    };
    const settled = changes
      ? repairSettled({ clock, changes }, loop, compareOnce, () => backend.repair(services.plan))
      : compareSettled({ clock }, loop, compareOnce);
    families.push(await settled);
  }
  return { mode: run.configuration.mode, nodeName: run.startUp.node.name, families };
}

function proxiesOf(
  { services: { families } }: ObservedRun,
  wanted: string | null,
): readonly ServiceFamily[] {
  if (askedFamily(wanted) === undefined) return families;
  const found = families.filter(({ family }) => family === wanted);
  if (found.length > 0) return found;
  const served = families.map(({ family }) => family).join(" and ");
  throw new BadQuestion(`Cannot compare ${wanted}: this kube-relay serves ${served} alone`);
}

function keysOf(
  { informers }: ObservedRun,
  service: string | null,
  proxies: readonly ServiceFamily[],
): ChosenKeys {
  if (service === null) return undefined;
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

/** Answers `?from=…&to=…`; `&brief` asks neither the machine nor policies. Rejects with a BadQuestion. */
export async function explain(
  clock: Clock,
  { services: { families, node }, others, configuration, current, informers, startUp }: ObservedRun,
  query: URLSearchParams,
): Promise<ExplainReport> {
  const [from, to] = [query.get("from"), query.get("to")];
  if (from === null || to === null) {
    throw new BadQuestion("Cannot explain a packet without both ends: 'from' and 'to'");
  }
  const { mode } = configuration;
  const nodeName = startUp.node.name;
  const addresses = families.flatMap(({ services }) => services.interfaceAddresses ?? []);
  const proxies = new Map(families.map((proxy) => [proxy.family, proxy]));
  const isBrief = query.has("brief");
  const policies = isBrief
    ? undefined
    : others.find((each) => each instanceof NetworkPolicyController)?.state;
  const explainOnly = (ends: { readonly from: string; readonly to: string }) =>
    explainEnds({ clock }, ends, {
      mode,
      nodeName,
      plans: new Map(families.map(({ family, services }) => [family, services.plan])),
      nodeAddresses: knownNodeAddresses({
        proxy: current.proxy,
        nodeName,
        mode,
        node,
        others: addresses,
      }),
      services: () => informers.of(SERVICE).values(),
      otherPorts: (family, key) => proxies.get(family)!.services.endpoints.otherPorts(key),
      backend: (family) => proxies.get(family)!.backend,
      quarantined: (family) => proxies.get(family)!.loop.quarantined,
      notAsked: isBrief ? "the page does not ask it; 'kube-relay explain' does" : undefined,
    });
  try {
    return await explainWithPolicies(policies, { from, to }, explainOnly);
  } catch (error) {
    if (error instanceof PacketEndsError) throw new BadQuestion(error.message, { cause: error });
    throw error;
  }
}
