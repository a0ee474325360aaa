import type { ProgramDependencies } from "../../../app/run/run_tools.ts";
import { ConfigurationError } from "../../../config/load.ts";
import { wrapText } from "../../../config/wrap_text.ts";
import type { Logger } from "../../../log/logger.ts";
import type { IpFamily } from "../../../net/ip_address.ts";
import { serviceKey } from "../../../proxy/service_port_name.ts";
import type { Dependencies } from "../../../app/dependencies.ts";
import { checkService, servicePortsOf } from "../../explain/find_service_ports.ts";
import type { PlannedNode } from "../../offline/plan_objects.ts";
import { planRouting } from "../../offline/plan_routing.ts";
import { planPolicies } from "../../offline/planned_policies.ts";
import { VERSION } from "../../../config/version.ts";
import { type CommandContext, planNamedObjects } from "./command.ts";

/**
 * Prints the rules of a mode for a folder of manifests, a cluster or a dump, without starting a process.
 * Exits with status 1 if some objects could not be used: the rest is printed, but it is not everything.
 */
export async function renderVerb(
  dependencies: ProgramDependencies,
  context: CommandContext,
): Promise<number> {
  const { flags } = context;
  const planned = await planNamedObjects(dependencies, context);
  const routed = ROUTING_TEXTS[flags["proxy-mode"] ?? ""];
  if (routed) {
    await routed(dependencies, { planned, context });
    return planned.isIncomplete ? 1 : 0;
  }
  if (flags.service !== undefined) {
    checkService(flags.service, {
      plans: [...planned.plans.values()],
      all: planned.services,
    });
  }
  await printServices(dependencies, { planned, context });
  return planned.isIncomplete ? 1 : 0;
}

/** What stands for a text of routing in place of a mode: that of the BGP daemon, and that of pods. */
export const ROUTING_TEXTS: Readonly<Record<string, typeof printBgp>> = {
  bgp: printBgp,
  "pod-network": printPodNetwork,
};

async function printServices(
  dependencies: Dependencies,
  { planned, context: { flags, logger } }: {
    readonly planned: PlannedNode;
    readonly context: CommandContext;
  },
): Promise<void> {
  const { plans, createBackend, mode, nodeName, isMachineKnown } = planned;
  // Manifests of Services seldom have Nodes, and a dump names its node itself.
  const isNodeKnown = planned.isNodeKnown || flags.manifests !== undefined ||
    flags.from !== undefined;
  for (const [family, plan] of plans) {
    await using backend = createBackend(family);
    const { service } = flags;
    const keys = service === undefined ? undefined : servicePortsOf(plan, service);
    const names = new Set([...plan.services.values()].map(({ name }) => serviceKey(name)));
    const extent = service === undefined
      ? `${count(plan.services.size, "port")} of ${count(names.size, "Service")}`
      : `${count(keys?.size ?? 0, "port")} of Service ${service}`;
    const { print } = dependencies;
    print(
      comment(`kube-relay ${VERSION}, mode ${mode}, ${family}: ${extent}, on node ${nodeName}.`),
    );
    if (!isNodeKnown) {
      print(comment(
        `There is no Node '${nodeName}': no endpoint that names a node counts as being on this ` +
          "one. --hostname-override names another.",
      ));
    }
    if (backend.usesConntrack && !isMachineKnown) {
      print(comment("The kernel is assumed to support all rules; 'kube-relay doctor' checks it."));
    }
    await printPieces(dependencies, backend.render(plan, keys));
    if (service === undefined) await printPolicies(dependencies, { planned, family, logger });
  }
}

/** Prints the configuration of the BGP daemon. Passwords are named and not part of it. */
async function printBgp(
  dependencies: Dependencies,
  { planned, context: { flags, logger } }: {
    readonly planned: PlannedNode;
    readonly context: CommandContext;
  },
): Promise<void> {
  refuseSelection(flags);
  const { routingBackends } = dependencies;
  const { settings, bgp } = await planRouting(planned) ?? {};
  if (!settings?.bgp || !routingBackends) {
    throw new Error("Cannot render for BGP: it is disabled; add --routing and --bgp");
  }
  if (!bgp?.plan) throw unknownNode("for BGP", planned);
  await using backend = routingBackends.bgp({ ...dependencies, logger }, settings.bgp);
  await printPieces(dependencies, backend.render(bgp.plan));
}

/** Prints the routes, tunnels and files of the network of pods. */
async function printPodNetwork(
  dependencies: Dependencies,
  { planned, context: { flags, logger } }: {
    readonly planned: PlannedNode;
    readonly context: CommandContext;
  },
): Promise<void> {
  refuseSelection(flags);
  const { routingBackends } = dependencies;
  const { settings, podNetwork } = await planRouting(planned) ?? {};
  if (!settings?.podNetwork || !routingBackends) {
    throw new Error(
      "Cannot render the network of pods: it is disabled; add --routing and --pod-routes, " +
        "--overlay or --cni-config",
    );
  }
  if (!podNetwork) throw unknownNode("the network of pods", planned);
  await using backend = routingBackends.podNetwork({ ...dependencies, logger }, { cniFiles: [] });
  await printPieces(dependencies, backend.render(podNetwork));
}

function refuseSelection(flags: CommandContext["flags"]): void {
  if (flags.service === undefined && flags.family === undefined) return;
  throw new ConfigurationError([
    `Cannot use --service or --family with --mode ${flags["proxy-mode"]}: it is one text for all ` +
    "Services and both families",
  ]);
}

function unknownNode(what: string, { nodeName }: PlannedNode): Error {
  return new Error(
    `Cannot render ${what}: there is no Node '${nodeName}', whose addresses are needed; ` +
      "--hostname-override names another",
  );
}

/** Prints the rules of NetworkPolicies, if they are enforced and this build has their data plane. */
async function printPolicies(
  dependencies: Dependencies,
  { planned, family, logger }: {
    readonly planned: PlannedNode;
    readonly family: IpFamily;
    readonly logger: Logger;
  },
): Promise<void> {
  const policies = planPolicies({ ...dependencies, logger }, planned, { family });
  if (policies === undefined) return;
  const { tool, plan } = policies;
  await using backend = policies.backend;
  dependencies.print(
    `# NetworkPolicies by ${tool}, ${family}: ${plan.pods.size} pods of this node.\n`,
  );
  await printPieces(dependencies, backend.render(plan));
}

async function printPieces(
  { clock, print }: Dependencies,
  pieces: Iterable<string>,
): Promise<void> {
  for (const piece of pieces) {
    print(piece);
    await clock.yieldToEventLoop();
  }
}

/** Widest line, `# ` included. */
const WIDTH = 80;

/** Lines that begin with `#`, which is a comment for every tool of every mode. */
function comment(text: string): string {
  return wrapText(text, { width: WIDTH - 2 }).split("\n").map((line) => `# ${line}\n`).join("");
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
