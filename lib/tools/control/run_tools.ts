/**
 * The change log, the status page and the control socket of a run: what answers questions about it by its
 * live plan. Only a repair changes anything.
 *
 * @module
 */
import { SERVICE } from "../../api/kinds/service.ts";
import { NetworkPolicyController } from "../../app/policy/policy_controller.ts";
import { RoutingController } from "../../app/routing/routing_controller.ts";
import type { ObservedRun, RunTools, ToolEdges } from "../../app/run/run_tools.ts";
import { FLAG_ROWS, type FlagValues } from "../../config/flags.ts";
import { VERSION } from "../../config/version.ts";
import { messageOf } from "../../log/message_of.ts";
import { IP_FAMILIES, type IpFamily, ipFamilyOf, tryParseIpAddress } from "../../net/ip_address.ts";
import { OneAtATime } from "../../net/one_at_a_time.ts";
import { PROTOCOLS, tryParsePort } from "../../net/port.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import type { WatchedFlow } from "../../proxy/flow_watches.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import type { BgpPlan } from "../../routing/bgp_plan.ts";
import { ChangeLog } from "../changes/change_log.ts";
import {
  type ChosenKeys,
  compareFamily,
  comparePolicyRules,
  compareRouting,
  compareSettled,
  type FamilyDifference,
  interfacesByAddress,
  type NodeDifference,
  repairSettled,
} from "../diff/node_difference.ts";
import { dumpRunning } from "../dump/collect_dump.ts";
import {
  type AskMachine,
  explainEnds,
  type ExplainReport,
  knownNodeAddresses,
} from "../explain/explain_report.ts";
import { checkService, servicePortsOf } from "../explain/find_service_ports.ts";
import { PacketEndsError } from "../explain/packet_ends.ts";
import { createStatusPage } from "../status/page/status_page.ts";
import { problemCounts } from "../status/status_answer.ts";
import type { StatusReport } from "../status/status_report.ts";
import { sampleTraffic, trafficTotals } from "../status/traffic.ts";
import { BadQuestion, startControlServer } from "./control_server.ts";
import type { Query, Routes, SeenAnswer } from "./routes.ts";

/** Most names for the completion of a shell. */
const MOST_NAMES = 1000;
/** Of a watch. */
const ID = /^[\w-]{1,64}$/;

/** The tools of one run. Nothing is read until it is asked for. */
export class ToolsOfRun implements RunTools {
  readonly changes: ChangeLog;
  readonly #edges: ToolEdges;
  /** RFC 3339. */
  readonly #startedAt: string;
  /** Each comparison holds all rules of the kernel in memory. */
  readonly #turns = new OneAtATime();

  constructor(edges: ToolEdges) {
    this.changes = new ChangeLog(edges);
    this.#edges = edges;
    this.#startedAt = new Date(edges.clock.wallNow()).toISOString();
  }

