import { distance } from "fastest-levenshtein";
import { ConfigurationError } from "../../config/configuration_error.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import { serviceKey, type ServicePortKey } from "../../proxy/service_port_name.ts";

/** The plans and names that are searched. */
interface ServiceSearch {
  /** Of each IP family that was asked for. */
  readonly plans: readonly ProxyPlan[];
  /** Keys of all Services, those that nothing is planned for included. */
  readonly all: ReadonlySet<string>;
}

/** The maximum number of similar names that an error suggests. */
const MOST_OFFERED = 3;

/** The ServicePorts that a plan has for a Service, given as `namespace/name`. */
export function servicePortsOf(
  { services }: ProxyPlan,
  service: string,
): ReadonlySet<ServicePortKey> {
  const found = [...services.values()].filter(({ name }) => serviceKey(name) === service);
  return new Set(found.map(({ key }) => key));
}

/**
 * Throws unless some plan has the Service: a ConfigurationError for what cannot be a name, an Error
 * that offers the nearest ones, or gives the reason otherwise.
 */
export function checkService(service: string, { plans, all }: ServiceSearch): void {
  if (plans.some((plan) => servicePortsOf(plan, service).size > 0)) return;
  if (all.has(service)) {
    const families = plans.map(({ family }) => family).join(" or ");
    throw new Error(
      `Cannot show Service '${service}': it has no port with an address of ${families} to ` +
        "serve, as a headless Service, an ExternalName or one of another proxy has none",
    );
  }
  const hint = nearestServices(service, [...all]);
  checkServiceName(service, hint);
  throw new Error(`Cannot find Service '${service}': none of ${all.size} has this name${hint}`);
}

/** Throws a ConfigurationError unless it can be the name of a Service; `hint`: what its text ends with. */
export function checkServiceName(service: string, hint = ""): void {
  if (/^[^/]+\/[^/]+$/.test(service)) return;
  throw new ConfigurationError([
    `Cannot use '${service}' for --service: expected NAMESPACE/NAME${hint}`,
  ]);
}

/**
 * The names that may have been meant, as the end of an error; nothing where none is near. Those of the
 * same name in other namespaces first, then those with the fewest other letters.
 */
export function nearestServices(service: string, all: readonly string[]): string {
  const name = service.split("/").at(-1) ?? "";
  const near = all.map((key) => {
    const edits = key.endsWith(`/${name}`) ? 0 : distance(service, key);
    return { key, edits, isNear: edits <= Math.max(1, Math.floor(service.length / 3)) };
  });
  const offered = near.filter(({ isNear }) => isNear)
    .sort((left, right) => left.edits - right.edits || (left.key < right.key ? -1 : 1))
    .slice(0, MOST_OFFERED)
    .map(({ key }) => `'${key}'`);
  return offered.length === 0 ? "" : `; did you mean ${offered.join(", ")}?`;
}
