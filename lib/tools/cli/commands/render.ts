import type { Dependencies } from "../../../app/dependencies.ts";
import { ConfigurationError } from "../../../config/configuration_error.ts";
import { VERSION } from "../../../config/version.ts";
import { wrapText } from "../../../config/wrap_text.ts";
import { serviceKey } from "../../../proxy/service_port_name.ts";
import { checkService, servicePortsOf } from "../../explain/find_service_ports.ts";
import { type PlannedNode, planPolicies, planRouting } from "../../offline/planned_node.ts";
import type { CommandContext, RoutingText } from "./command.ts";
import { planNamedObjects } from "./plan_named_objects.ts";

/**
 * Prints the rules of a mode for a folder of manifests, a cluster or a dump, without starting a process.
 * Exits with status 1 if some objects could not be used: the rest is printed, but it is not everything.
 */
export async function renderVerb(
  dependencies: Dependencies,
  context: CommandContext,
): Promise<number> {
  const { service, "proxy-mode": mode = "" } = context.flags;
  const planned = await planNamedObjects(dependencies, context);
  const print = ROUTING_TEXTS[mode] ?? printServices;
  if (print === printServices && service !== undefined) {
    checkService(service, { plans: [...planned.plans.values()], all: planned.services });
  }
  await print(dependencies, planned, context);
  return planned.isIncomplete ? 1 : 0;
}

/** The texts of routing, each by the word that stands in place of a mode. */
const ROUTING_TEXTS: Readonly<Record<string, typeof printServices>> = {
  bgp: printBgp,
  "pod-network": printPodNetwork,
} satisfies Record<RoutingText, typeof printServices>;

/** Prints the rules of Services and, if they are enforced, of NetworkPolicies. */
async function printServices(
  dependencies: Dependencies,
  planned: PlannedNode,
  { flags: { service, manifests, from }, logger }: CommandContext,
): Promise<void> {
  const { plans, createBackend, mode, nodeName, node, isMachineKnown } = planned;
  const { print } = dependencies;
  // Manifests of Services seldom have Nodes, and a dump names its node itself.
  const isNodeKnown = node !== undefined || manifests !== undefined || from !== undefined;
  for (const [family, plan] of plans) {
    await using backend = createBackend(family);
    const keys = service === undefined ? undefined : servicePortsOf(plan, service);
    const names = new Set([...plan.services.values()].map(({ name }) => serviceKey(name)));
    const extent = service === undefined
      ? `${count(plan.services.size, "port")} of ${count(names.size, "Service")}`
      : `${count(keys?.size ?? 0, "port")} of Service ${service}`;
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
    const policies = service === undefined &&
      planPolicies({ ...dependencies, logger }, planned, family);
    if (!policies) continue;
    await using rules = policies.backend;
    const { tool, plan: { pods } } = policies;
    print(`# NetworkPolicies by ${tool}, ${family}: ${pods.size} pods of this node.\n`);
    await printPieces(dependencies, rules.render(policies.plan));
  }
}

/** Prints the configuration of the BGP daemon. Passwords are named and not part of it. */
async function printBgp(
  dependencies: Dependencies,
  planned: PlannedNode,
  { flags, logger }: CommandContext,
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
  planned: PlannedNode,
  { flags, logger }: CommandContext,
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
  return wrapText(text, WIDTH - 2).split("\n").map((line) => `# ${line}\n`).join("");
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