  pages(run: ObservedRun, signal: AbortSignal): ReturnType<RunTools["pages"]> {
    const { configuration: { mode, proxy, relay } } = run;
    if (!relay.statusPage) return undefined;
    return createStatusPage(this.#edges, {
      status: (options) => this.#status(run, options),
      changes: () => this.changes.recent(),
      traffic: run.traffic && sampleTraffic(this.#edges.clock, run.traffic, signal),
      explain: (query) => this.#explain(run, query),
      findings: () => {
        const { annotations: nodeAnnotations } = run.startUp.node;
        return this.#edges.hostChecks.findings({
          ...{ mode, networkPolicy: proxy.networkPolicy.enabled, signal },
          ...(nodeAnnotations && { nodeAnnotations }),
        });
      },
    });
  }

  async problems(run: ObservedRun): ReturnType<RunTools["problems"]> {
    return problemCounts(await this.#status(run, { brief: true }));
  }

  openControl(run: ObservedRun): ReturnType<RunTools["openControl"]> {
    const { logger, openFiles } = this.#edges;
    return startControlServer({
      path: run.configuration.relay.controlSocket,
      routes: this.routes(run),
      bounds: openFiles.httpBounds,
      onRefused: () => openFiles.countRefused("control"),
      logger,
    });
  }

  /** The answers by path. They reject with a BadQuestion for an invalid query. */
  routes(run: ObservedRun): Routes {
    return {
      "/status": ({ brief }) => this.#status(run, { brief: brief !== undefined }),
      // Async, so that its exceptions become rejections.
      "/changes": async ({ last }) => await Promise.resolve(this.changes.recent(numberOf(last))),
      "/flags": () => Promise.resolve(absolutePaths(run.configuration.flags, Deno.cwd())),
      "/dump": async ({ inputs }) => {
        const status = inputs === undefined ? await this.#status(run, { brief: false }) : undefined;
        const collected = status && { status, changes: this.changes.recent() };
        return dumpRunning(this.#edges, run, collected);
      },
      "/services": ({ prefix = "" }) => this.#serviceNames(run, prefix),
      "/flow": (query) => this.#flow(run, query),
      "/difference": (query, signal) =>
        this.#turns.run(async () => {
          signal?.throwIfAborted();
          return await this.#compare(run, query, false);
        }),
      "POST /difference": (query) => this.#turns.run(() => this.#compare(run, query, true)),
      "/explain": (query, signal) =>
        this.#explain(run, query, (family, ask) =>
          this.#turns.run(async () => {
            signal?.throwIfAborted();
            const { loop, services } = familyOf(run, family)!;
            return await compareSettled(this.#edges.clock, loop, () => ask(services.plan));
          })),
      "/routing/seen": async () => {
        const routing = routingOf(run);
        return await seeRouting({ bgp: routing?.bgp, held: routing?.held ?? [] });
      },
    };
  }

  async #status(
    run: ObservedRun,
    options: { readonly brief: boolean },
  ): Promise<StatusReport> {
    const { services, others, startUp, eventLoop, manager, sources } = run;
    const { families } = await services.status(options);
    const controllers = [];
    for (const controller of others) controllers.push(await controller.status(options));
    return {
      version: VERSION,
      pid: this.#edges.process.pid,
      startedAt: this.#startedAt,
      phase: manager.phase,
      largestEventLoopDelayMs: Math.round(eventLoop.largestMs),
      node: startUp.node,
      sources: sources.flatMap((each) => each.status()),
      hostSettings: services.hostSettings.outcomes,
      ...(run.traffic && { traffic: trafficTotals(run.traffic) }),
      families,
      ...(controllers.length > 0 && { controllers }),
    };
  }

  /** The sorted names of Services with a prefix, limited in number. */
  async #serviceNames({ services }: ObservedRun, prefix: string): Promise<readonly string[]> {
    const names = new Set<string>();
    let seen = 0;
    for (const { services: { plan } } of services.families) {
      for (const { name } of plan.services.values()) {
        if (++seen % 256 === 0) await this.#edges.clock.yieldToEventLoop();
        const text = serviceKey(name);
        if (text.startsWith(prefix)) names.add(text);
        if (names.size >= MOST_NAMES) break;
      }
    }
    return [...names].sort();
  }

  /**
   * Answers `trace` in userspace mode with the events of a connection since the first request with
   * this id. The watch ends 10 s after the last request.
   */
  async #flow(run: ObservedRun, query: Query<"/flow">): Promise<readonly WatchedFlow[]> {
    const { id = "", from: fromText, sourcePort: sourcePortText } = query;
    if (!ID.test(id)) throw new BadQuestion("Cannot watch without an 'id' of letters and digits");
    const protocol = PROTOCOLS.find((each) => each === query.protocol);
    const to = tryParseIpAddress(query.to ?? "");
    const port = tryParsePort(query.port ?? "");
    const from = tryParseIpAddress(fromText ?? "");
    const sourcePort = tryParsePort(sourcePortText ?? "");
    const isWrong = (fromText !== undefined && !from) ||
      (sourcePortText !== undefined && !sourcePort);
    if (!protocol || !to || !port || isWrong) {
      throw new BadQuestion(
        "Cannot watch: expected protocol, to, port, and perhaps from, sourcePort",
      );
    }
    const connections = familyOf(run, ipFamilyOf(to))?.backend.connections;
    if (!connections) throw new BadQuestion("Cannot watch: this mode sees no connections");
    const wanted = { protocol, to, port, ...(from && { from }), ...(sourcePort && { sourcePort }) };
    const ask = () => connections.watches.ask(id, { query: wanted, now: this.#edges.clock.now() });
    ask();
    await connections.refresh();
    return ask();
  }

  /** Compares, and perhaps repairs, the loops of Services and of policies; compares addresses and routes. */
  async #compare(
    run: ObservedRun,
    { family: wanted, service }: Query<"/difference">,
    repairs: boolean,
  ): Promise<NodeDifference> {
    const { clock, network } = this.#edges;
    const proxies = run.services.families.filter(({ family }) =>
      wanted === undefined || family === wanted
    );
    if (proxies.length === 0) {
      const served = run.services.families.map(({ family }) => family).join(" and ");
      throw new BadQuestion(
        IP_FAMILIES.some((family) => family === wanted)
          ? `Cannot compare ${wanted}: this kube-relay serves ${served} alone`
          : `Cannot use '${wanted}' for 'family': expected one of ${IP_FAMILIES.join(", ")}`,
      );
    }
    const { phase } = run.manager;
    if (phase !== "serving" && proxies.some(({ loop }) => loop.lastSync === undefined)) {
      throw new BadQuestion(
        `Cannot compare this machine with the plan: kube-relay is '${phase}' and has not synced yet; ` +
          "ask again when 'kube-relay status' says serving",
      );
    }
    let keys: ChosenKeys;
    if (service !== undefined) {
      const all = [...run.informers.of(SERVICE).values()].map((each) =>
        serviceKey(namespacedNameOf(each))
      );
      try {
        const plans = proxies.map(({ services }) => services.plan);
        checkService(service, { plans, all: new Set(all) });
      } catch (error) {
        throw new BadQuestion(messageOf(error), { cause: error });
      }
      // The compared plan may be a later one.
      keys = (plan) => servicePortsOf(plan, service);
    }
    // Rules of NetworkPolicies, addresses and routes belong to no single Service.
    const policies = service === undefined ? policiesOf(run)?.families ?? [] : [];
    const compared = [
      ...proxies.map(({ backend, services, loop }) => ({
        loop,
        async compare() {
          // Only this process knows its open sockets.
          const serving = MODE_TRAITS[backend.mode].forwardsItself
            ? (await backend.inspect()).services
            : undefined;
          const { quarantined } = loop;
          return await compareFamily(backend, services.plan, keys, { quarantined, serving });
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
      const difference = repairs
        ? await repairSettled({ clock, changes: this.changes }, loop, compare, repair)
        : await compareSettled(clock, loop, compare);
      const { failures, lastError } = loop.status("");
      families.push({
        ...difference,
        ...(failures > 0 && { failures, ...(lastError !== undefined && { lastError }) }),
      });
    }
    const node = { mode: run.configuration.mode, nodeName: run.startUp.node.name, families };
    const routing = service === undefined && wanted === undefined ? routingOf(run) : undefined;
    if (!routing) return node;
    const { bgp, pods, layer2 } = routing;
    const found = interfacesByAddress(network.interfaceAddresses());
    const addresses = layer2?.compared ?? { owned: new Set(), others: [] };
    return {
      ...node,
      routing: await compareRouting({ bgp, pods, layer2: { ...addresses, found } }),
    };
  }

  /** Answers with both ends given. With `brief` or without `askMachine`, the machine is not asked. */
  async #explain(
    run: ObservedRun,
    { from, to, sni, brief }: Query<"/explain">,
    askMachine?: AskMachine,
  ): Promise<ExplainReport> {
    const { services: { families, node }, configuration: { mode }, current, informers } = run;
    if (from === undefined || to === undefined) {
      throw new BadQuestion("Cannot explain a packet without both ends: 'from' and 'to'");
    }
    const nodeName = run.startUp.node.name;
    const addresses = families.flatMap(({ services }) => services.interfaceAddresses ?? []);
    try {
      return await explainEnds(this.#edges.clock, { from, to, ...(sni && { sni }) }, {
        mode,
        nodeName,
        plans: new Map(families.map(({ family, services }) => [family, services.plan])),
        nodeAddresses: knownNodeAddresses(current.proxy, { nodeName, mode }, node, addresses),
        services: () => informers.of(SERVICE).values(),
        otherPorts: (family, key) => familyOf(run, family)!.services.endpoints.otherPorts(key),
        backend: (family) => familyOf(run, family)!.backend,
        quarantined: (family) => familyOf(run, family)!.loop.quarantined,
        policies: policiesOf(run)?.state,
        machine: brief === undefined && askMachine
          ? askMachine
          : "the page does not ask it; 'kube-relay explain' does",
      });
    } catch (error) {
      if (error instanceof PacketEndsError) throw new BadQuestion(error.message, { cause: error });
      throw error;
    }
  }
}

function familyOf({ services }: ObservedRun, wanted: IpFamily) {
  return services.families.find(({ family }) => family === wanted);
}

function policiesOf({ others }: ObservedRun) {
  return others.find((each) => each instanceof NetworkPolicyController);
}

function routingOf({ others }: ObservedRun) {
  return others.find((each) => each instanceof RoutingController);
}

/** Parses an optional whole number from 1. */
function numberOf(last: string | undefined): number | undefined {
  if (last === undefined) return undefined;
  if (/^[1-9]\d{0,8}$/.test(last)) return Number(last);
  throw new BadQuestion(`Cannot use '${last}' for 'last': expected a whole number from 1`);
}

/** Placeholders of flags with paths. */
const PATHS: readonly (string | undefined)[] = ["FILE", "PATH", "DIR"];

/** Returns the flags with absolute paths, for a program that runs in another folder. */
function absolutePaths(flags: FlagValues, folder: string): FlagValues {
  const absolute = (path: unknown) =>
    typeof path !== "string" || path === "" || path.startsWith("/") ? path : `${folder}/${path}`;
  const changed: Record<string, unknown> = { ...flags };
  for (const { name, value } of FLAG_ROWS) {
    const given = flags[name];
    if (given === undefined || !PATHS.includes(value)) continue;
    changed[name] = Array.isArray(given) ? given.map(absolute) : absolute(given);
  }
  return changed as FlagValues;
}

/** Asks the BGP daemon, unless BGP is disabled, for its sessions and what it sends. */
export async function seeRouting(
  { bgp, held: addresses }: {
    readonly bgp?: {
      readonly plan: BgpPlan | undefined;
      readonly backend: {
        sessions(plan: BgpPlan): Promise<NonNullable<SeenAnswer["sessions"]>>;
        sentPrefixes(): Promise<ReadonlyMap<string, ReadonlySet<string>>>;
      };
    } | undefined;
    readonly held: Iterable<SeenAnswer["held"][number]>;
  },
): Promise<SeenAnswer> {
  const held = [...addresses].map(({ address, device }) => ({ address, device }));
  if (!bgp?.plan) return { held };
  try {
    const sessions = await bgp.backend.sessions(bgp.plan);
    const sent = await bgp.backend.sentPrefixes();
    return {
      held,
      sessions: sessions.map(({ peer, description }) => ({ peer, description })),
      sent: [...sent].map(([peer, prefixes]) => ({ peer, prefixes: [...prefixes] })),
    };
  } catch (error) {
    return { held, problem: messageOf(error) };
  }
}
