/**
 * `render`: what a mode would apply for a folder of manifests or for the cluster, in the tool's own
 * language. The machine is neither changed nor asked: no process is started.
 *
 * @module
 */
import { effectiveConfiguration } from "../../config/effective_configuration.ts";
import { ConfigurationError } from "../../config/load.ts";
import type { ModeRequest } from "../../config/mode_request.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import type { ObjectProblem } from "../../proxy/problem.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import { DEFAULT_MODE } from "../choose_mode.ts";
import type { BackendDependencies, BackendTable, Dependencies } from "../dependencies.ts";
import { checkService, servicePortsOf } from "../find_service_ports.ts";
import { idleBackendOptions } from "../idle_backend_options.ts";
import { nodeNameOf } from "../node_name.ts";
import { nodeSettingsOf } from "../node_settings.ts";
import { planSettingsOf } from "../plan_settings.ts";
import { readObjectsOnce } from "../read_objects_once.ts";
import { ownNode, renderPlan } from "../render_plan.ts";
import { renderHeading } from "../render_heading.ts";
import type { ActiveCommand, CommandContext } from "./command.ts";

/** What is printed for each family. */
interface Renderings {
  readonly mode: BackendMode;
  readonly nodeName: string;
  readonly isNodeKnown: boolean;
  readonly plans: ReadonlyMap<IpFamily, ProxyPlan>;
  /** Makes a backend that is asked for text only. */
  readonly createBackend: (family: IpFamily) => Backend;
}

/** All that is needed, and the log, which is not to get among what is printed. */
type RenderDependencies = Dependencies & BackendDependencies;

/**
 * Prints the rules. What of the objects could not be used is named on standard error and left out,
 * as a proxy does; then the exit code is 1 although the rest was printed, so that no script takes it
 * for everything.
 */
export const renderCommand: ActiveCommand = {
  name: "render",
  summary: "print what would be applied for all Services, without touching the machine",
  examples: [
    "kube-relay render --mode iptables --manifests DIR --family ipv4",
    "kube-relay render --mode iptables --kubeconfig FILE --service default/web",
  ],
  async run({ complain, ...rest }, context) {
    const { flags, configuration: { notices }, logger } = context;
    for (const { level, message, fields } of notices) logger[level](message, fields);
    const dependencies = { ...rest, complain, logger };
    const { renderings, services, problems, isIncomplete } = await plan(dependencies, context);
    for (const problem of problems) complain(`kube-relay: ${problem}\n`);
    if (flags.service !== undefined) {
      checkService(flags.service, { plans: [...renderings.plans.values()], all: services });
    }
    await print(dependencies, { renderings, context });
    return isIncomplete ? 1 : 0;
  },
};

/** Reads all objects, and plans what has to hold for them. */
async function plan(dependencies: RenderDependencies, context: CommandContext) {
  const { flags, configuration, signal } = context;
  const mode = renderedMode(dependencies.backends, configuration.mode);
  const { relay } = configuration;
  const proxy = effectiveConfiguration(configuration.proxy, mode);
  const nodeName = nodeNameOf(proxy, dependencies.process);
  const { informers, ...read } = await readObjectsOnce(dependencies, {
    configuration,
    nodeName,
    signal,
  });
  const node = ownNode(informers);
  const settings = planSettingsOf(proxy, { nodeName, mode });
  const problems = new Set<string>();
  const plans = new Map<IpFamily, ProxyPlan>();
  for (const family of wantedFamilies(flags.family)) {
    const found = await renderPlan(dependencies, informers, {
      family,
      configuration: { relay, proxy },
      settings,
    });
    plans.set(family, found.plan);
    for (const problem of found.problems) problems.add(problemText(problem));
  }
  const renderings: Renderings = {
    mode,
    nodeName,
    isNodeKnown: node !== undefined,
    plans,
    createBackend: (family) =>
      (dependencies.backends as Required<BackendTable>)[mode](dependencies, {
        ...idleBackendOptions({ relay, proxy }, family),
        node: () => nodeSettingsOf(settings, { family, node }),
      }),
  };
  return {
    renderings,
    services: new Set(
      [...informers.services.values()].map((service) => serviceKey(namespacedNameOf(service))),
    ),
    problems: [...read.problems, ...problems],
    isIncomplete: read.isIncomplete || problems.size > 0,
  };
}

/** The mode. Throws when it is not in this build, or when only the machine could tell. */
function renderedMode(backends: BackendTable, request: ModeRequest): BackendMode {
  const known = Object.keys(backends).join(", ");
  if (request === "auto") {
    throw new ConfigurationError([
      "Cannot render for mode 'auto': which one that is depends on the machine; name one of " +
      `${known} by --mode`,
    ]);
  }
  const mode = request === "default" ? DEFAULT_MODE : request;
  if (backends[mode] !== undefined) return mode;
  throw new Error(`Cannot render for mode '${mode}': this release has ${known} only`);
}

function wantedFamilies(word: string | undefined): readonly IpFamily[] {
  const wanted = word?.toLowerCase();
  return IP_FAMILIES.filter((family) => wanted === undefined || family.toLowerCase() === wanted);
}

async function print(
  { clock, print }: RenderDependencies,
  { renderings, context: { flags, signal } }: {
    readonly renderings: Renderings;
    readonly context: CommandContext;
  },
): Promise<void> {
  const { plans, createBackend, ...who } = renderings;
  for (const [family, plan] of plans) {
    await using backend = createBackend(family);
    const { service } = flags;
    const keys = service === undefined ? undefined : servicePortsOf(plan, service);
    const asksKernel = backend.usesConntrack;
    print(renderHeading({ ...who, family, plan, asksKernel, keys, service }));
    for (const piece of backend.render(plan, keys)) {
      print(piece);
      await clock.yieldToEventLoop();
      signal.throwIfAborted();
    }
  }
}

function problemText({ kind, object, path, value, message }: ObjectProblem): string {
  return `${kind} ${object}: ${path}${value === "" ? "" : ` is ${value}`}: ${message}`;
}
